// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMs and NICs of the node at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdc_clients::vminfod::{Incomplete, View, VmFields as _, VmObject};
use sdc_clients::{MacAddr, uuid_value};

/// One NIC of a local VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNic {
    pub mac: MacAddr,
    pub primary: bool,
}

/// The states of a VM that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmState {
    Running,
    Stopped,
    Other(String),
}

impl From<&str> for VmState {
    fn from(text: &str) -> Self {
        match text {
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl std::fmt::Display for VmState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Other(text) => text,
        })
    }
}

/// One VM of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalVm {
    pub uuid: String,
    /// The zone's name, when it is not the uuid.
    pub zonename: Option<String>,
    pub state: VmState,
    /// `do_not_inventory`: present, but nothing is written about it.
    pub hidden: bool,
    pub owner_uuid: Option<String>,
    pub nics: Vec<LocalNic>,
}

impl LocalVm {
    /// Reads a VM object. The second value is false if its NICs are not known: an object without
    /// `nics` does not say that there are none.
    pub fn read(object: &VmObject) -> Option<(Self, bool)> {
        let zonename = object.zonename().map(uuid_value);
        let uuid = object.uuid().map(uuid_value).or_else(|| zonename.clone())?;
        let mut whole = object.nics().is_some();
        let nics = object.nics().into_iter().flatten().filter_map(|nic| {
            let mac = nic.mac();
            whole &= mac.is_some();
            Some(LocalNic { mac: mac?, primary: nic.is_primary() })
        });
        let nics = nics.collect();
        let vm = Self {
            zonename: zonename.filter(|name| *name != uuid),
            state: object.state().unwrap_or("unknown").into(),
            hidden: object.is_hidden(),
            owner_uuid: object.owner_uuid().map(uuid_value),
            nics,
            uuid,
        };
        Some((vm, whole))
    }

    /// A VM of which only the MACs are remembered, and nothing may be written.
    pub fn remembered(uuid: String, macs: impl IntoIterator<Item = MacAddr>) -> Self {
        let nics = macs.into_iter().map(|mac| LocalNic { mac, primary: false }).collect();
        let (state, hidden) = (VmState::Other("remembered".to_owned()), false);
        Self { uuid, zonename: None, state, hidden, owner_uuid: None, nics }
    }

    /// Returns true if this is the VM of that uuid or zone name.
    pub fn is(&self, name: &str) -> bool {
        self.uuid == name || self.zonename.as_deref() == Some(name)
    }

    /// Returns true if the VM has this MAC.
    pub fn has(&self, mac: MacAddr) -> bool {
        self.nics.iter().any(|nic| nic.mac == mac)
    }
}

/// All VMs of the node at one moment, hidden ones included, every state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalView {
    pub vms: BTreeMap<String, LocalVm>,
    /// When it was taken, on the agent's clock.
    pub taken: Duration,
    /// True if each zone of the node is a VM here or named in `unread`.
    pub listed: bool,
    /// Zones whose NICs nobody knows: never read, or shown without readable NICs. By name.
    pub unread: BTreeSet<String>,
    /// Those of them of which only an XML is left: they do not run, so that no NIC of another VM is in them.
    pub strays: BTreeSet<String>,
    /// Zones that are shown as they were read earlier. By name.
    pub older: BTreeSet<String>,
    /// VMs that are gone and were hidden a short while ago.
    pub lately_hidden: BTreeSet<String>,
    /// True while it is unknown what was hidden (the state file was damaged a short while ago).
    pub hidden_unknown: bool,
}

