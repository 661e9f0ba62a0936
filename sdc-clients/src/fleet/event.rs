// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a follower tells, and where it is.

use std::sync::Arc;

use super::error::FleetError;
use super::message::Position;
use super::mirror::FleetVm;
use crate::vminfod::Change;

/// Where a follower is: what it needs to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// When `CHANGES` was made, in nanoseconds: another one has other numbers.
    pub made: i128,
    /// The last message of it that was taken.
    pub seq: u64,
}

/// What the feed tells.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEvent {
    /// The mirror is complete, also where `VMS` is behind `CHANGES`.
    Synced,
    /// A VM is new, or changed.
    Changed {
        /// The VM now.
        vm: Arc<FleetVm>,
        /// What changed; empty for a new VM and for what was compared.
        changes: Vec<Change>,
        /// Whether it is new on its node.
        is_new: bool,
        /// It is no event: it is how the VM was found to differ.
        compared: bool,
    },
    /// A VM is gone from its node.
    Gone {
        /// As it last was.
        vm: Arc<FleetVm>,
        /// The event with which it went; for what was compared, the last one that is known of it.
        at: Position,
        /// As in `Changed`.
        compared: bool,
    },
    /// What happened on this node before is not completely known; what it has now is. An agent said so, or a message
    /// stands behind one that never came.
    Resync {
        /// The node.
        cn: String,
    },
    /// What happened in the data centre before is not completely known: the feed does not have it any more.
    Hole,
    /// A snapshot is taken again, as it was asked for: what comes with it comes as no event.
    Again,
    /// A message that no agent wrote, or whose body is no event; it changes nothing.
    Odd {
        /// Its subject.
        subject: String,
    },
    /// The feed was lost; it is tried again.
    Lost(FleetError),
}
