// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records of the lab's data centre: one per NIC of the node, and wrong ones.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use sdc_clients::MacAddr;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::error::LabError;
use super::world::World;
use mocks::napi::NewNic;

/// NICs whose VM is gone.
pub const LEAKED: usize = 3;
/// NICs without `cn_uuid`.
pub const BARE: usize = 4;
/// NICs that stayed in `provisioning`.
pub const STUCK: usize = 2;

const AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What was put in wrong, so that the end can be compared with it.
#[derive(Clone, Debug, Default)]
pub struct Wrongs {
    /// Leaked NICs: to be reaped.
    pub leaked: Vec<MacAddr>,
    /// NICs of live VMs without `cn_uuid`: to be backfilled.
    pub bare: Vec<MacAddr>,
    /// NICs of running VMs in `provisioning`: to be `running`.
    pub stuck: Vec<MacAddr>,
    /// Every NIC of a live VM: never to be deleted.
    pub live: BTreeSet<MacAddr>,
}

/// Fills both mocks for the VMs that the node has now.
pub fn fill(world: &World, vms: &[VmObject]) -> Result<Wrongs, LabError> {
    let cn = world.node().cn_uuid().to_owned();
    let store = world.napi.store();
    world.vmapi.store().seed_from_vms(vms, &cn);
    world.centre().know_origins(vms);
    // One that VMAPI has by an older name.
    let is_named = |vm: &&VmObject| vm.alias().is_some() && !vm.is_hidden();
    if let Some(mut vm) = vms.iter().find(is_named).cloned() {
        vm.insert("alias".to_owned(), json!("old-name"));
        world.vmapi.store().seed_from_vms(&[vm], &cn);
    }
    let mut wrongs = Wrongs::default();

    for mac in store.seed_from_vms(vms, &cn).map_err(LabError::Seed)? {
        wrongs.live.insert(parse(&mac)?);
    }
    for n in 0..LEAKED {
        let vm = Uuid::new_v4().to_string();
        world.vmapi.store().set(&vm, "destroyed", Some(&cn));
        let nic = NewNic::zone(&format!("90:b8:d0:fe:ed:{n:02x}"), &vm, &cn).aged(AGE);
        wrongs.leaked.push(parse(&store.add_nic(nic).map_err(LabError::Seed)?)?);
    }

    // The wrong ones are chosen among NICs of VMs in the right state, each at most once.
    let mut running = macs(vms, "running").into_iter();
    wrongs.stuck = running.by_ref().take(STUCK).collect();
    let mut rest: Vec<MacAddr> = running.collect();
    rest.extend(macs(vms, "stopped"));
    wrongs.bare = rest.into_iter().take(BARE).collect();
    if wrongs.stuck.len() < STUCK || wrongs.bare.len() < BARE {
        return Err(LabError::Cast("further NICs to spoil"));
    }
    for mac in &wrongs.stuck {
        let change = Map::from_iter([("state".to_owned(), json!("provisioning"))]);
        store.change_nic(&mac.to_string(), &change).map_err(LabError::Seed)?;
        store.backdate(&mac.to_string(), AGE);
    }
    for (mac, vm) in owners(vms).into_iter().filter(|(mac, _)| wrongs.bare.contains(mac)) {
        store.remove(&mac.to_string());
        let nic = NewNic::zone(&mac.to_string(), vm.uuid().unwrap_or_default(), &cn)
            .without("cn_uuid")
            .with("owner_uuid", json!(vm.owner_uuid()))
            .with("state", json!(vm.state()))
            .aged(AGE);
        store.add_nic(nic).map_err(LabError::Seed)?;
    }
    if let Some(mac) = admin_mac(world) {
        store.add_admin_nic(&mac, &cn, true).map_err(LabError::Seed)?;
    }
    Ok(wrongs)
}

/// Fills both mocks for the VMs of another node, all right.
pub fn fill_right(world: &World, vms: &[VmObject]) -> Result<(), LabError> {
    let cn = world.node().cn_uuid();
    world.vmapi.store().seed_from_vms(vms, cn);
    world.centre().know_origins(vms);
    world.napi.store().seed_from_vms(vms, cn).map_err(LabError::Seed)?;
    if let Some(mac) = admin_mac(world) {
        world.napi.store().add_admin_nic(&mac, cn, true).map_err(LabError::Seed)?;
    }
    Ok(())
}

/// The MACs of VMs in this state that the inventory shows, in the node's order.
pub fn macs(vms: &[VmObject], state: &str) -> Vec<MacAddr> {
    let shown = vms.iter().filter(|vm| vm.state() == Some(state) && !vm.is_hidden());
    shown.flat_map(|vm| vm.macs()).collect()
}

fn owners(vms: &[VmObject]) -> Vec<(MacAddr, &VmObject)> {
    vms.iter().flat_map(|vm| vm.macs().into_iter().map(move |mac| (mac, vm))).collect()
}

fn parse(mac: &str) -> Result<MacAddr, LabError> {
    MacAddr::from_str(mac).map_err(|err| LabError::Seed(format!("{mac}: {err}")))
}

fn admin_mac(world: &World) -> Option<String> {
    let text = std::fs::read_to_string(world.node().path("/tmp/.sysinfo.json")).ok()?;
    let sysinfo: Value = serde_json::from_str(&text).ok()?;
    let interfaces = sysinfo.get("Network Interfaces")?.as_object()?;
    let (_name, first) = interfaces.iter().next()?;
    Some(first.get("MAC Address")?.as_str()?.to_owned())
}
