// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is known of the node's VMs, and what is remembered of those that are gone. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use sdc_clients::vminfod::VmObject;

use super::local::{LocalView, LocalVm};

/// The uuid of a VM that differs from what was known, and the VM as it was.
pub type Differing = (String, Option<LocalVm>);

/// The VMs as last reported, and what is remembered of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub view: LocalView,
    /// VMs that are or were hidden, and until when that is remembered after they go.
    hidden: BTreeMap<String, Duration>,
    /// VMs that a snapshot of the stream or the last run had and no full view has denied since.
    remembered: BTreeMap<String, LocalVm>,
    /// When the last full view was asked for.
    full: Option<Duration>,
    /// Until then it is unknown what was hidden.
    unknown_until: Duration,
}

impl Inventory {
    /// Takes over what the last run knew: the NICs of its VMs, what was hidden and until when that
    /// is remembered, or until when it is unknown.
    pub fn restore(
        &mut self,
        vms: impl IntoIterator<Item = LocalVm>,
        hidden: BTreeMap<String, Duration>,
        unknown_until: Duration,
    ) {
        self.remembered.extend(vms.into_iter().map(|vm| (vm.uuid.clone(), vm)));
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
        let Some((mut vm, whole)) = LocalVm::read(object) else {
            self.view.listed = false;
            return None;
        };
        self.view.unread.retain(|name| !vm.is(name));
        self.view.older.retain(|name| !vm.is(name));
        if !whole && !self.complete(&mut vm) {
            self.view.unread.insert(vm.uuid.clone());
        }
        self.view.taken = now;
        self.note(&vm, now + memory);
        let before = self.view.vms.insert(vm.uuid.clone(), vm.clone());
        Some((before, vm))
    }

    /// Adds the NICs that are remembered of a VM. Returns false if none are.
    fn complete(&self, vm: &mut LocalVm) -> bool {
        let known = self.known(&vm.uuid);
        for nic in known.iter().flat_map(|known| &known.nics) {
            if !vm.has(nic.mac) {
                vm.nics.push(nic.clone());
            }
        }
        known.is_some()
    }

    /// Returns the VM of this uuid or zone name as it was last read, here or before it was missing.
    fn known(&self, name: &str) -> Option<&LocalVm> {
        let unread = |vm: &LocalVm| self.view.unread.iter().any(|name| vm.is(name));
        let here = self.view.vms.values().filter(|vm| !unread(vm));
        here.chain(self.remembered.values()).find(|vm| vm.is(name))
    }

    /// Fills in what is remembered of the zones that this view could not read.
    fn fill(&self, view: &mut LocalView) {
        for name in std::mem::take(&mut view.unread) {
            let filled = match view.vms.values_mut().find(|vm| vm.is(&name)) {
                Some(vm) => self.complete(vm),
                None => self.known(&name).is_some_and(|vm| {
                    view.vms.insert(vm.uuid.clone(), vm.clone());
                    true
                }),
            };
            let names = if filled { &mut view.older } else { &mut view.unread };
            names.insert(name);
        }
    }

