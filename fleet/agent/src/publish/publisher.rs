// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The publisher's state, and why it is cut.

use std::collections::{BTreeMap, HashMap};

use sdc_clients::fleet::{FleetError, Position};

use crate::hub::HubError;
use crate::parts::Parts;

/// Why publishing was cut.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error(transparent)]
    Feed(#[from] FleetError),
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Another program publishes this node now.
    #[error("another program publishes this node")]
    Lost,
}

/// Publishes a node.
pub(super) struct Publisher<'a> {
    pub(super) parts: &'a Parts,
    pub(super) sent: Sent,
    /// The last event that the feed is known to have: the next one names it.
    pub(super) published: Option<Position>,
    /// The node's marker as it was last seen in `VMS`, and its number there. It outlives a cut.
    pub(super) marker: Option<(Position, u64)>,
}

/// The number of the last message of each subject, as far as it is known; one for each VM of the node.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) last: HashMap<String, u64>,
    /// The largest number that was acknowledged.
    pub(super) newest: u64,
    /// The feed seemed to lack that one at the last look.
    pub(super) is_short: bool,
    /// The last event of each subject since it was last seen that the feed has it, and whether it was looked for in
    /// vain.
    pub(super) unseen: BTreeMap<String, (Position, bool)>,
    /// The numbers went back: this is another stream, or one that was restored.
    pub(super) went_back: bool,
}

impl Sent {
    pub(super) fn forget(&mut self, subject: &str) {
        self.last.remove(subject);
    }
}
