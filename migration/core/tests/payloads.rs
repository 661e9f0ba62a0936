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

/// The objects that have no payload, by the beginnings of their uuids, under that of vmadm's refusal.
const REFUSED: [(&str, &str); 8] = [
    // No image: vmadm makes zones of images alone.
    (
        "Missing required properties: image_uuid",
        "001a396b 0589f731 07751871 0e205c7a 13a3a60b 16c592d0 1b146ab1 1bafcc6b 1f3a4805 21985494 \
         2c1702c2 2e399be0 3011ce64 34f6d8bd 3a87d411 3b68d7ac 3e7a6db1 3f959db3 481cf3fa 4fa993c3 \
         5302147c 5efe1ba5 630da5de 7197a188 7e113148 7eaf1a6a 8261d8d6 835ab16c 83cd351c 875a2937 \
         8ebff0a3 8ef62866 93ebc6da 9458c47c 9c069231 a635392e a725d04d a73a9923 a8e99057 ad5af777 \
         b9bb2f66 bb638151 bc319ebc be5640a0 cc9b823c cfb60425 d7c44e90 dc533a46 e29ec77e e3d1311c \
         e948f12d ef63ae34 f015c3e6 f694d77d",
    ),
    // Its pool is none of the node's; it lacks an image, too.
    ("Invalid value(s) for: zpool", "009d2822"),
    // An address of VRRP that no other NIC has.
    (
        "vrrp_primary_ip must belong to another NIC of the VM",
        "11de4285 2e2aa30f 432e9da7 794db875 7fe53f27 a94f453f aec4a4b9 c74e1457 d1a091ef ea848343 \
         eb582d97 f4b1bba8",
    ),
    // No NIC but those of VRRP.
    ("VM cannot contain only VRRP nics", "4d7f6a90 613a6010 7ec34757 820a6140 98fbc1b8 e492c622"),
    // Disks without a model. The guest sees the model as a device, and nothing says which one it was: none is
    // made up. With one these six would be taken, which is the sum of 205 that the real vmadm takes.
    ("missing .model option for disk", "164a3b07 2c263a07 2ffab68e 812c99cc da261aa4 e3b52e56"),
    // Disks without size and image: volumes of others, devices, files.
    (
        "Missing required properties: disks.",
        "0e95f9a3 25f823ea 7f568178 cabf101a cf7bbb8d d251a2b3",
    ),
    // CD-ROMs of a model that the brand does not have.
    (
        r#""ide" is not a valid disk model for bhyve brand"#,
        "270d2c0f 71565ea1 820da0a3 da0fbc0f fbfd4a3e",
    ),
    // Twelve disks without slot.
    ("more than 8 disks of a kind", "ef8b1263"),
];

#[test] // M76
fn each_object_without_payload_is_refused_for_a_known_reason() {
    let mut refused: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut with_models = 0;
    for vm in &objects() {
        let (mut payload, _) = made_of(vm);
        if let Err(why) = simnode::vmadm::create::create(&payload, &mut around(vm)) {
            let why = why.to_string();
            let known = REFUSED.iter().find(|(begins, _)| why.starts_with(begins));
            let (begins, _) = known.unwrap_or_else(|| panic!("{:?}: {why}", text(vm, "uuid")));
            let uuid = text(vm, "uuid").unwrap().split('-').next().unwrap().to_owned();
            refused.entry(begins).or_default().push(uuid);
        }
        for disk in payload.get_mut("disks").and_then(Value::as_array_mut).into_iter().flatten() {
            disk.as_object_mut().unwrap().entry("model").or_insert_with(|| "virtio".into());
        }
        let made = simnode::vmadm::create::create(&payload, &mut around(vm));
        with_models += usize::from(made.is_ok());
    }
    for (begins, wanted) in REFUSED {
        let mut found = refused.remove(begins).unwrap_or_default();
        found.sort();
        assert_eq!(found.join(" "), wanted, "{begins}");
    }
    assert_eq!(with_models, 205);
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
        // The VM has all the settings of the one before it, as if an operator had changed every one of them.
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
