// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The publisher's state, and why it is cut.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sdc_clients::fleet::{FleetError, Position};
use tokio::time::Instant;

use crate::hub::HubError;
use crate::parts::Parts;

/// Subjects that are searched for at most: of those beyond the audit finds what was lost.
const MOST_UNSEEN: usize = 10_000;
/// `VMS` takes what `CHANGES` has within moments, and after an election.
const LOST: Duration = Duration::from_secs(60);

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
    /// The feed seemed to lack that one at the last check.
    pub(super) is_short: bool,
    /// What `VMS` was not seen to have yet, by subject.
    pub(super) unseen: BTreeMap<String, Unseen>,
    /// The numbers went back: this is another stream, or one that was restored.
    pub(super) went_back: bool,
}

/// The last message of a subject, until `VMS` was seen to have it.
#[derive(Debug)]
pub(super) struct Unseen {
    pub(super) at: Position,
    /// Since when it has been searched for in vain.
    pub(super) missed: Option<Instant>,
}

impl Unseen {
    /// Returns true if `VMS` has had the time to take it.
    pub(super) fn is_lost(&self) -> bool {
        self.missed.is_some_and(|since| since.elapsed() >= LOST)
    }
}

impl Sent {
    /// `VMS` is to have this of a subject. One that is already searched for in vain stays so.
    pub(super) fn expect(&mut self, subject: &str, at: &Position) {
        if self.unseen.len() < MOST_UNSEEN || self.unseen.contains_key(subject) {
            let unseen = || Unseen { at: at.clone(), missed: None };
            let known = self.unseen.entry(subject.to_owned()).or_insert_with(unseen);
            if known.at != *at {
                *known = unseen();
            }
        }
    }

    /// Returns true if `VMS` has lost the last message of a subject.
    pub(super) fn has_lost(&self, subject: &str) -> bool {
        self.unseen.get(subject).is_some_and(Unseen::is_lost)
    }

    pub(super) fn forget(&mut self, subject: &str) {
        self.last.remove(subject);
    }
}
