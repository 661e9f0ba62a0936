// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs: what the world would be like without a guard of the programs. The judge has to notice each.

use std::str::FromStr;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The source's agent tells that its copy is stopped and hidden, whatever it is: the target is not fenced.
    NoFence,
    /// An agent obeys an order that was late, whatever revision it has heard.
    OldOrderObeyed,
    /// Quotas stay lifted.
    QuotaNotRestored,
    /// The snapshot that a rollback needs is destroyed with the others.
    SnapshotDestroyedTooEarly,
    /// Two services do the rounds.
    LeaseIgnored,
    /// What was changed on its way is taken.
    ChangeIgnored,
    /// A stream is taken that no token was issued for: one that was recorded before.
    NoTokenCheck,
    /// The target boots before VMAPI's record has moved.
    BootedBeforeMove,
    /// Nobody looks after a node that was declared dead, and it does not ask.
    NobodyWatches,
    /// An agent that answers with an error counts as dead.
    ErrorIsDeath,
    /// Nobody looks when CNAPI last had a heartbeat of a node that is declared dead.
    HeartbeatIgnored,
    /// A service whose store is empty answers agents as if it knew their migrations.
    EmptyStoreAnswers,
    /// No agent hears that its copy is used instead of one whose node was declared dead.
    InsteadForgotten,
    /// The source's agent shows a VM that somebody has deleted as it was.
    GoneIsThere,
}

/// All of them, with the names they are asked for by.
pub const BUGS: [(&str, Bug); 14] = [
    ("no-fence", Bug::NoFence),
    ("old-order-obeyed", Bug::OldOrderObeyed),
    ("quota-not-restored", Bug::QuotaNotRestored),
    ("snapshot-destroyed-too-early", Bug::SnapshotDestroyedTooEarly),
    ("lease-ignored", Bug::LeaseIgnored),
    ("change-ignored", Bug::ChangeIgnored),
    ("no-token-check", Bug::NoTokenCheck),
    ("booted-before-move", Bug::BootedBeforeMove),
    ("nobody-watches", Bug::NobodyWatches),
    ("error-is-death", Bug::ErrorIsDeath),
    ("heartbeat-ignored", Bug::HeartbeatIgnored),
    ("empty-store-answers", Bug::EmptyStoreAnswers),
    ("instead-forgotten", Bug::InsteadForgotten),
    ("gone-is-there", Bug::GoneIsThere),
];

impl Bug {
    /// The name it is asked for by.
    pub fn name(self) -> &'static str {
        BUGS.iter().find(|(_, bug)| *bug == self).map_or("?", |(name, _)| name)
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || BUGS.map(|(name, _)| name).join(", ");
        let found = BUGS.iter().find(|(name, _)| *name == text);
        found.map(|(_, bug)| *bug).ok_or_else(|| format!("no bug {text:?}; there are {}", names()))
    }
}
