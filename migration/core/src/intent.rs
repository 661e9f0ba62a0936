// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The intent of a record: what must be known before an order is sent, stored in the record before the order.
//!
//! Its key in the record is `journal`. Deployed services ignore the key and keep it: they store the record that they
//! read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::time::Time;

/// One of the two nodes of a migration.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The node that the VM was on when the migration began.
    Source,
    /// The node that it moves to.
    Target,
}

impl End {
    /// Returns the other node.
    pub fn other(self) -> End {
        match self {
            End::Source => End::Target,
            End::Target => End::Source,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            End::Source => "source",
            End::Target => "target",
        })
    }
}

/// What the VM did before an operation stopped it, to be restored when the operation ends.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    pub running: bool,
    pub autoboot: bool,
}

/// Returns true for two nonces of a revision that are known and not the same.
pub fn differ(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// An operator's confirmation: who gave it, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    pub by: Uuid,
    pub at: Time,
}

/// What the steps so far have promised, forbidden or made irrevocable. Empty until an operation needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Intent {
    /// Raised and stored before each round of observing and acting. A node that has received a round
    /// refuses the orders of earlier ones, so that an order that was late in the network does nothing.
    pub revision: u64,
    /// Drawn when the revision was raised: a store that lost this revision raises to it with another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<u32>,
    /// Power and autoboot of the VM before the running operation, until they are restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// The number of the snapshot that the running operation takes and sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sending: Option<u32>,
    /// How often that snapshot's name was taken already.
    #[serde(skip_serializing_if = "is_none_lost")]
    pub names_lost: u32,
    /// What a rehearsal of the running switch has found; none before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rehearsed: Option<Rehearsal>,
    /// A switch is refused that would keep the VM down for longer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime: Option<u32>,
    /// Bytes of the last syncs, oldest first; as many as the rule of another sync looks at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sync_sizes: Vec<u64>,
    /// The running operation is stopped, and what it did is undone; why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// What ends an operation that failed, where a repeat cannot. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// The running sync is to be paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pause: bool,
    /// The target was, or is about to be, ordered to show itself: the point of no return of a switch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub target_shown: bool,
    /// The target was, or is about to be, allowed to boot, so that it may hold data that the source lacks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub target_booted: bool,
    /// A rollback has ordered, or is about to order, the source to show itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub source_shown: bool,
    /// A finalize deletes, or is about to delete, the source.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub source_goes: bool,
    /// The operator confirmed that the source's node is dead and stays so (`switch --source-dead`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_dead: Option<Confirmation>,
    /// The operator confirmed that the target's node is dead and stays so (`--target-dead`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_dead: Option<Confirmation>,
    /// When a node that was declared dead came back with a copy that was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<Time>,
    /// Since when it is known that an agent received a later revision: the store was restored, and what the record
    /// has was true once. Nothing is done until an operator adopts what the agents have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older: Option<Time>,
    /// The node whose agent said so: it may lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_by: Option<Uuid>,
    /// Since when both copies were seen running: a person has booted one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both_run: Option<Time>,
    /// Since when neither copy was seen shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_since: Option<Time>,
    /// Since when the agent of the source's node does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_silent: Option<Time>,
    /// Since when that of the target's node does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_silent: Option<Time>,
    /// What each node holds of the VM, in bytes, after the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_bytes: Option<u64>,
    /// The migration is over. The record stays because a node was declared dead: when it comes back, its
    /// agent must find that its copy was replaced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// The operator gives up what the target wrote since the switch (`rollback --discard`), or what an abort, of which
    /// he knows why, could not remove (`abort --force`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard: Option<Confirmation>,
    /// The operator begins, or switches, whichever vm-agent the nodes have (`--force`), until the migration ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub any_vm_agent: Option<Confirmation>,
    /// The running operation makes the VM of the only copy that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rescue: Option<Before>,
    /// An operation that failed has left the VM as its owner's: only its copy is left over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
    /// The id of the operation that waits for its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Uuid>,
    /// A finalize was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub finalize: bool,
    /// All addresses of the VM are reserved; `reserved_nics` has those that this migration reserves.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reserved: bool,
    /// Until this time an address may still be reserved by a request whose outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserves_until: Option<Time>,
    /// CNAPI's ticket for the target's sizes on its node, until VMAPI has the VM there or the target goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// The target's creation was ordered where nothing of its name was: what is there is this migration's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// The order that creates the target, from before it is sent until it is known how it ended: one order is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    /// One order of this operation was lost: the next that is lost is the last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub creation_lost: bool,
    /// CNAPI's ticket, while a placement, a switch or a rollback runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// Where to place the VM relative to others, as the caller asked: objects, or texts in older records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Value>,
    /// The limit of its streams in Mbit/s, below that of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bwlimit: Option<u32>,
    /// Who asked for the operation that runs or waits. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asker: Option<Asker>,
    /// Since when the operation that runs has kept a VM down that ran. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Down>,
    /// Bytes that streams sent since the last operation in the history. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// A program of a node for which the step that runs waits. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Runs>,
    /// A step does not succeed and is tried again. Only people read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// A program that runs on a node for long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// It and its arguments.
    pub command: String,
    /// Whose node's.
    pub end: End,
    /// By the node's clock.
    pub since: Time,
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Runs { command, end, since } = self;
        write!(f, "`{command}` on the {end}'s node, which has run since {since}")
    }
}

