// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The copy of the VMs that a follower keeps, by node and VM. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::believed::{self, Fields};
use super::message::{Kind, Message, Position, Target};
use crate::vminfod::{Change, VmFields as _, VmObject};

/// The most changes of one event that are read.
const MOST_CHANGES: usize = 4096;

/// A VM on a node.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetVm {
    /// The node.
    pub cn: String,
    /// The VM.
    pub uuid: String,
    /// Its object, without what stays on the node; empty where the object is too large for the feed.
    pub object: VmObject,
    /// The event with which it became so.
    pub at: Position,
    /// The number of that message in `CHANGES`.
    pub seq: u64,
}

impl FleetVm {
    /// Returns true if the inventory leaves it out: the copy of a VM that migrates.
    pub fn is_hidden(&self) -> bool {
        self.object.is_hidden()
    }
}

/// What is believed of a body.
#[derive(Debug, Default)]
pub struct Line {
    /// The VM; none where the event has none.
    pub vm: Option<VmObject>,
    /// What changed.
    pub changes: Vec<Change>,
    /// How many fields are left out: of another type, or such as no VM has.
    pub left_out: usize,
}

impl Line {
    /// Reads a message.
    pub fn of(message: &Message) -> Line {
        let mut fields = Fields::of(&message.body);
        let vm: Option<VmObject> = fields.take("vm");
        let (vm, left_out) = vm.map(believed::object).unzip();
        let mut changes: Vec<Change> = fields.list("changes", MOST_CHANGES);
        for it in &mut changes {
            for side in [&mut it.old_value, &mut it.new_value, &mut it.ident] {
                *side = side.take().map(believed::value);
            }
        }
        Line { vm, changes, left_out: fields.left_out + left_out.unwrap_or_default() }
    }
}

/// How a message follows what the mirror has of its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// It is the next one.
    Next,
    /// What it tells is taken in: an agent that was answered by a server that is behind, longer after a cut than
    /// JetStream knows its messages, publishes once more what the feed has.
    Repeated,
    /// It stands behind a message that never came: the servers lost it, or gave its number to another one.
    Hole,
}

/// All VMs of the feed, or those that pass the filter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mirror {
    vms: BTreeMap<Target, Arc<FleetVm>>,
}

impl Mirror {
    /// All of them, by node and VM.
    pub fn vms(&self) -> impl Iterator<Item = &Arc<FleetVm>> {
        self.vms.values()
    }

    /// A VM wherever it is: the shown ones first. A VM that migrates is on two nodes; two that are shown are one too
    /// many.
    pub fn find(&self, uuid: &str) -> Vec<&Arc<FleetVm>> {
        let mut found: Vec<_> = self.vms().filter(|vm| vm.uuid == uuid).collect();
        found.sort_by_key(|vm| vm.is_hidden());
        found
    }

    /// The VMs that two nodes show.
    pub fn shown_twice(&self) -> Vec<(&str, Vec<&str>)> {
        let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for vm in self.vms().filter(|vm| !vm.is_hidden()) {
            nodes.entry(&vm.uuid).or_default().push(&vm.cn);
        }
        nodes.into_iter().filter(|(_, nodes)| nodes.len() > 1).collect()
    }

    /// How many hidden copies each node has; a node without one is left out.
    pub fn hidden(&self) -> BTreeMap<&str, usize> {
        let mut all = BTreeMap::new();
        for vm in self.vms().filter(|vm| vm.is_hidden()) {
            *all.entry(vm.cn.as_str()).or_default() += 1;
        }
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.vms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    /// Returns how a message of a VM follows.
    pub(super) fn follows(&self, message: &Message) -> Follows {
        let known = self.get(&message.target);
        let is_taken = known.is_some_and(|vm| vm.at.has(&message.labels.at));
        match known.map_or(0, |vm| vm.seq) {
            _ if is_taken && !message.labels.compared => Follows::Repeated,
            seq if message.behind > seq => Follows::Hole,
            _ => Follows::Next,
        }
    }

    pub(super) fn get(&self, target: &Target) -> Option<&Arc<FleetVm>> {
        self.vms.get(target)
    }

    /// Takes a message in; returns the VM that it made or changed, or the one that is gone.
    pub(super) fn take(
        &mut self,
        message: &Message,
        object: Option<VmObject>,
    ) -> Option<Arc<FleetVm>> {
        let uuid = message.target.vm.clone()?;
        if message.labels.kind == Kind::Delete {
            return self.vms.remove(&message.target);
        }
        let vm = Arc::new(FleetVm {
            cn: message.target.cn.clone(),
            uuid,
            object: object.unwrap_or_default(),
            at: message.labels.at.clone(),
            seq: message.seq,
        });
        self.vms.insert(message.target.clone(), Arc::clone(&vm));
        Some(vm)
    }

    /// Forgets whom `keep` does not name, and returns them.
    pub(super) fn retain(
        &mut self,
        keep: &std::collections::BTreeSet<Target>,
    ) -> Vec<Arc<FleetVm>> {
        let gone: Vec<Target> = self.vms.keys().filter(|it| !keep.contains(it)).cloned().collect();
        gone.iter().filter_map(|target| self.vms.remove(target)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Labels;
    use super::*;

    fn message(event: u64, seq: u64, behind: u64) -> Message {
        let target = Target { cn: "cn".into(), vm: Some("vm".into()) };
        let at = Position { epoch: "e".into(), seq: event };
        let labels = Labels::of(Kind::Modify, at);
        Message { target, labels, seq, behind, body: bytes::Bytes::new() }
    }

    #[test]
    fn what_was_lost_behind_the_acknowledgement_and_what_comes_twice_is_known() {
        // N9, N10
        let mut mirror = Mirror::default();
        assert_eq!(mirror.follows(&message(1, 7, 0)), Follows::Next, "the first word of a VM");
        assert_eq!(mirror.follows(&message(2, 8, 7)), Follows::Hole, "7 never came");
        mirror.take(&message(4, 20, 0), None);
        assert_eq!(mirror.follows(&message(5, 31, 20)), Follows::Next);
        assert_eq!(mirror.follows(&message(5, 31, 0)), Follows::Next, "an agent that knew none");
        assert_eq!(mirror.follows(&message(6, 31, 30)), Follows::Hole, "30 never came");
        assert_eq!(mirror.follows(&message(4, 31, 20)), Follows::Repeated);
        let mut compared = message(4, 31, 20);
        compared.labels.compared = true;
        assert_eq!(mirror.follows(&compared), Follows::Next, "a snapshot repairs what it contains");
        let mut restarted = message(1, 31, 20);
        restarted.labels.at.epoch = "f".into();
        assert_eq!(mirror.follows(&restarted), Follows::Next, "another start of vminfod");
    }

    #[test]
    fn hidden_copies_are_counted_by_node() {
        let mut mirror = Mirror::default();
        for (vm, cn, hidden) in [("a", "one", true), ("a", "two", false), ("b", "one", false)] {
            let mut message = message(1, 1, 0);
            message.target = Target { cn: cn.into(), vm: Some(vm.into()) };
            let object = serde_json::json!({"uuid": vm, "do_not_inventory": hidden});
            mirror.take(&message, object.as_object().cloned());
        }
        assert_eq!(mirror.hidden().into_iter().collect::<Vec<_>>(), [("one", 1)]);
    }
}
