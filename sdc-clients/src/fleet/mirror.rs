// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The copy of the VMs that a follower keeps, by node and VM. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::message::{Kind, Message, Position, Target};
use crate::vminfod::{Change, VmFields as _, VmObject};

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
}

impl FleetVm {
    /// Returns true if the inventory leaves it out: the copy of a VM that migrates.
    pub fn is_hidden(&self) -> bool {
        self.object.is_hidden()
    }
}

/// What a body has.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    #[serde(default)]
    pub(super) vm: Option<VmObject>,
    #[serde(default)]
    pub(super) changes: Vec<Change>,
}

impl Line {
    pub(super) fn of(message: &Message) -> Result<Line, serde_json::Error> {
        serde_json::from_slice(&message.body)
    }
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

    /// A VM wherever it is: the shown ones first. A VM that migrates is on two nodes; two that are shown are one too many.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.vms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty()
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
