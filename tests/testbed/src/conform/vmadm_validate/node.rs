// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node that a recording describes in its first line, and the VMs that its updates refer to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use serde_json::{Map, Value, json};
use simnode::config;
use simnode::vmadm::update::{self, Subject};
use simnode::vmadm::{Image, Surroundings, Tag};
use simnode::xml::Element;

/// When a recorded VM was made, and until when it is provisioning.
const NOW: &str = "NOW";
const UNTIL: &str = "provisioning:running:T";

/// What the stand-ins of a recording answered.
pub(super) struct Described {
    pools: Vec<String>,
    images: BTreeMap<String, Image>,
    vms: Vec<Map<String, Value>>,
}

impl Described {
    /// Reads the first line.
    pub(super) fn read(head: &Value) -> anyhow::Result<Described> {
        let stands = &head["stand_ins"];
        let pools = stands["zpool list"].as_array().context("the recording names no pools")?;
        let images = stands["imgadm get"].as_object().context("the recording names no images")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let image = |manifest: &Value| Image {
            kind: text(&manifest["type"]).unwrap_or_default(),
            size: manifest["image_size"].as_u64(),
            bootrom: text(&manifest["requirements"]["bootrom"]),
            cloudinit: text(&manifest["tags"]["org.smartos:cloudinit_datasource"]),
        };
        Ok(Described {
            pools: pools.iter().filter_map(text).collect(),
            images: images.iter().map(|(uuid, manifest)| (uuid.clone(), image(manifest))).collect(),
            vms: head["other_vms"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|vm| vm.as_object().cloned())
                .collect(),
        })
    }

    /// The node around a VM. A volume reserves what it is large, and new UUIDs are counted.
    pub(super) fn around(&self, own: &[Map<String, Value>]) -> Surroundings {
        let tag = |name: &str, mtu| (name.to_owned(), Tag { mtu });
        let physical = ["admin", "external", "internal"].map(|name| tag(name, Some(1500)));
        let count = AtomicUsize::new(1);
        Surroundings {
            pools: self.pools.clone(),
            images: self.images.clone(),
            tags: physical.into_iter().chain([tag("sdc_overlay", None)]).collect(),
            vms: self.vms.iter().chain(own).cloned().collect(),
            reserves: |size| size,
            new_uuid: Box::new(move || {
                format!("a5a5a5a5-0000-4000-8000-{:012}", count.fetch_add(1, Ordering::Relaxed))
            }),
        }
    }

    /// What vmadm keeps of its own work.
    pub(super) fn own(&self, vm: &Map<String, Value>) -> Map<String, Value> {
        let mut own = json!({"provisioning": true, "v": 1, "create_timestamp": NOW});
        if vm["autoboot"] == true {
            own["transition"] = json!(UNTIL);
        }
        own.as_object().cloned().unwrap_or_default()
    }
}

/// The configuration of a VM from its object.
pub(super) fn configuration(object: &Map<String, Value>) -> anyhow::Result<Element> {
    let mut vm = object.clone();
    // What the object shows of the zone's datasets is not in there.
    for key in ["zfs_filesystem", "snapshots"] {
        vm.shift_remove(key);
    }
    let zonepath = object["zonepath"].as_str().context("a VM without zonepath")?;
    Ok(config::zone_xml(&vm, zonepath, object["zonedid"].as_i64().unwrap_or_default())?)
}

/// The VM that an update is for.
pub(super) fn subject(object: &Map<String, Value>, config: &Element) -> Subject {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let map = |key: &str| object.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    Subject {
        rests: text("state") == "stopped",
        state: format!("{} ({})", text("state"), text("zone_state")),
        routes: map("routes"),
        has_docker_id: map("internal_metadata").contains_key("docker:id"),
        ..config::read::subject(config)
    }
}

/// The files that an update writes, by their paths; null if it writes none.
pub(super) fn files(object: &Map<String, Value>, changes: &Map<String, Value>) -> Value {
    let map = |key: &str| object.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    let merged = |key: &str| update::merged(&map(key), key, changes);
    let path =
        |file: &str| format!("{}/config/{file}", object["zonepath"].as_str().unwrap_or_default());
    let mut files = Map::new();
    let (internal, customer) = (merged("internal_metadata"), merged("customer_metadata"));
    if internal.is_some() || customer.is_some() {
        let internal = internal.unwrap_or_else(|| map("internal_metadata"));
        let customer = customer.unwrap_or_else(|| map("customer_metadata"));
        files.insert(path("metadata.json"), update::metadata(&internal, &customer));
    }
    for (key, file) in [("tags", "tags.json"), ("routes", "routes.json")] {
        files.extend(merged(key).map(|map| (path(file), Value::Object(map))));
    }
    if files.is_empty() { Value::Null } else { Value::Object(files) }
}
