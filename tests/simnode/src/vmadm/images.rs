// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a payload's images say: whether they are there and of the right type, how large disks of them are,
//! which boot ROM they want.

use serde_json::{Value, json};

use super::surroundings::{Image, Surroundings};
use crate::payload::{self, Payload};

/// Returns true if a VM of the brand can be made of the image; a disk if there is no brand.
fn fits(image: &Image, brand: Option<&str>) -> bool {
    match brand {
        None => image.kind == "zvol",
        Some("lx") => matches!(image.kind.as_str(), "lx-dataset" | "docker" | ""),
        Some(_) => matches!(image.kind.as_str(), "zone-dataset" | ""),
    }
}

/// Returns true if the image of the VM is there and fits.
pub(crate) fn has_image(around: &Surroundings, brand: &str, image: &Value) -> bool {
    let image = image.as_str().and_then(|uuid| around.images.get(uuid));
    image.is_some_and(|image| fits(image, Some(brand)))
}

/// Fills in what the images of the disks in `list` say; returns the bad values that this shows.
pub(crate) fn of_disks(vm: &mut Payload, list: &str, around: &Surroundings) -> Vec<String> {
    let is_flexible = vm.contains_key("flexible_disk_size");
    let mut bad = Vec::new();
    let mut bootrom = None;
    let given = vm.get("bootrom").cloned();
    let disks = vm.get_mut(list).and_then(Value::as_array_mut);
    for (n, disk) in disks.into_iter().flatten().enumerate() {
        let Some(disk) = disk.as_object_mut() else { continue };
        let Some(uuid) = disk.get("image_uuid") else { continue };
        let found = uuid.as_str().and_then(|uuid| around.images.get(uuid));
        let Some(image) = found.filter(|image| fits(image, None)) else {
            bad.push(format!("{list}.{n}.image_uuid"));
            continue;
        };
        if let Some(wanted) = &image.bootrom {
            match &given {
                Some(other) if other != wanted.as_str() => {
                    bad.push("bootrom".to_string());
                    continue;
                }
                _ => bootrom = Some(wanted.clone()),
            }
        }
        let Some(size) = image.size else { continue };
        match disk.get("image_size") {
            Some(given) if given.as_u64() != Some(size) => {
                bad.push(format!("{list}.{n}.image_size"))
            }
            Some(_) => {}
            None => {
                let below =
                    disk.get("size").and_then(Value::as_u64).is_some_and(|given| given < size);
                if below && is_flexible {
                    bad.push("size".to_string());
                }
                disk.insert("image_size".to_string(), json!(size));
            }
        }
    }
    if let Some(bootrom) = bootrom.filter(|_| payload::text(vm, "brand") == Some("bhyve")) {
        vm.entry("bootrom").or_insert(json!(bootrom));
    }
    bad
}