/// What is left of a switch, found while the VM runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// What the last sync sends, as far as the node can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long the VM will be down, about, in seconds.
    #[serde(default)]
    pub downtime: u64,
}

/// Who asked for an operation, as far as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The account or the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub at: Time,
}

/// What ends an operation that a repeat does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// The copy on the target is unusable: abort, then begin.
    Anew,
    /// The copy has lost its datasets: a sync sends them again.
    Resend,
    /// The target has no room: the same elsewhere, or again once there is room.
    Room,
    /// One copy is left: rescue.
    Rescue,
    /// What was written since the switch cannot go back: the VM stays on its new node.
    Stay,
}

/// When a VM that ran was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Before it was ordered to stop.
    pub since: Time,
    /// When it was seen running again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A step that is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// What the last attempt failed of.
    pub why: String,
    /// When the first attempt failed of those in a row.
    pub since: Time,
    /// So many have failed in a row.
    pub failed: u32,
    /// After so many it is given up.
    pub most: u32,
    /// When the next one begins.
    pub next: Time,
}

impl Again {
    /// Returns this as people read it.
    pub fn sentence(&self, now: Time) -> String {
        let Again { why, since, failed, most, next } = self;
        let (past, left) = (spoken(now.since(*since)), next.since(now));
        let next = match left {
            ..1000 => "the next is under way".to_owned(),
            left => format!("the next in {}", spoken(left)),
        };
        format!("{why} (attempt {failed} of {most} failed; since {past}, {next})")
    }
}

/// Returns a span of ms in its largest unit that is not small.
fn spoken(ms: i64) -> String {
    match ms.max(0) / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// What a migration did before a rescue, and does again where there is nothing to be rescued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Before {
    /// It waited for a person or a time.
    Waited,
    /// It had failed.
    Failed,
    /// It had switched.
    Switched,
}

/// An order to create the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Since when it may have been sent.
    pub since: Time,
    /// CNAPI's task; none where the answer did not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl Creation {
    /// Returns when an order whose answer was lost has begun to show, or was lost, too (CN10).
    pub fn due(&self) -> Time {
        self.since.plus(15 * 60_000)
    }

    /// Returns what is waited for, as people read it.
    pub fn sentence(&self, now: Time) -> String {
        match &self.task {
            Some(task) => {
                format!(
                    "CNAPI creates the target (task {task}, since {})",
                    spoken(now.since(self.since))
                )
            }
            None => format!(
                "CNAPI did not answer the order to create the target; unless the target shows, it is ordered again in {}",
                spoken(self.due().since(now))
            ),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands it so
fn is_none_lost(names: &u32) -> bool {
    *names == 0
}

impl Intent {
    /// Raises the revision: a round begins, or a node is asked anew.
    pub fn raise(&mut self, nonce: u32) {
        self.revision += 1;
        self.nonce = Some(nonce);
    }

    /// Returns true if an agent that has received this revision with this nonce shows that the record was restored.
    pub fn is_behind(&self, revision: u64, nonce: Option<u32>) -> bool {
        revision > self.revision || revision == self.revision && differ(self.nonce, nonce)
    }

    /// Returns true if the copy on this node, whose node was declared dead, is not to be used again: its
    /// agent stops and hides it before anything else.
    pub fn is_replaced(&self, end: End) -> bool {
        let other_is_shown = match end {
            End::Source => self.target_shown && !self.source_shown,
            End::Target => self.source_shown,
        };
        other_is_shown && self.is_dead(end)
    }

    /// Returns the node that the VM is on.
    pub fn of_vm(&self) -> End {
        match self.target_shown && !self.source_shown {
            true => End::Target,
            false => End::Source,
        }
    }

    /// Returns true if what the VM wrote since the switch may be on the target alone. A record of the deployed service
    /// does not show it.
    pub fn has_written(&self) -> bool {
        (self.target_booted || self.revision == 0) && !self.source_shown
    }

    /// Returns since when the agent of this node does not answer.
    pub fn silent(&self, end: End) -> Option<Time> {
        match end {
            End::Source => self.source_silent,
            End::Target => self.target_silent,
        }
    }

    /// Notes whether the agent of this node answers.
    pub fn heard(&mut self, end: End, answers: bool, now: Time) {
        let since = match end {
            End::Source => &mut self.source_silent,
            End::Target => &mut self.target_silent,
        };
        *since = (!answers).then_some(since.unwrap_or(now));
    }

    /// Returns true if the operator confirmed that this node is dead.
    pub fn is_dead(&self, end: End) -> bool {
        match end {
            End::Source => self.source_dead.is_some(),
            End::Target => self.target_dead.is_some(),
        }
    }
}
