// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's answer about the VM of a record. An unknown state counts as alive; no answer is never
//! consent.

use std::collections::BTreeSet;
use std::fmt;

use sdc_clients::MacAddr;
use sdc_clients::vmapi::Vm;
use sdc_clients::vminfod::VmFields as _;

/// What VMAPI says about the VM of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 200, destroyed or failed.
    Gone { state: String, server: Option<String> },
    /// 404.
    Unknown,
    /// 200, any other state.
    Alive {
        state: String,
        server: Option<String>,
        /// The MACs that VMAPI lists for it, if it lists any.
        macs: Option<BTreeSet<MacAddr>>,
    },
    /// An operator says that this machine was the node whose `cn_uuid` the record has.
    Claimed,
    /// Anything else, or no VMAPI.
    NoAnswer(String),
}

impl Verdict {
    /// Reads VMAPI's record.
    pub fn of(vm: &Vm) -> Self {
        let (state, server) = (vm.state.clone(), vm.server_uuid.clone());
        if matches!(state.as_str(), "destroyed" | "failed") {
            return Self::Gone { state, server };
        }
        let macs = vm.other.nics().map(|nics| nics.filter_map(|nic| nic.mac()).collect());
        Self::Alive { state, server, macs }
    }

    /// Returns true if VMAPI says destroyed or failed, here or on no node.
    pub fn confirms(&self, cn_uuid: &str) -> bool {
        let here = |server: &Option<String>| server.as_ref().is_none_or(|server| server == cn_uuid);
        matches!(self, Self::Gone { server, .. } if here(server))
    }

    /// Returns true if VMAPI says destroyed or failed, and that the VM was on this node.
    pub fn is_gone_from(&self, cn_uuid: &str) -> bool {
        matches!(self, Self::Gone { server: Some(server), .. } if server == cn_uuid)
    }

    /// Returns true if VMAPI places the living VM on another node.
    pub fn places_elsewhere(&self, cn_uuid: &str) -> bool {
        matches!(self, Self::Alive { server: Some(server), .. } if server != cn_uuid)
    }

    /// Returns true if VMAPI places the living VM on this node, or an operator does.
    pub fn places_on(&self, cn_uuid: &str) -> bool {
        match self {
            Self::Alive { server, .. } => server.as_deref() == Some(cn_uuid),
            Self::Claimed => true,
            _ => false,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { state, server: None } => write!(f, "VMAPI says {state}"),
            Self::Gone { state, server: Some(server) } => {
                write!(f, "VMAPI says {state} on {server}")
            }
            Self::Claimed => f.write_str("an operator claimed that node for this machine"),
            Self::Unknown => f.write_str("VMAPI does not know the VM"),
            Self::Alive { state, server: Some(server), .. } => {
                write!(f, "VMAPI says {state} on {server}")
            }
            Self::Alive { state, server: None, .. } => {
                write!(f, "VMAPI says {state}, on no server")
            }
            Self::NoAnswer(why) => write!(f, "no answer from VMAPI: {why}"),
        }
    }
}
