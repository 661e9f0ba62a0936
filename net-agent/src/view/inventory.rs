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
    /// True while the stream is connected and its snapshot is read.
    pub synced: bool,
    /// VMs that are or were hidden, and until when that is remembered after they go.
    hidden: BTreeMap<String, Duration>,
    /// Until then it is unknown what was hidden.
    unknown_until: Duration,
}

impl Inventory {
    /// Takes over what the last run knew: what was hidden and until when that is remembered, or
    /// until when it is unknown.
    pub fn restore(&mut self, hidden: BTreeMap<String, Duration>, unknown_until: Duration) {
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
}
