// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why something is done, left alone or waited for.

use std::time::Duration;

use daemon::agent::Refusal;
use sdc_clients::shown::ShownCommand;

use super::crowd::Blocked;

/// A reason. The sentence is for people; nothing decides by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("VMAPI knows what the node knows")]
    Same,
    #[error("VMAPI has no record of it")]
    NoRecord,
    /// These fields of the record differ.
    #[error("VMAPI has another {}", .0.join(", "))]
    Differs(Vec<String>),
    /// After the switch of a migration.
    #[error("VMAPI's record says nothing but where it is")]
    Bare,
    #[error("it is gone from the node")]
    Gone,
    #[error("it is hidden (do_not_inventory)")]
    Hidden,
    #[error("it was hidden shortly before it went")]
    LatelyHidden,
    #[error("what was hidden is not known: the state file was lost")]
    HiddenUnknown,
    #[error("VMAPI says it is on {0}")]
    Elsewhere(String),
    #[error("VMAPI says it is on no server")]
    Nowhere,
    /// destroyed or failed.
    #[error("VMAPI says {0} already")]
    Over(String),
    #[error("VMAPI is provisioning it here; {} s until it counts as gone", .0.as_secs())]
    Provisioning(Duration),
    #[error("the object has no {0}")]
    Partial(&'static str),
    #[error("the object is of node {0}")]
    WrongNode(String),
    #[error("VMAPI's record is newer: {record} against {here}")]
    Older { record: String, here: String },
    #[error("vminfod has not read it whole")]
    Unread,
    #[error("vminfod's list shows it, and vminfod does not know it")]
    Contradicted,
    #[error("VMAPI does not know it: asked again in {} s", .0.as_secs())]
    Unrecorded(Duration),
    #[error("VMAPI has it on another node, and it may run twice: asked again in {} s", .0.as_secs())]
    Twice(Duration),
    #[error(
        "VMAPI has it on another node, its migration is open here, and migration-agent does not answer: it may have been \
         replaced (svcs -xv migration-agent)"
    )]
    Replaced,
    #[error("its state seldom lasts: looked at again in {} ms", .0.as_millis())]
    Passing(Duration),
    #[error("nobody saw its configuration go: looked at again in {} s", .0.as_secs())]
    Missed(Duration),
    #[error("its zone is not there, and nobody saw it go, but its dataset is: see {0}")]
    Left(ShownCommand),
    #[error("it changed meanwhile")]
    Overtaken,
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// Nothing may be written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A request failed.
    #[error("{0}")]
    Request(String),
}

impl Reason {
    /// Returns true if the brake is on.
    pub fn is_brake(&self) -> bool {
        matches!(self, Self::Blocked(Blocked::Brake(_) | Blocked::Strangers { .. }))
    }
}
