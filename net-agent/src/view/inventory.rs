// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of the node's VMs, and what is remembered of those that are gone. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdc_clients::vminfod::VmObject;

use super::local::{LocalView, LocalVm};
use crate::timing::HOUR;

/// The uuid of a VM that differs from what was known, and the VM as it was.
pub type Differing = (String, Option<LocalVm>);

/// The VMs as last reported, and what is remembered of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub view: LocalView,
    /// True while the stream is connected and its snapshot is read.
    pub synced: bool,
    /// VMs that are or were hidden, and until when that is remembered after they go.
    hidden: BTreeMap<String, Duration>,
    /// Until then it is unknown what was hidden.
    unknown_until: Duration,
    /// The sizes of the complete views of the last hour, for the brake.
    counts: VecDeque<(Duration, usize)>,
    /// The size of which the view shows less than half. It stays until the view has recovered or
    /// the new size is accepted; time alone does not clear it.
    fallen_from: Option<usize>,
}

impl Inventory {
    /// Takes over what the last run knew: the size of its view, what was hidden and until when
    /// that is remembered, or until when it is unknown.
    pub fn restore(
        &mut self,
        vms: Option<usize>,
        hidden: BTreeMap<String, Duration>,
        unknown_until: Duration,
    ) {
        self.counts.extend(vms.map(|count| (Duration::ZERO, count)));
        self.hidden.extend(hidden);
        self.unknown_until = unknown_until;
    }

    /// Stores one VM object. Returns the VM before and after, or none if it has no name.
    pub fn put(
        &mut self,
        object: &VmObject,
        now: Duration,
        memory: Duration,
    ) -> Option<(Option<LocalVm>, LocalVm)> {
        let (vm, whole) = LocalVm::read(object)?;
        self.view.complete &= whole;
        self.view.taken = now;
        self.note(&vm, now + memory);
        let before = self.view.vms.insert(vm.uuid.clone(), vm.clone());
        Some((before, vm))
    }

    /// Removes a VM. Returns it as it was.
    pub fn remove(&mut self, uuid: &str, now: Duration, memory: Duration) -> Option<LocalVm> {
        self.view.taken = now;
        let vm = self.view.vms.remove(uuid)?;
        self.note(&vm, now + memory);
        Some(vm)
    }

    /// Remembers a hidden VM until then; forgets that a shown one was hidden.
    pub(crate) fn note(&mut self, vm: &LocalVm, until: Duration) {
        if vm.hidden {
            self.hidden.insert(vm.uuid.clone(), until);
        } else {
            self.hidden.remove(&vm.uuid);
        }
    }

    /// Returns the size of the largest complete view of the last hour, or the size that the view
    /// has fallen from.
    pub fn most_vms(&self, now: Duration) -> Option<usize> {
        let young = self.counts.iter().filter(|(at, _)| now.saturating_sub(*at) < HOUR);
        young.map(|(_, count)| *count).max().max(self.fallen_from)
    }

    /// Replaces the whole view. Returns the VMs that differ, as they were.
    pub fn replace(&mut self, view: LocalView, memory: Duration) -> Vec<Differing> {
        let now = view.taken;
        for vm in view.vms.values() {
            self.note(vm, now + memory);
        }
        let gone_hidden = self.view.vms.values().filter(|vm| vm.hidden);
        for vm in gone_hidden.filter(|vm| !view.vms.contains_key(&vm.uuid)) {
            self.hidden.insert(vm.uuid.clone(), now + memory);
        }
        if view.complete {
            let size = view.vms.len();
            self.fallen_from = self.most_vms(now).filter(|most| size * 2 < *most);
            self.counts.retain(|(at, _)| now.saturating_sub(*at) < HOUR);
            // One entry per size, the newest.
            self.counts.retain(|(_, count)| *count != size);
            self.counts.push_back((now, size));
        }
        let mut differing = Vec::new();
        for (uuid, before) in &self.view.vms {
            if view.vms.get(uuid) != Some(before) {
                differing.push((uuid.clone(), Some(before.clone())));
            }
        }
        for uuid in view.vms.keys().filter(|uuid| !self.view.vms.contains_key(*uuid)) {
            differing.push((uuid.clone(), None));
        }
        self.view = view;
        differing
    }

