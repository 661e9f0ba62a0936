// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node says to vmadm: its pools, images, NIC tags and VMs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::config::read;
use crate::dataset_ops::reserved;
use crate::datasets::Datasets;
use crate::error::NodeError;
use crate::files;
use crate::node::Node;
use crate::payload::Payload;
use crate::vmadm::{Image, Surroundings, Tag};

/// The packets of a physical NIC.
const MTU: u64 = 1500;
/// Where imgadm keeps the manifests.
const MANIFESTS: &str = "/var/imgadm/images";

/// Nothing but the rules of zfs.
pub(crate) fn bare() -> Surroundings {
    Surroundings {
        pools: Vec::new(),
        images: BTreeMap::new(),
        tags: BTreeMap::new(),
        vms: Vec::new(),
        reserves: reserved,
        new_uuid: Box::new(|| uuid::Uuid::new_v4().to_string()),
    }
}

/// The node as these say. An image without a manifest is known by its dataset.
pub(crate) fn around(
    all: &Datasets,
    manifests: BTreeMap<String, Image>,
    sysinfo: &Value,
    vms: Vec<Payload>,
    new_uuid: Box<dyn FnMut() -> String + Send>,
) -> Surroundings {
    let mut pools: Vec<String> =
        all.rows.values().filter(|row| row.depth() == 0).map(|row| row.name.clone()).collect();
    pools.sort();
    let finals = all.rows.values().filter_map(|row| row.name.strip_suffix("@final"));
    let mut images = BTreeMap::new();
    for name in finals {
        let Some((_, uuid)) = name.split_once('/') else { continue };
        let by_dataset = || {
            let row = all.get(name).filter(|row| row.kind() == "volume");
            let size =
                row.and_then(|row| row.get("volsize").parse().ok()).map(|bytes: u64| bytes >> 20);
            let kind = if row.is_some() { "zvol" } else { "" };
            Image { kind: kind.to_string(), size, ..Image::default() }
        };
        images.insert(uuid.to_string(), manifests.get(uuid).cloned().unwrap_or_else(by_dataset));
    }
    Surroundings { pools, images, tags: tags(sysinfo), vms, reserves: reserved, new_uuid }
}

/// The NIC tags of a node, with those of its overlays by their rules.
fn tags(sysinfo: &Value) -> BTreeMap<String, Tag> {
    let mut tags = BTreeMap::new();
    let names = |nic: &Value, key: &str| -> Vec<String> {
        nic[key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect()
    };
    for (group, key, mtu) in [
        ("Network Interfaces", "NIC Names", Some(MTU)),
        ("Link Aggregations", "NIC Names", Some(MTU)),
        ("Virtual Network Interfaces", "Overlay Nic Tags", None),
    ] {
        for nic in sysinfo[group].as_object().into_iter().flat_map(|nics| nics.values()) {
            tags.extend(names(nic, key).into_iter().map(|name| (name, Tag { mtu })));
        }
    }
    tags
}

fn manifest(text: &Value) -> Option<Image> {
    let manifest = text.get("manifest")?;
    let text = |value: &Value| value.as_str().map(str::to_string);
    Some(Image {
        kind: text(&manifest["type"])?,
        size: manifest["image_size"].as_u64(),
        bootrom: text(&manifest["requirements"]["bootrom"]),
        cloudinit: text(&manifest["tags"]["org.smartos:cloudinit_datasource"]),
    })
}

/// Writes the manifest of an image, as imgadm does when it has installed it.
pub(crate) fn keep_manifest(node: &Node, uuid: &str, image: &Image) -> Result<(), NodeError> {
    let mut manifest = json!({"uuid": uuid, "type": image.kind});
    if let Some(size) = image.size {
        manifest["image_size"] = json!(size);
    }
    let file = node.path(MANIFESTS).join(format!("zones-{uuid}.json"));
    files::write_json(&file, &json!({"manifest": manifest, "zpool": "zones"}))
}

impl Node {
    /// What vmadm asks of this node. Its VMs are read only for a payload that could conflict with them.
    pub(crate) fn around(&self, payload: &Payload) -> Result<Surroundings, NodeError> {
        let touching = ["nics", "add_nics", "update_nics", "vnc_port", "uuid"];
        let mut vms = Vec::new();
        if touching.iter().any(|key| payload.contains_key(*key)) {
            for zone in self.zones()?.iter() {
                let Ok(config) = self.zone_config(&zone.zonename) else { continue };
                let port =
                    config.value("attr", "vnc-port").and_then(|text| text.parse::<i64>().ok());
                let vm = json!({"uuid": zone.uuid, "nics": read::nics(&config), "vnc_port": port});
                vms.extend(vm.as_object().cloned());
            }
        }
        let all = self.datasets()?;
        let mut manifests = BTreeMap::new();
        for row in all.sorted().into_iter().filter(|row| row.name.ends_with("@final")) {
            let uuid = row.name.trim_end_matches("@final").rsplit('/').next().unwrap_or_default();
            let file = self.path(MANIFESTS).join(format!("zones-{uuid}.json"));
            let image = files::read_json::<Value>(&file).ok().as_ref().and_then(manifest);
            manifests.extend(image.map(|image| (uuid.to_string(), image)));
        }
        let sysinfo = files::read_json(&self.path("/tmp/.sysinfo.json")).unwrap_or_default();
        let new_uuid = Box::new(|| uuid::Uuid::new_v4().to_string());
        Ok(around(&all, manifests, &sysinfo, vms, new_uuid))
    }
}
