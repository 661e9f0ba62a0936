// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node as vminfod shows it: its VMs, their NICs, and who we are. Filled by the watch stream
//! and by fresh full views; it never asks anybody and never decides. What cannot be read makes a
//! view incomplete, and an incomplete view deletes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sdc_clients::MacAddr;
use sdc_clients::vminfod::VmObject;
use serde_json::Value;

/// One NIC of a local VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNic {
    /// Its address.
    pub mac: MacAddr,
    /// Is it the VM's primary one?
    pub primary: bool,
}

/// One VM of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalVm {
    /// The VM's uuid.
    pub uuid: String,
    /// The zone's name, when it is not the uuid.
    pub zonename: Option<String>,
    /// The VM's state.
    pub state: String,
    /// `do_not_inventory`: present, and never to be written about.
    pub hidden: bool,
    /// Whose it is.
    pub owner_uuid: Option<String>,
    /// Its NICs.
    pub nics: Vec<LocalNic>,
}

impl LocalVm {
    /// Reads a VM object. The second value says whether all of it could be read.
    pub fn read(object: &VmObject) -> Option<(Self, bool)> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let zonename = text("zonename");
        let uuid = text("uuid").or_else(|| zonename.clone())?;
        let mut whole = true;
        let mut nics = Vec::new();
        match object.get("nics") {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for nic in list {
                    match nic.get("mac").and_then(Value::as_str).map(str::parse) {
                        Some(Ok(mac)) => {
                            nics.push(LocalNic { mac, primary: truthy(nic.get("primary")) })
                        }
                        _ => whole = false,
                    }
                }
            }
            Some(_) => whole = false,
        }
        let vm = Self {
            zonename: zonename.filter(|name| *name != uuid),
            state: text("state").unwrap_or_else(|| "unknown".to_owned()),
            hidden: truthy(object.get("do_not_inventory")),
            owner_uuid: text("owner_uuid"),
            nics,
            uuid,
        };
        Some((vm, whole))
    }

    /// Does this VM have the address?
    pub fn has(&self, mac: MacAddr) -> bool {
        self.nics.iter().any(|nic| nic.mac == mac)
    }
}

fn truthy(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => text == "true",
        _ => false,
    }
}

/// All VMs of the node at one moment, hidden ones included, every state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalView {
    /// By VM uuid.
    pub vms: BTreeMap<String, LocalVm>,
    /// When it was taken, on the agent's clock.
    pub taken: Duration,
    /// Could everything be read?
    pub complete: bool,
    /// VMs that are not here any more and were hidden a short while ago.
    pub lately_hidden: BTreeSet<String>,
    /// What was hidden before is not known (the memory on disk was damaged, a short while ago).
    pub hidden_unknown: bool,
}

impl LocalView {
    /// Reads a whole answer of vminfod.
    pub fn read<'a>(objects: impl IntoIterator<Item = &'a VmObject>, taken: Duration) -> Self {
        let mut view = Self { taken, complete: true, ..Self::default() };
        for object in objects {
            match LocalVm::read(object) {
                Some((vm, whole)) => {
                    view.complete &= whole;
                    view.vms.insert(vm.uuid.clone(), vm);
                }
                None => view.complete = false,
            }
        }
        view
    }

    /// Is there a VM of this uuid, or a zone of this name?
    pub fn has_vm(&self, uuid: &str) -> bool {
        self.vms.contains_key(uuid)
            || self.vms.values().any(|vm| vm.zonename.as_deref() == Some(uuid))
    }

    /// The VMs that have this address (more than one during some migrations).
    pub fn holders(&self, mac: MacAddr) -> impl Iterator<Item = &LocalVm> {
        self.vms.values().filter(move |vm| vm.has(mac))
    }

    /// Every address of every VM, with its VM.
    pub fn macs(&self) -> impl Iterator<Item = (MacAddr, &LocalVm)> {
        self.vms.values().flat_map(|vm| vm.nics.iter().map(move |nic| (nic.mac, vm)))
    }
}

/// What the node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its uuid.
    pub uuid: String,
    /// Its own addresses, physical and virtual.
    pub macs: BTreeSet<MacAddr>,
    /// Those whose link is up.
    pub up: BTreeSet<MacAddr>,
}

impl Identity {
    /// Reads sysinfo: `{"sysinfo": {…}, "age_ms": n}` or the bare object.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn read(answer: &Value) -> Result<Self, String> {
        let sysinfo = answer.get("sysinfo").unwrap_or(answer);
        let uuid = sysinfo
            .get("UUID")
            .and_then(Value::as_str)
            .ok_or_else(|| "sysinfo has no UUID".to_owned())?
            .to_lowercase();
        let mut found = Self { uuid, ..Self::default() };
        for section in ["Network Interfaces", "Virtual Network Interfaces"] {
            let Some(links) = sysinfo.get(section).and_then(Value::as_object) else { continue };
            for link in links.values() {
                let mac = link.get("MAC Address").and_then(Value::as_str).map(str::parse);
                let Some(Ok(mac)) = mac else { continue };
                found.macs.insert(mac);
                if link.get("Link Status").and_then(Value::as_str) == Some("up") {
                    found.up.insert(mac);
                }
            }
        }
        Ok(found)
    }
}

