// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whole objects of the recorded nodes as payloads: the real vmadm was asked for each of these, and only the sums
//! were kept.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use simnode::payload::BRANDS;
use simnode::refusal::Refusal;
use simnode::vmadm::{Image, Surroundings, Tag, create, receive};

type Object = Map<String, Value>;
type Action = fn(&Object, &mut Surroundings) -> Result<Object, Refusal>;

/// The beginning of a refusal, and the brands whose refusals are counted.
struct Sum {
    begins: &'static str,
    brands: &'static [&'static str],
}

const NODES: [&str; 8] =
    ["basic", "brands", "disks", "nics", "mixed40", "mixed60", "states", "deep"];

fn objects() -> Vec<Object> {
    let dir = recordings::unpacked().unwrap();
    let read = |node| {
        let file = dir.path().join(format!("cn-{node}/expected/vms.json"));
        serde_json::from_slice::<Vec<Object>>(&std::fs::read(file).unwrap()).unwrap()
    };
    let mut all: Vec<Object> = NODES.into_iter().flat_map(read).collect();
    all.retain(|vm| BRANDS.contains(&brand(vm)));
    all
}

fn brand(vm: &Object) -> &str {
    vm["brand"].as_str().unwrap()
}

fn entries<'a>(vm: &'a Object, list: &str) -> impl Iterator<Item = &'a Value> {
    vm.get(list).and_then(Value::as_array).into_iter().flatten()
}

/// A node that has what a VM needs of one: its images, its NIC tags, its pools.
fn around(vm: &Object) -> Surroundings {
    let mut images = BTreeMap::new();
    let mut add = |of: &Value, kind: &str| {
        let Some(image) = of["image_uuid"].as_str() else { return };
        let size = of["image_size"].as_u64();
        images.insert(image.to_owned(), Image { kind: kind.to_owned(), size, ..Image::default() });
    };
    let kind = if brand(vm) == "lx" { "lx-dataset" } else { "zone-dataset" };
    add(&Value::Object(vm.clone()), kind);
    entries(vm, "disks").for_each(|disk| add(disk, "zvol"));
    let tags = entries(vm, "nics").filter_map(|nic| nic["nic_tag"].as_str()?.split('/').next());
    Surroundings {
        pools: vec!["zones".to_owned(), "tank".to_owned()],
        images,
        tags: tags.map(|tag| (tag.to_owned(), Tag { mtu: None })).collect(),
        vms: Vec::new(),
        reserves: |bytes| bytes,
        new_uuid: Box::new(|| "a5a5a5a5-0000-4000-8000-000000000001".to_owned()),
    }
}

/// How many objects the action takes, and how many it refuses with a sentence that begins so.
fn judged(action: Action, sums: &[Sum]) -> (usize, Vec<usize>) {
    let (mut taken, mut counts) = (0, vec![0; sums.len()]);
    for vm in objects() {
        let why = match action(&vm, &mut around(&vm)) {
            Ok(_) => {
                taken += 1;
                continue;
            }
            Err(why) => why.to_string(),
        };
        for (count, sum) in counts.iter_mut().zip(sums) {
            let is_of = sum.brands.contains(&brand(&vm));
            *count += usize::from(is_of && why.starts_with(sum.begins));
        }
    }
    (taken, counts)
}

#[test] // P32, P40
fn whole_objects_are_refused_as_often_and_for_the_same_reasons() {
    assert_eq!(objects().len(), 290);
    let zones = &["joyent", "joyent-minimal", "builder", "lx"];
    let path = "you cannot specify a path";
    let sums = [
        Sum { begins: path, brands: &["kvm"] },
        Sum { begins: path, brands: &["bhyve"] },
        Sum { begins: "invalid zfs_root_recsize", brands: zones },
        Sum { begins: "Route gateway", brands: zones },
        Sum { begins: "Missing required properties: image_uuid", brands: zones },
    ];
    assert_eq!(judged(create::create, &sums), (95, vec![34, 34, 27, 13, 50]));
    assert_eq!(judged(receive::receive, &[]), (132, Vec::new()));
}
