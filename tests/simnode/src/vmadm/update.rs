// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vmadm update`: what a payload changes of a VM, or why it changes nothing.

use serde_json::{Value, json};

use super::docker::{self, Has};
use super::forms::{self, objects, objects_mut};
use super::memory::{self, Limits};
use super::surroundings::Surroundings;
use super::table::Action;
use super::{conflicts, create, defaults, disks, judge, nics, routes, storage};
use crate::payload::{self, Payload};
use crate::refusal::Refusal;

/// The VM that is changed.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    pub uuid: String,
    pub brand: String,
    pub pool: String,
    /// Whether it is stopped.
    pub rests: bool,
    /// Its state and its zone's, as answers name them.
    pub state: String,
    pub limits: Limits,
    pub nics: Vec<Payload>,
    pub disks: Vec<Payload>,
    pub routes: Payload,
    /// `internal_metadata_namespaces`
    pub namespaces: Vec<String>,
    /// `init_name` is set.
    pub has_init: bool,
    /// `restart_init` is set.
    pub has_restart: bool,
    /// It has an id of docker's.
    pub has_docker_id: bool,
    /// `disk_driver`
    pub disk_driver: Option<String>,
    /// `nic_driver`
    pub nic_driver: Option<String>,
}

/// Returns the changes as vmadm goes on with them: new NICs are in `nics`, disks in `disks`, and so on.
pub fn update(
    vm: &Subject,
    given: &Payload,
    around: &mut Surroundings,
) -> Result<Payload, Refusal> {
    let brand = vm.brand.as_str();
    let mut changes = given.clone();
    create::deprecated(&mut changes, brand);
    forms::numbers(&mut changes)?;
    forms::lists(&mut changes);
    let has = Has {
        namespaces: &vm.namespaces,
        init: vm.has_init,
        restart: vm.has_restart,
        id: vm.has_docker_id,
    };
    docker::complete(&mut changes, brand, &vm.uuid, "set_internal_metadata", has, around);
    memory::follow(&mut changes, brand, &vm.limits)?;
    defaults::least_shares(&mut changes);
    let verdict = judge::judge(Action::Update, brand, &mut changes, around)?;
    verdict.check()?;
    judge::drop_untaken(Action::Update, brand, &mut changes);
    forms::booleans(&mut changes);
    if brand == "bhyve" {
        defaults::consoles(&mut changes);
    }
    let sourceless = |fs: &&Payload| payload::text(fs, "source").is_none();
    if objects(&changes, "add_filesystems").iter().any(sourceless) {
        return Err(Refusal::Dies("a file system has no source"));
    }
    devices(vm, &mut changes, around)?;
    networks(vm, &mut changes, around)?;
    storage::check(&mut changes)?;
    for list in ["nics", "disks", "filesystems", "pci_devices"] {
        if let Some(added) = changes.shift_remove(&format!("add_{list}")) {
            match changes.get_mut(list).and_then(Value::as_array_mut) {
                Some(there) => there.extend(added.as_array().cloned().unwrap_or_default()),
                None => drop(changes.insert(list.to_string(), added)),
            }
        }
    }
    Ok(changes)
}

fn devices(vm: &Subject, changes: &mut Payload, around: &mut Surroundings) -> Result<(), Refusal> {
    let stopped = |what: &str, lists: &[&str], changes: &Payload| {
        let is_given = lists.iter().any(|list| changes.contains_key(*list));
        match is_given && !vm.rests {
            true => Refusal::rule(format!(
                "updates to {what} are only allowed when state is \"stopped\", currently: {}",
                vm.state
            )),
            false => Ok(()),
        }
    };
    stopped("disks", &["add_disks", "remove_disks"], changes)?;
    let lists = ["pci_devices", "add_pci_devices", "update_pci_devices", "remove_pci_devices"];
    stopped("pci_devices", &lists, changes)?;
    let of_first = || vm.disks.iter().find_map(|disk| payload::text(disk, "model"));
    let driver = payload::text(changes, "disk_driver").map(str::to_string);
    let driver = driver.as_deref().or(vm.disk_driver.as_deref()).or_else(of_first);
    let (brand, uuid, pool) = (vm.brand.as_str(), vm.uuid.as_str(), vm.pool.as_str());
    let of = disks::Of { brand, uuid, pool, driver, old: &vm.disks, is_create: false };
    disks::change(&objects(changes, "update_disks"), &of, vm.rests, &vm.state)?;
    disks::complete(&mut objects_mut(changes, "add_disks"), &of, around)
}

fn networks(vm: &Subject, changes: &mut Payload, around: &mut Surroundings) -> Result<(), Refusal> {
    let of_first = || vm.nics.iter().find_map(|nic| payload::text(nic, "model"));
    let driver = payload::text(changes, "nic_driver").map(str::to_string);
    let driver = driver.as_deref().or(vm.nic_driver.as_deref()).or_else(of_first);
    let of = nics::Of { brand: &vm.brand, driver, old: &vm.nics };
    nics::change(&mut objects_mut(changes, "update_nics"), &of, around)?;
    nics::complete(&mut objects_mut(changes, "add_nics"), &of, around)?;
    let (new, changed) = (objects(changes, "add_nics"), objects(changes, "update_nics"));
    if new.iter().chain(&changed).filter(|nic| nic.contains_key("primary")).count() > 1 {
        return Refusal::rule("payload specifies more than 1 primary NIC");
    }
    conflicts::check(&new, &changed, changes.get("vnc_port"), around)?;
    let removed = changes.get("remove_nics").and_then(Value::as_array);
    let removed: Vec<&Value> = removed.into_iter().flatten().collect();
    let stays = |nic: &&Payload| {
        let is_it = |mac: &&&Value| {
            mac.as_str().and_then(nics::mac) == payload::text(nic, "mac").and_then(nics::mac)
        };
        !removed.iter().any(|mac| is_it(&mac))
    };
    let mut after: Vec<Payload> = vm.nics.iter().filter(stays).cloned().collect();
    for nic in &mut after {
        if let Some(change) =
            nics::find(&changed.iter().map(|nic| (*nic).clone()).collect::<Vec<_>>(), nic)
        {
            nic.extend(change.clone());
        }
    }
    after.extend(new.into_iter().cloned());
    routes::check(Some(&routes_after(vm, changes)), &after)
}

/// The routes that the VM has with the changes.
fn routes_after(vm: &Subject, changes: &Payload) -> Payload {
    let mut routes = vm.routes.clone();
    routes
        .extend(changes.get("set_routes").and_then(Value::as_object).cloned().unwrap_or_default());
    let removed = changes.get("remove_routes").and_then(Value::as_array);
    let removed: Vec<String> = removed.into_iter().flatten().map(forms::printed).collect();
    routes.retain(|destination, _| !removed.contains(destination));
    routes
}

/// A map of the VM with what a payload sets in it and removes from it.
pub fn merged(map: &Payload, name: &str, changes: &Payload) -> Option<Payload> {
    let set = changes.get(&format!("set_{name}")).and_then(Value::as_object);
    let removed = changes.get(&format!("remove_{name}")).and_then(Value::as_array);
    if set.is_none() && removed.is_none() {
        return None;
    }
    let mut after = map.clone();
    after.extend(set.cloned().unwrap_or_default());
    let removed: Vec<String> = removed.into_iter().flatten().map(forms::printed).collect();
    after.retain(|key, _| !removed.contains(key));
    Some(after)
}

/// The object in which a vm's metadata file holds both maps.
pub fn metadata(internal: &Payload, customer: &Payload) -> Value {
    json!({ "internal_metadata": internal, "customer_metadata": customer })
}