/// The living picture: what the watch stream has told so far.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// The VMs as last told.
    pub view: LocalView,
    /// Is the stream connected and its snapshot read?
    pub synced: bool,
    /// VMs that were hidden, and until when that is remembered if they go.
    hidden: BTreeMap<String, Duration>,
    /// Until when nobody knows what was hidden.
    unknown_until: Duration,
    /// How many VMs the complete views of the last hour showed, for the brake.
    counts: VecDeque<(Duration, usize)>,
    /// The size that the view fell short of by half. Time does not heal that: it stays until
    /// the view has recovered, or the new size was accepted.
    fallen_from: Option<usize>,
}

/// How long a view's size is remembered.
const HOUR: Duration = Duration::from_secs(3600);

impl Inventory {
    /// Puts in place what the last run knew: the size of its view, what was hidden (and until
    /// when), or until when that is not known.
    pub fn recall(
        &mut self,
        vms: Option<usize>,
        hidden: BTreeMap<String, Duration>,
        unknown_until: Duration,
    ) {
        self.counts.extend(vms.map(|count| (Duration::ZERO, count)));
        self.hidden.extend(hidden);
        self.unknown_until = unknown_until;
    }

    /// Takes one VM object as told by an event; gives what was known before.
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

    /// A VM is gone.
    pub fn remove(&mut self, uuid: &str, now: Duration, memory: Duration) -> Option<LocalVm> {
        self.view.taken = now;
        let vm = self.view.vms.remove(uuid)?;
        self.note(&vm, now + memory);
        Some(vm)
    }

    /// Hidden: remembered until then at least. Shown: a new VM here, whatever it was before.
    pub(crate) fn note(&mut self, vm: &LocalVm, until: Duration) {
        if vm.hidden {
            self.hidden.insert(vm.uuid.clone(), until);
        } else {
            self.hidden.remove(&vm.uuid);
        }
    }

    /// Most VMs that any complete view of the last hour showed, or the size that the view has
    /// fallen from since.
    pub fn most_vms(&self, now: Duration) -> Option<usize> {
        let young = self.counts.iter().filter(|(at, _)| now.saturating_sub(*at) < HOUR);
        young.map(|(_, count)| *count).max().max(self.fallen_from)
    }

    /// Puts a whole view in place; gives the uuids that differ, and what they were.
    pub fn replace(&mut self, view: LocalView, memory: Duration) -> Vec<(String, Option<LocalVm>)> {
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
            // One entry per size is enough: the newest, so that it is forgotten last.
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

    /// The view's size is right as it is: nothing that the missing VMs left is undecided, or the
    /// operator said so.
    pub fn accept_size(&mut self, now: Duration) {
        self.fallen_from = None;
        self.counts.clear();
        self.counts.push_back((now, self.view.vms.len()));
    }

    /// Was this VM hidden within the memory's length?
    pub fn recently_hidden(&self, uuid: &str, now: Duration) -> bool {
        self.hidden.get(uuid).is_some_and(|until| now < *until)
    }

    /// Brings what the view says of lately hidden VMs up to the moment.
    pub fn refresh(&mut self, now: Duration) {
        let mut view = std::mem::take(&mut self.view);
        self.mark(&mut view, now);
        self.view = view;
    }

    /// Notes in a view what is remembered of hidden VMs.
    pub fn mark(&self, view: &mut LocalView, now: Duration) {
        let gone = self.hidden.iter().filter(|(uuid, _)| !view.vms.contains_key(*uuid));
        view.lately_hidden =
            gone.filter(|(_, until)| now < **until).map(|(uuid, _)| uuid.clone()).collect();
        view.hidden_unknown = now < self.unknown_until;
    }

    /// What is hidden or was a short while ago, and until when that is remembered.
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
    use serde_json::json;

    fn object(value: Value) -> VmObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_vm_is_read_with_its_nics_and_what_is_odd_makes_the_view_incomplete() {
        let good = object(json!({"zonename": "z", "uuid": "u", "state": "running",
            "nics": [{"mac": "f2:dd:44:95:76:d8", "primary": true}]}));
        let (vm, whole) = LocalVm::read(&good).unwrap();
        assert!(whole && vm.nics[0].primary && vm.zonename.as_deref() == Some("z"));
        let odd = object(json!({"uuid": "v", "nics": [{"mac": "nonsense"}]}));
        let view = LocalView::read([&good, &odd], Duration::ZERO);
        assert!(!view.complete);
        assert!(view.has_vm("u") && view.has_vm("z") && view.has_vm("v") && !view.has_vm("w"));
        assert!(!LocalView::read([&VmObject::new()], Duration::ZERO).complete);
    }

    #[test]
    fn identity_is_read_in_both_shapes() {
        let bare = json!({"UUID": "A829C448-085b-4138-adbc-583ac96881c3",
            "Network Interfaces": {"ixgbe0": {"MAC Address": "0c:c4:7a:1:2:3", "Link Status": "up"}}});
        let wrapped = json!({"sysinfo": bare, "age_ms": 3});
        let identity = Identity::read(&bare).unwrap();
        assert_eq!(identity, Identity::read(&wrapped).unwrap());
        assert_eq!(identity.uuid, "a829c448-085b-4138-adbc-583ac96881c3");
        assert_eq!(identity.up.len(), 1);
        assert!(Identity::read(&json!({})).is_err());
    }

    #[test]
    fn hidden_vms_are_remembered_after_their_delete_and_shown_ones_are_not() {
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
    fn a_size_that_was_lost_is_not_forgotten_by_waiting() {
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
        inventory.recall(Some(40), BTreeMap::new(), Duration::ZERO);
        assert_eq!(inventory.most_vms(s(10)), Some(40), "what the last run saw");
    }
}
