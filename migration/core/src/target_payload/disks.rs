// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The disks of the payload: what the guest sees of them stays, what the pool has of them comes with the streams.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::unfit::{DiskFault, Unfit};
use crate::carried::{self, How, Row, entries, text};

/// How many disks one PCI device has room for.
const FUNCTIONS: u8 = 8;
/// Block sizes that a pool has.
const BLOCKS: [i64; 9] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072];

/// Returns the disks as `vmadm create` takes them.
pub fn disks(source: &Map<String, Value>, brand: &str, unfit: &mut Vec<Unfit>) -> Value {
    let is_flexible = source.get("flexible_disk_size").is_some_and(Value::is_number);
    let has_driver = text(source, "disk_driver").is_some_and(|driver| !driver.is_empty());
    let (mut slots, mut slotless, mut boots) = (BTreeSet::new(), Vec::new(), 0);
    let mut made = Vec::new();
    for (at, disk) in entries(source, "disks").into_iter().enumerate() {
        let mut bad = |why| {
            let disk = text(disk, "path").map_or_else(|| at.to_string(), str::to_owned);
            unfit.push(Unfit::Disk { disk, why });
        };
        let mut kept = plain(disk, brand, &mut bad);
        match text(disk, "model") {
            None if has_driver => {}
            None => bad(DiskFault::NoModel),
            Some(model) if !models(brand).contains(&model) => bad(DiskFault::Model),
            Some(_) => {}
        }
        match text(disk, "media") {
            None | Some("disk") => sized(disk, is_flexible, &mut kept, &mut bad),
            Some("cdrom") => match text(disk, "path").filter(|path| !path.is_empty()) {
                Some(path) => drop(kept.insert("path".into(), json!(path))),
                None => bad(DiskFault::NoPath),
            },
            Some(_) => bad(DiskFault::Path),
        }
        boots += u32::from(kept.get("boot") == Some(&json!(true)));
        if brand == "bhyve" && kept.get("boot") == Some(&json!(true)) && boots > 1 {
            bad(DiskFault::Boot);
        }
        match text(&kept, "pci_slot").map(slot) {
            Some(Some(slot)) if slots.insert(slot) => {}
            Some(_) => bad(DiskFault::Slot),
            None if brand == "bhyve" => slotless.push((at, text(disk, "media") == Some("cdrom"))),
            None => {}
        }
        made.push(Value::Object(kept));
    }
    for (at, is_cdrom) in slotless {
        let device = if is_cdrom { 3 } else { 4 };
        let free = (0..FUNCTIONS).map(|function| (0, device, function));
        match free.into_iter().find(|slot| !slots.contains(slot)) {
            Some(slot) => drop(slots.insert(slot)),
            None => unfit.push(Unfit::Disk { disk: at.to_string(), why: DiskFault::Slots }),
        }
    }
    Value::Array(made)
}

/// The keys that are given as they are.
fn plain(
    disk: &Map<String, Value>,
    brand: &str,
    bad: &mut impl FnMut(DiskFault),
) -> Map<String, Value> {
    let is_given =
        |row: &&Row| row.brands.has(brand) && matches!(row.how, How::Given(_) | How::Once);
    let mut kept = Map::new();
    for row in carried::DISKS.iter().filter(is_given) {
        match row.value(disk) {
            Ok(None) => {}
            Ok(Some(value)) => drop(kept.insert(row.key.into(), value)),
            Err(carried::Unfit) => bad(DiskFault::Value(row.key)),
        }
    }
    kept
}

/// How large the disk is now: it may have been resized since it was made from its image.
fn sized(
    disk: &Map<String, Value>,
    is_flexible: bool,
    kept: &mut Map<String, Value>,
    bad: &mut impl FnMut(DiskFault),
) {
    let number = |key: &str| {
        let row = carried::DISKS.iter().find(|row| row.key == key)?;
        row.value(disk).ok().flatten()?.as_i64()
    };
    let (size, image_size) = (number("size"), number("image_size"));
    if kept.contains_key("image_uuid") {
        // Its block size is the image's. One below the image's size is refused, and comes with the stream.
        let is_below = is_flexible && size < image_size;
        if let Some(size) = size.filter(|_| !is_below) {
            kept.insert("size".into(), json!(size));
        }
        if let Some(image_size) = image_size {
            kept.insert("image_size".into(), json!(image_size));
        }
        return;
    }
    match size {
        Some(size) => drop(kept.insert("size".into(), json!(size))),
        None => bad(DiskFault::NoSize),
    }
    if let Some(block) = number("block_size").filter(|block| BLOCKS.contains(block)) {
        kept.insert("block_size".into(), json!(block));
    }
}

fn models(brand: &str) -> [&'static str; 3] {
    match brand {
        "bhyve" => ["virtio", "ahci", "nvme"],
        _ => ["virtio", "scsi", "ide"],
    }
}

/// Reads `D`, `D:F` or `B:D:F`; none where it is no slot, or one of those that bhyve has itself on bus 0.
fn slot(text: &str) -> Option<(u8, u8, u8)> {
    let parts = text.split(':').map(|part| part.parse().ok());
    let slot = match parts.collect::<Option<Vec<u8>>>()?.as_slice() {
        [device] => (0, *device, 0),
        [device, function] => (0, *device, *function),
        [bus, device, function] => (*bus, *device, *function),
        _ => return None,
    };
    let is_own = slot.0 == 0 && [0, 6, 30, 31].contains(&slot.1);
    (slot.1 < 32 && slot.2 < FUNCTIONS && !is_own).then_some(slot)
}
