// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What was observed of the two nodes and of the services in one round.

use serde::{Deserialize, Serialize};

use crate::intent::{End, Power};
use crate::vm_agent::VmAgent;

/// The answers of a round. An answer that failed is no fact: nothing follows from silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The source's node.
    pub source: Report,
    /// The target's node.
    pub target: Report,
    /// Where VMAPI places the VM; None: it did not answer, or named a third server.
    pub vmapi: Option<End>,
    /// This migration's reservations of addresses stand in NAPI.
    pub reserved: bool,
    /// How the settings of the target compare with the source's.
    pub settings: SettingsMatch,
    /// The target was created when the source was, or one of the times is not known.
    pub dated: bool,
}

/// How the objects of the two copies compare: alias, tags, metadata, sizes, NICs, resolvers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsMatch {
    /// The target has what the source has.
    Same,
    /// They differ, or are not known: an update brings them over.
    Differ,
    /// The source has another image, brand or set of disks than that which the target was made of. No update
    /// changes these.
    Remade,
}

/// The answer of a node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It did not answer.
    Silent,
    /// It answered that it cannot read the copy's state: its agent lives, and so may the copy.
    Unwell,
    /// It answered, after a reading that began after it was asked.
    Node(Node),
}

/// One node, as far as the VM is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// net-agent is held for the VM.
    pub held: bool,
    /// The node's copy of the VM.
    pub copy: Option<Copy>,
    /// Which vm-agent the node has.
    #[serde(default)]
    pub vm_agent: VmAgent,
    /// Datasets of the VM's name that are there and belong to no copy that was made whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_the_way: Vec<String>,
}

/// One copy of the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// It runs, or is on its way up or down.
    pub running: bool,
    /// It has `do_not_inventory`.
    pub hidden: bool,
    /// It boots with the node.
    pub autoboot: bool,
    /// What an order of the migration took from it, and it has not had again since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_power: Option<Power>,
    /// Its quota is raised or removed for a sync.
    pub quota_lifted: bool,
    /// Its zone was never installed: the creation is under way, or has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub half: bool,
    /// Its configuration is there, and none of its datasets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// Its snapshots were not listed: what follows from them is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Some of its datasets have received more than others: a sync ended half way.
    pub partial: bool,
    /// It was started since its newest sync snapshot was taken.
    pub started_since_snapshot: bool,
    /// The sync snapshots that all its datasets have, oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Which of its datasets are protected against deletion.
    #[serde(default)]
    pub protection: Protection,
    /// Which have the snapshot of that protection. It travels, and its hold does not.
    #[serde(default)]
    pub marked: Protection,
    /// The highest number of a sync snapshot that its root has, or 0.
    #[serde(default)]
    pub last: u32,
    /// Higher numbers, from and to, in names of what is held and was left, and of what people named so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<(u32, u32)>,
}

/// Which datasets of a copy are protected against deletion.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// `indestructible_zoneroot`
    pub zoneroot: bool,
    /// `indestructible_delegated`
    pub delegated: bool,
}

impl Protection {
    /// Returns what of this another one lacks.
    pub fn without(self, other: Protection) -> Protection {
        Protection {
            zoneroot: self.zoneroot && !other.zoneroot,
            delegated: self.delegated && !other.delegated,
        }
    }
}

/// A sync snapshot. Two of the same number may differ; two of the same GUID are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// N of `vm-migration-N`.
    pub number: u32,
    /// The GUID of the snapshot of the root dataset.
    pub guid: u64,
}

/// Returns whether both are so, of which one may not be known.
pub fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

impl Facts {
    /// Returns what was seen of a node.
    pub fn seen(&self, end: End) -> &Report {
        match end {
            End::Source => &self.source,
            End::Target => &self.target,
        }
    }

    /// Returns the copy on a node, if the node answered and has one.
    pub fn copy(&self, end: End) -> Option<&Copy> {
        self.node(end).and_then(|node| node.copy.as_ref())
    }

    /// Returns the node, if it answered.
    pub fn node(&self, end: End) -> Option<&Node> {
        match self.seen(end) {
            Report::Node(node) => Some(node),
            Report::Silent | Report::Unwell => None,
        }
    }

    /// Returns true if the node answered that it has no copy.
    pub fn is_absent(&self, end: End) -> bool {
        self.node(end).is_some_and(|node| node.copy.is_none())
    }

    /// Returns true if the node answered that nothing of what the VM wrote is there.
    pub fn is_lost(&self, end: End) -> bool {
        self.is_absent(end) || self.copy(end).is_some_and(|copy| copy.bare)
    }

    /// Returns true if the source was seen hidden, and the target is not shown as far as is known.
    pub fn is_nowhere(&self, target_shown: bool) -> bool {
        let target = self.copy(End::Target).map_or(!target_shown, |copy| copy.hidden);
        target && self.copy(End::Source).is_some_and(|copy| copy.hidden)
    }

    /// Returns whether both copies run; nothing where a node did not answer and it rests on that.
    pub fn both_run(&self) -> Option<bool> {
        let runs = |end: End| {
            self.node(end).map(|node| node.copy.as_ref().is_some_and(|copy| copy.running))
        };
        both(runs(End::Source), runs(End::Target))
    }

    /// Returns the newest snapshot that both copies have, by GUID.
    pub fn common(&self) -> Option<Snapshot> {
        let (source, target) = (self.copy(End::Source)?, self.copy(End::Target)?);
        let is_there = |it: &&Snapshot| target.snapshots.iter().any(|other| other.guid == it.guid);
        source.snapshots.iter().rev().find(is_there).copied()
    }

    /// Returns a number above those of both copies' sync snapshots that no other snapshot has in its name; the farther
    /// above, the more often the name of one was lost.
    pub fn unused_number(&self, lost: u32) -> u32 {
        let copies = [End::Source, End::Target].into_iter().filter_map(|end| self.copy(end));
        let numbers = copies
            .clone()
            .flat_map(|copy| copy.snapshots.iter().map(|it| it.number).chain([copy.last]));
        let first = numbers.max().unwrap_or(0).saturating_add(1);
        let ahead = 1_u32.checked_shl(lost).unwrap_or(u32::MAX) - 1;
        let mut number = first.saturating_add(ahead);
        while let Some(to) = copies.clone().find_map(|copy| copy.taken_to(number)) {
            let Some(next) = to.checked_add(1) else { return first };
            number = next;
        }
        number
    }
}

impl Copy {
    /// What the VM does, or did before the migration took it: of a store that was restored the agent knows it.
    pub fn power(&self) -> Power {
        let taken = self.taken_power.unwrap_or(Power { running: false, autoboot: false });
        Power { running: self.running || taken.running, autoboot: self.autoboot || taken.autoboot }
    }

    /// Returns true if it is stopped, hidden and does not boot with its node.
    pub fn is_off(&self) -> bool {
        !self.running && self.hidden && !self.autoboot
    }

    /// Returns true if a snapshot of another origin has this number in its name.
    pub fn has_taken(&self, number: u32) -> bool {
        self.taken_to(number).is_some()
    }

    /// Returns the last of the numbers, from this one on, that are all taken.
    fn taken_to(&self, number: u32) -> Option<u32> {
        let range = self.taken.iter().find(|(from, to)| (*from..=*to).contains(&number));
        range.map(|(_, to)| *to)
    }
}