impl LocalView {
    /// Reads a full listing of vminfod.
    pub fn read<'a>(objects: impl IntoIterator<Item = &'a VmObject>, taken: Duration) -> Self {
        let mut view = Self { taken, listed: true, ..Self::default() };
        for object in objects {
            match LocalVm::read(object) {
                Some((vm, whole)) => {
                    if !whole {
                        view.unread.insert(vm.uuid.clone());
                    }
                    view.vms.insert(vm.uuid.clone(), vm);
                }
                None => view.listed = false,
            }
        }
        view
    }

    /// Reads a full listing and what it says that it lacks. A zone that is named and shown is as it
    /// was last read.
    pub fn of(shown: &View, taken: Duration) -> Self {
        let mut view = Self::read(&shown.vms, taken);
        match &shown.incomplete {
            Incomplete::Nothing => {}
            Incomplete::Zones(names) => {
                let names = names.iter().map(|name| uuid_value(name));
                let (shown, absent): (BTreeSet<_>, BTreeSet<_>) =
                    names.partition(|name| view.has_vm(name));
                view.unread.extend(absent);
                view.older.extend(shown);
            }
            Incomplete::Everything => view.listed = false,
        }
        view
    }

    /// Returns true if each zone of the node that may run is here, and its NICs are known.
    pub fn is_complete(&self) -> bool {
        self.listed && self.unknown().next().is_none()
    }

    /// Returns the zones that may have any NIC.
    pub fn unknown(&self) -> impl Iterator<Item = &String> {
        self.unread.difference(&self.strays)
    }

    /// Returns true if a VM has this uuid or a zone this name.
    pub fn has_vm(&self, uuid: &str) -> bool {
        self.vm(uuid).is_some()
    }

    /// Returns true if a VM has this uuid or a zone this name, and is shown as it is now.
    pub fn confirms(&self, uuid: &str) -> bool {
        self.vm(uuid).is_some_and(|vm| !self.older.iter().any(|name| vm.is(name)))
    }

    fn vm(&self, uuid: &str) -> Option<&LocalVm> {
        let uuid = uuid_value(uuid);
        self.vms.get(&uuid).or_else(|| self.vms.values().find(|vm| vm.is(&uuid)))
    }

    /// Returns the VMs that have this MAC (more than one during some migrations).
    pub fn holders(&self, mac: MacAddr) -> impl Iterator<Item = &LocalVm> {
        self.vms.values().filter(move |vm| vm.has(mac))
    }

    /// Returns every MAC with its VM.
    pub fn macs(&self) -> impl Iterator<Item = (MacAddr, &LocalVm)> {
        self.vms.values().flat_map(|vm| vm.nics.iter().map(move |nic| (nic.mac, vm)))
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
    fn reads_nics_and_marks_unreadable_ones_incomplete() {
        let good = object(json!({"zonename": "z", "uuid": "u", "state": "running",
            "nics": [{"mac": "f2:dd:44:95:76:d8", "primary": true}]}));
        let (vm, whole) = LocalVm::read(&good).unwrap();
        assert!(whole && vm.nics[0].primary && vm.zonename.as_deref() == Some("z"));
        let odd = object(json!({"uuid": "v", "nics": [{"mac": "nonsense"}]}));
        let view = LocalView::read([&good, &odd], Duration::ZERO);
        assert!(view.listed && !view.is_complete());
        assert!(view.has_vm("u") && view.has_vm("z") && view.has_vm("v") && !view.has_vm("w"));
        assert!(!LocalView::read([&VmObject::new()], Duration::ZERO).listed);
        // No list of NICs is not an empty one.
        for nics in [json!(null), json!("none"), json!({})] {
            let bare = object(json!({"uuid": "v", "nics": nics}));
            assert_eq!(LocalView::read([&bare], Duration::ZERO).unread, ["v".to_owned()].into());
        }
        let bare = object(json!({"uuid": "v"}));
        assert!(!LocalView::read([&bare], Duration::ZERO).is_complete());
    }

    #[test] // F70
    fn named_zones_are_unread_only_if_they_are_not_shown() {
        let good = object(json!({"zonename": "z", "uuid": "u", "nics": []}));
        let of = |incomplete| {
            LocalView::of(&View { vms: vec![good.clone()], incomplete }, Duration::ZERO)
        };
        let zones =
            |names: &[&str]| Incomplete::Zones(names.iter().map(|n| n.to_string()).collect());
        assert!(of(Incomplete::Nothing).is_complete());
        assert!(of(zones(&["z", "u"])).is_complete(), "shown as last read");
        // The brake does not count it as here.
        let counted = |view: LocalView| (view.has_vm("u"), view.confirms("u"), view.confirms("z"));
        assert_eq!(counted(of(Incomplete::Nothing)), (true, true, true));
        assert_eq!(counted(of(zones(&["z"]))), (true, false, false));
        assert_eq!(of(zones(&["z", "y"])).unread, ["y".to_owned()].into());
        assert!(!of(Incomplete::Everything).listed);
    }
}
