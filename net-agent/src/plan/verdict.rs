// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's word about the VM a record belongs to, reduced to what the guards ask of it. Any text
//! that is not known counts as alive; silence is never consent.

use std::collections::BTreeSet;
use std::fmt;

use sdc_clients::MacAddr;

/// What VMAPI said of the VM a record belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 200, destroyed or failed.
    Gone(String),
    /// 404.
    Unknown,
    /// 200, any other state.
    Alive {
        /// VMAPI's state text.
        state: String,
        /// Where VMAPI places it.
        server: Option<String>,
        /// The addresses VMAPI lists for it, if it lists any.
        macs: Option<BTreeSet<MacAddr>>,
    },
    /// Anything else.
    NoAnswer(String),
}

impl Verdict {
    /// From VMAPI's record.
    pub fn of(state: &str, server: Option<&str>, macs: Option<BTreeSet<MacAddr>>) -> Self {
        match state {
            "destroyed" | "failed" => Self::Gone(state.to_owned()),
            _ => Self::Alive { state: state.to_owned(), server: server.map(str::to_owned), macs },
        }
    }

    /// Does VMAPI place the living VM on this node?
    pub fn places_on(&self, cn_uuid: &str) -> bool {
        matches!(self, Self::Alive { server: Some(server), .. } if server == cn_uuid)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(state) => write!(f, "VMAPI says {state}"),
            Self::Unknown => f.write_str("VMAPI does not know the VM"),
            Self::Alive { state, server: Some(server), .. } => {
                write!(f, "VMAPI says {state} on {server}")
            }
            Self::Alive { state, server: None, .. } => {
                write!(f, "VMAPI says {state}, placed nowhere")
            }
            Self::NoAnswer(why) => write!(f, "no answer from VMAPI: {why}"),
        }
    }
}