    /// Removes a VM; `synced` if the stream is in sync. Returns it as it was.
    pub fn remove(
        &mut self,
        uuid: &str,
        now: Duration,
        memory: Duration,
        synced: bool,
    ) -> Option<LocalVm> {
        self.view.taken = now;
        let vm = self.view.vms.remove(uuid)?;
        // Out of sync it is only missing from a snapshot.
        if synced {
            self.remembered.remove(uuid);
        } else {
            self.remembered.insert(uuid.to_owned(), vm.clone());
        }
        self.view.older.retain(|name| !vm.is(name));
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

    /// Replaces the view by a full one, which says what it lacks. Returns the VMs that differ, as
    /// they were.
    pub fn replace(&mut self, view: LocalView, memory: Duration) -> Vec<Differing> {
        if !view.listed {
            return self.snapshot(view, memory);
        }
        self.full = Some(view.taken);
        let differing = self.exchange(view, memory);
        // What it neither shows nor names is gone.
        self.remembered.clear();
        differing
    }

    /// Replaces the view by one that does not say what it lacks, such as a snapshot of the stream.
    /// Returns the VMs that differ, as they were.
    pub fn snapshot(&mut self, view: LocalView, memory: Duration) -> Vec<Differing> {
        let missing = self.view.vms.values().filter(|vm| !view.vms.contains_key(&vm.uuid));
        let missing: Vec<LocalVm> = missing.cloned().collect();
        self.remembered.extend(missing.into_iter().map(|vm| (vm.uuid.clone(), vm)));
        self.exchange(view, memory)
    }

    fn exchange(&mut self, mut view: LocalView, memory: Duration) -> Vec<Differing> {
        self.fill(&mut view);
        let now = view.taken;
        for vm in view.vms.values() {
            self.note(vm, now + memory);
        }
        let gone_hidden = self.view.vms.values().filter(|vm| vm.hidden);
        for vm in gone_hidden.filter(|vm| !view.vms.contains_key(&vm.uuid)) {
            self.hidden.insert(vm.uuid.clone(), now + memory);
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

    /// Returns true if the VM was hidden a short while ago.
    pub fn recently_hidden(&self, uuid: &str, now: Duration) -> bool {
        self.hidden.get(uuid).is_some_and(|until| now < *until)
    }

    /// Updates the view's list of lately hidden VMs.
    pub fn refresh(&mut self, now: Duration) {
        let gone = self.hidden.iter().filter(|(uuid, _)| !self.view.vms.contains_key(*uuid));
        self.view.lately_hidden =
            gone.filter(|(_, until)| now < **until).map(|(uuid, _)| uuid.clone()).collect();
        self.view.hidden_unknown = now < self.unknown_until;
    }

    /// Returns when the last full view was asked for, if there was one.
    pub fn full(&self) -> Option<Duration> {
        self.full
    }

    /// Returns the VMs that are missing from the view and may be here all the same.
    pub fn remembered(&self) -> impl Iterator<Item = &LocalVm> {
        self.remembered.values()
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
    use sdc_clients::vminfod::{Incomplete, View};
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
        inventory.remove("u", s(20), memory, false);
        assert!(inventory.recently_hidden("u", s(319)));
        inventory.refresh(s(319));
        assert!(inventory.view.lately_hidden.contains("u"));
        assert!(!inventory.recently_hidden("u", s(320)));
        inventory.refresh(s(320));
        assert!(inventory.view.lately_hidden.is_empty());
        inventory.put(&vm(true), s(400), memory);
        inventory.put(&vm(false), s(401), memory);
        inventory.remove("u", s(402), memory, false);
        assert!(!inventory.recently_hidden("u", s(403)));
        // Gone between two whole views.
        inventory.put(&vm(true), s(500), memory);
        inventory.replace(LocalView::read([], s(900)), memory);
        assert!(inventory.recently_hidden("u", s(1199)));
    }

    /// A full view with the VMs of these names, each with a NIC, that could not read others.
    fn full(shown: &[(&str, &str)], unread: &[&str], taken: u64) -> LocalView {
        let vm = |(uuid, mac): &(&str, &str)| {
            object(
                json!({"uuid": uuid, "zonename": format!("zone-{uuid}"), "nics": [{"mac": mac}]}),
            )
        };
        let vms = shown.iter().map(vm).collect();
        let zones = unread.iter().map(|name| format!("zone-{name}")).collect();
        let incomplete = Incomplete::Zones(zones);
        LocalView::of(&View { vms, incomplete }, Duration::from_secs(taken))
    }

    #[test] // F70
    fn zones_that_cannot_be_read_keep_what_is_remembered_of_them() {
        const MACS: [&str; 2] = ["f2:00:00:00:00:01", "f2:00:00:00:00:02"];
        let memory = Duration::from_secs(300);
        let (a, b) = (("a", MACS[0]), ("b", MACS[1]));
        let mac = |n: usize| MACS[n].parse().unwrap();
        let holds = |i: &Inventory, n| i.view.holders(mac(n)).next().is_some();
        // Never read.
        let mut inventory = Inventory::default();
        inventory.replace(full(&[a], &["b"], 1), memory);
        assert_eq!(inventory.view.unread, ["zone-b".to_owned()].into());
        assert!(!inventory.view.is_complete() && inventory.full().is_some());
        // Read once, then not any more, whatever the stream's snapshot says meanwhile.
        inventory.replace(full(&[a, b], &[], 2), memory);
        let gone = inventory.snapshot(full(&[a], &[], 3), memory);
        assert!(gone.len() == 1 && !holds(&inventory, 1));
        for taken in 4..6 {
            inventory.replace(full(&[a], &["b"], taken), memory);
            assert!(inventory.view.is_complete() && holds(&inventory, 0) && holds(&inventory, 1));
            assert_eq!(inventory.view.older, ["zone-b".to_owned()].into());
        }
        // A list that is not whole denies nothing; a whole one does.
        let torn = LocalView { listed: false, ..full(&[a], &[], 7) };
        inventory.replace(torn, memory);
        inventory.replace(full(&[a], &["b"], 8), memory);
        assert!(holds(&inventory, 1));
        inventory.replace(full(&[a], &[], 9), memory);
        inventory.replace(full(&[a], &["b"], 10), memory);
        assert!(!holds(&inventory, 1) && !inventory.view.is_complete());
        // Remembered from the last run.
        let mut inventory = Inventory::default();
        let last = LocalVm::remembered("zone-b".to_owned(), [mac(1)]);
        inventory.restore([last], BTreeMap::new(), Duration::ZERO);
        inventory.snapshot(full(&[a], &[], 1), memory);
        inventory.replace(full(&[a], &["b"], 2), memory);
        assert!(inventory.view.is_complete() && holds(&inventory, 1));
        // Out of sync a delete is only a VM that a snapshot lacks; an event is more.
        for synced in [false, true] {
            inventory.replace(full(&[a, b], &[], 3), memory);
            inventory.remove("b", Duration::from_secs(4), memory, synced);
            inventory.replace(full(&[a], &["b"], 5), memory);
            assert_eq!(holds(&inventory, 1), !synced);
        }
    }

    #[test] // F70
    fn objects_without_nics_keep_those_that_were_known() {
        let mut inventory = Inventory::default();
        let (s, memory) = (Duration::from_secs, Duration::from_secs(300));
        let mac = "f2:00:00:00:00:01";
        let bare = object(json!({"uuid": "u"}));
        inventory.replace(LocalView::read([], s(0)), memory);
        inventory.put(&bare, s(1), memory);
        assert_eq!(inventory.view.unread, ["u".to_owned()].into());
        inventory.put(&object(json!({"uuid": "u", "nics": [{"mac": mac}]})), s(2), memory);
        assert!(inventory.view.is_complete());
        inventory.put(&bare, s(3), memory);
        inventory.replace(LocalView::read([&bare], s(4)), memory);
        assert!(inventory.view.is_complete());
        assert_eq!(inventory.view.macs().count(), 1);
        inventory.put(&object(json!({"uuid": "u", "nics": []})), s(5), memory);
        assert_eq!(inventory.view.macs().count(), 0, "now it says so");
    }
}
