// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vmadm create`: the VM that a payload makes, or why it makes none.

use serde_json::{Value, json};

use super::docker::{self, Has};
use super::forms::{self, objects_mut};
use super::surroundings::Surroundings;
use super::table::Action;
use super::{conflicts, defaults, disks, judge, nics, routes, storage};
use crate::payload::{self, BRANDS, Payload};
use crate::refusal::Refusal;

/// Returns the payload as vmadm goes on with it: without what the brand does not take, with what is added and
/// derived.
pub fn create(given: &Payload, around: &mut Surroundings) -> Result<Payload, Refusal> {
    made(Action::Create, given, around)
}

/// The VM that a payload of this action makes.
pub(crate) fn made(
    action: Action,
    given: &Payload,
    around: &mut Surroundings,
) -> Result<Payload, Refusal> {
    let mut vm = given.clone();
    vm.entry("brand").or_insert(json!("joyent"));
    let brand = match payload::text(&vm, "brand") {
        Some(brand) if BRANDS.contains(&brand) => brand.to_string(),
        _ => return Err(Refusal::Dies("there is no such brand")),
    };
    if vm.contains_key("create_only") {
        return Err(Refusal::Dies("create_only"));
    }
    let uuid = name(&mut vm, around)?;
    deprecated(&mut vm, &brand);
    forms::numbers(&mut vm)?;
    forms::lists(&mut vm);
    let has = Has { restart: vm.contains_key("restart_init"), ..Has::default() };
    docker::complete(&mut vm, &brand, &uuid, "internal_metadata", has, around);
    let own_pool = given.contains_key("zpool");
    defaults::complete(&mut vm, &brand)?;
    let verdict = judge::judge(action, &brand, &mut vm, around)?;
    verdict.check()?;
    judge::drop_untaken(action, &brand, &mut vm);
    if let Some(pool) = vm.get("zfs_storage_pool_name").filter(|_| !own_pool).cloned() {
        vm.insert("zpool".to_string(), pool);
    }
    forms::booleans(&mut vm);
    if brand == "kvm" && !vm.contains_key("image_uuid") {
        vm.retain(|name, _| !name.starts_with("spice_"));
    }
    filesystems(&vm)?;
    second_pass(&mut vm, &brand, &uuid, around)?;
    storage::check(&mut vm)?;
    if brand == "bhyve" {
        defaults::consoles(&mut vm);
    }
    Ok(vm)
}

/// The UUID of the VM, which is its zone's name.
fn name(vm: &mut Payload, around: &mut Surroundings) -> Result<String, Refusal> {
    let uuid = match vm.get("uuid") {
        None => around.uuid(),
        Some(Value::String(uuid)) if !uuid.is_empty() => uuid.clone(),
        Some(_) => return Err(Refusal::Dies("the VM has no uuid")),
    };
    if around.vms.iter().any(|other| payload::text(other, "uuid") == Some(&uuid)) {
        return Refusal::rule(format!("VM with UUID {uuid} already exists"));
    }
    if vm.get("zonename").and_then(Value::as_str).is_some_and(|name| name != uuid) {
        return Err(Refusal::Dies("the zone's name is not the uuid"));
    }
    vm.insert("uuid".to_string(), json!(uuid));
    vm.entry("zonename").or_insert(json!(uuid));
    Ok(uuid)
}

/// Names of images that older payloads have.
pub(crate) fn deprecated(vm: &mut Payload, brand: &str) {
    if !payload::is_hvm(brand)
        && let Some(image) =
            vm.get("dataset_uuid").filter(|_| !vm.contains_key("image_uuid")).cloned()
    {
        vm.shift_remove("dataset_uuid");
        vm.insert("image_uuid".to_string(), image);
    }
    if let Some(image) = vm.get("zone_dataset_uuid").cloned() {
        vm.entry("image_uuid").or_insert(image);
    }
}

fn filesystems(vm: &Payload) -> Result<(), Refusal> {
    let sourceless = |fs: &&Payload| payload::text(fs, "source").is_none();
    match forms::objects(vm, "filesystems").iter().any(sourceless) {
        true => Err(Refusal::Dies("a file system has no source")),
        false => Ok(()),
    }
}

fn second_pass(
    vm: &mut Payload,
    brand: &str,
    uuid: &str,
    around: &mut Surroundings,
) -> Result<(), Refusal> {
    let driver = |vm: &Payload, name: &str| payload::text(vm, name).map(str::to_string);
    let (nic_driver, disk_driver) = (driver(vm, "nic_driver"), driver(vm, "disk_driver"));
    let pool = payload::text(vm, "zpool").unwrap_or("zones").to_string();
    let of = disks::Of {
        brand,
        uuid,
        pool: &pool,
        driver: disk_driver.as_deref(),
        old: &[],
        is_create: true,
    };
    disks::complete(&mut objects_mut(vm, "disks"), &of, around)?;
    if brand == "bhyve" {
        disks::cloudinit(vm, &of, around);
    }
    let of = nics::Of { brand, driver: nic_driver.as_deref(), old: &[] };
    let mut new = objects_mut(vm, "nics");
    nics::complete(&mut new, &of, around)?;
    if let Some(first) =
        new.first().map(|_| 0).filter(|_| !new.iter().any(|nic| nic.contains_key("primary")))
    {
        new[first].insert("primary".to_string(), json!(true));
    }
    let made: Vec<Payload> = forms::objects(vm, "nics").into_iter().cloned().collect();
    routes::check(vm.get("routes").and_then(Value::as_object), &made)?;
    let new: Vec<&Payload> = made.iter().collect();
    conflicts::check(&new, &[], vm.get("vnc_port"), around)
}