    /// Accepts the size of the view as it is.
    pub fn accept_size(&mut self, now: Duration) {
        self.fallen_from = None;
        self.counts.clear();
        self.counts.push_back((now, self.view.vms.len()));
    }

    /// Returns true if the VM was hidden a short while ago.
    pub fn recently_hidden(&self, uuid: &str, now: Duration) -> bool {
        self.hidden.get(uuid).is_some_and(|until| now < *until)
    }

    /// Updates the view's list of lately hidden VMs.
    pub fn refresh(&mut self, now: Duration) {
        let mut view = std::mem::take(&mut self.view);
        self.mark(&mut view, now);
        self.view = view;
    }

    /// Writes into a view what is remembered of hidden VMs.
    pub fn mark(&self, view: &mut LocalView, now: Duration) {
        let gone = self.hidden.iter().filter(|(uuid, _)| !view.vms.contains_key(*uuid));
        view.lately_hidden =
            gone.filter(|(_, until)| now < **until).map(|(uuid, _)| uuid.clone()).collect();
        view.hidden_unknown = now < self.unknown_until;
    }

    /// Returns the VMs that are or were hidden, and until when that is remembered.
    pub fn hidden(&self) -> &BTreeMap<String, Duration> {
        &self.hidden
    }

    /// Forgets hidden VMs that are gone and old.
    pub fn forget(&mut self, now: Duration) {
        let vms = &self.view.vms;
        self.hidden.retain(|uuid, until| vms.contains_key(uuid) || now < *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(value: Value) -> VmObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn remembers_hidden_vms_after_their_delete() {
        let mut inventory = Inventory::default();
        let (s, memory) = (Duration::from_secs, Duration::from_secs(300));
        let vm = |hidden: bool| object(json!({"uuid": "u", "do_not_inventory": hidden}));
        inventory.put(&vm(true), s(10), memory);
        inventory.remove("u", s(20), memory);
        assert!(inventory.recently_hidden("u", s(319)));
        inventory.refresh(s(319));
        assert!(inventory.view.lately_hidden.contains("u"));
        assert!(!inventory.recently_hidden("u", s(320)));
        inventory.refresh(s(320));
        assert!(inventory.view.lately_hidden.is_empty());
        inventory.put(&vm(true), s(400), memory);
        inventory.put(&vm(false), s(401), memory);
        inventory.remove("u", s(402), memory);
        assert!(!inventory.recently_hidden("u", s(403)));
        // Gone between two whole views.
        inventory.put(&vm(true), s(500), memory);
        inventory.replace(LocalView::read([], s(900)), memory);
        assert!(inventory.recently_hidden("u", s(1199)));
    }

    #[test]
    fn remembers_a_lost_size_until_it_recovers() {
        let vms: Vec<_> = (0..10).map(|n| object(json!({"uuid": format!("v{n}")}))).collect();
        let mut inventory = Inventory::default();
        let s = Duration::from_secs;
        let read = |count: usize, at| LocalView::read(&vms[..count], s(at));
        inventory.replace(read(10, 0), s(300));
        for at in [300, 4000, 90_000] {
            inventory.replace(read(4, at), s(300));
            assert_eq!(inventory.most_vms(s(at)), Some(10), "{at}");
        }
        inventory.replace(read(5, 100_000), s(300));
        assert_eq!(inventory.most_vms(s(100_000)), Some(5), "recovered");
        inventory.replace(read(1, 100_300), s(300));
        assert_eq!(inventory.most_vms(s(100_300)), Some(5));
        inventory.accept_size(s(100_301));
        assert_eq!(inventory.most_vms(s(100_301)), Some(1));
        inventory.restore(Some(40), BTreeMap::new(), Duration::ZERO);
        assert_eq!(inventory.most_vms(s(10)), Some(40), "what the last run saw");
    }
}
