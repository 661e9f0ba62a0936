// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs: what the world would be like without a guard of the programs. The judge has to notice each.

use crate::bugs::bugs;

bugs! {
    /// The source's agent tells that its copy is stopped and hidden, whatever it is: the target is not fenced.
    NoFence = "no-fence",
    /// An agent obeys an order that was late, whatever revision it has heard.
    OldOrderObeyed = "old-order-obeyed",
    /// Quotas stay lifted.
    QuotaNotRestored = "quota-not-restored",
    /// The snapshot that a rollback needs is destroyed with the others.
    SnapshotDestroyedTooEarly = "snapshot-destroyed-too-early",
    /// Two services do the rounds.
    LeaseIgnored = "lease-ignored",
    /// What was changed on its way is taken.
    ChangeIgnored = "change-ignored",
    /// A stream is taken that no token was issued for: one that was recorded before.
    NoTokenCheck = "no-token-check",
    /// The target boots before VMAPI's record has moved.
    BootedBeforeMove = "booted-before-move",
    /// Nobody looks after a node that was declared dead, and it does not ask.
    NobodyWatches = "nobody-watches",
    /// An agent that answers with an error counts as dead.
    ErrorIsDeath = "error-is-death",
    /// Nobody looks when CNAPI last had a heartbeat of a node that is declared dead.
    HeartbeatIgnored = "heartbeat-ignored",
    /// A service whose store is empty answers agents as if it knew their migrations.
    EmptyStoreAnswers = "empty-store-answers",
    /// No agent hears that its copy is used instead of one whose node was declared dead.
    InsteadForgotten = "instead-forgotten",
    /// The source's agent shows a VM that somebody has deleted as it was.
    GoneIsThere = "gone-is-there",
    /// What has the name of a sync snapshot is destroyed with it, whoever made it.
    DestroyedByName = "destroyed-by-name",
    /// The manifest of migration-agent is in its package's folder alone, which no boot reads.
    ManifestNotImported = "manifest-not-imported",
    /// The source's copy takes a minute to boot when a switch is undone.
    BootsLate = "boots-late",
}
