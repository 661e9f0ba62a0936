// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every recorded object as the source of a migration: the simulated vmadm, which the recordings of the real one judge,
//! takes the payload of its target, and what is brought over to it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use migration_core::bring_over::bring_over;
use migration_core::carried::{Brands, entries, text};
use migration_core::target_payload::{made_of, target_payload};
use serde_json::{Map, Value};
use simnode::vmadm::memory::Limits;
use simnode::vmadm::update::Subject;
use simnode::vmadm::{Image, Surroundings, Tag};

type Object = Map<String, Value>;

/// The objects of the recorded nodes that are ordinary ones, of the brands that vmadm creates.
fn objects() -> Vec<Object> {
    let dir = recordings::unpacked().unwrap();
    let nodes = ["basic", "brands", "disks", "nics", "mixed40", "mixed60", "states", "deep"];
    let read = |node| {
        let file = dir.path().join(format!("cn-{node}/expected/vms.json"));
        serde_json::from_slice::<Vec<Object>>(&std::fs::read(file).unwrap()).unwrap()
    };
    let mut all: Vec<Object> = nodes.into_iter().flat_map(read).collect();
    all.retain(|vm| text(vm, "brand").is_some_and(|brand| Brands::ALL.has(brand)));
    all
}

/// A node that has what a VM needs of one: its images, its NIC tags, its pools.
fn around(vm: &Object) -> Surroundings {
    let mut images = BTreeMap::new();
    let kind = if text(vm, "brand") == Some("lx") { "lx-dataset" } else { "zone-dataset" };
    if let Some(image) = text(vm, "image_uuid") {
        images.insert(image.to_owned(), Image { kind: kind.into(), ..Image::default() });
    }
    for disk in entries(vm, "disks") {
        if let Some(image) = text(disk, "image_uuid") {
            let size = disk.get("image_size").and_then(Value::as_u64);
            images
                .insert(image.to_owned(), Image { kind: "zvol".into(), size, ..Image::default() });
        }
    }
    let nics = entries(vm, "nics").into_iter();
    let tags = nics.filter_map(|nic| text(nic, "nic_tag")?.split('/').next());
    Surroundings {
        pools: vec!["zones".into(), "tank".into()],
        images,
        tags: tags.map(|tag| (tag.to_owned(), Tag { mtu: None })).collect(),
        vms: Vec::new(),
        reserves: |bytes| bytes,
        new_uuid: Box::new(|| "a5a5a5a5-0000-4000-8000-000000000001".to_owned()),
    }
}

#[test] // M75, M76
fn every_payload_of_a_recorded_object_is_taken_by_vmadm() {
    let (mut refused, mut taken) = (Vec::new(), Vec::new());
    let (all, mut made) = (objects(), 0);
    for vm in &all {
        let name = text(vm, "uuid").unwrap_or_default();
        let (payload, unfit) = made_of(vm);
        made += usize::from(unfit.is_empty());
        match (simnode::vmadm::create::create(&payload, &mut around(vm)), unfit.is_empty()) {
            (Ok(_), true) | (Err(_), false) => {}
            (Err(why), true) => refused.push(format!("{name}: {why}")),
            // A VM that could move is refused at begin.
            (Ok(_), false) => taken.push(format!("{name}: {unfit:?}")),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(taken.is_empty(), "{taken:#?}");
    assert_eq!((all.len(), made), (290, 199));
}

/// A stopped VM as `vmadm update` finds it.
fn subject(vm: &Object) -> Subject {
    let number = |key: &str| vm.get(key).and_then(Value::as_u64);
    let word = |key: &str| text(vm, key).unwrap_or_default().to_owned();
    Subject {
        uuid: word("uuid"),
        brand: word("brand"),
        pool: "zones".into(),
        rests: true,
        state: "stopped (installed)".into(),
        limits: Limits {
            ram: number("ram"),
            physical: number("max_physical_memory"),
            locked: number("max_locked_memory"),
            swap: number("max_swap"),
            tmpfs: number("tmpfs"),
        },
        nics: entries(vm, "nics").into_iter().cloned().collect(),
        disks: entries(vm, "disks").into_iter().cloned().collect(),
        disk_driver: text(vm, "disk_driver").map(str::to_owned),
        nic_driver: text(vm, "nic_driver").map(str::to_owned),
        ..Subject::default()
    }
}

#[test] // M77
fn what_is_brought_over_between_recorded_objects_is_taken_by_vmadm() {
    let all = objects();
    let fit = all.iter().filter(|vm| target_payload(vm).is_ok());
    let mut before: BTreeMap<String, &Object> = BTreeMap::new();
    let (mut refused, mut updates) = (Vec::new(), 0);
    for vm in fit {
        let brand = text(vm, "brand").unwrap_or_default();
        // The VM has all the settings of the one before it, as if somebody had changed every one of them.
        let Some(mut there) = before.insert(brand.to_owned(), vm).cloned() else { continue };
        for key in ["uuid", "zonename", "image_uuid"] {
            there.shift_remove(key);
            there.extend(vm.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        let mut has = subject(&there);
        for update in bring_over(vm, &there) {
            updates += 1;
            if let Err(why) = simnode::vmadm::update::update(&has, &update, &mut around(vm)) {
                refused.push(format!("{}: {why}: {update:?}", has.uuid));
            }
            let gone = update.get("remove_nics").and_then(Value::as_array).cloned();
            let gone = gone.unwrap_or_default();
            has.nics.retain(|nic| nic.get("mac").is_none_or(|mac| !gone.contains(mac)));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(updates > 190, "{updates}");
}
