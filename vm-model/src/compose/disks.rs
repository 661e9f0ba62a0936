// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Disks, and the fields that come from datasets.

use serde_json::{Value, json};

use super::nics::index;
use super::rules::{Rule, Table, entry, objects, set, set_absent, text};
use crate::datasets::VmDatasets;
use crate::js::{iso, mib, number};
use crate::object::VmObject;
use crate::origin::{Origin, ParseError};
use crate::parse::zfs_list::{self, Column, Row};
use crate::parse::zone_xml::Element;
use crate::parse::zoneadm::ZoneRow;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;
/// A limit that is not set: zfs prints all 64 bits; this is their double.
const NO_LIMIT: f64 = 18_446_744_073_709_551_615.0;

static DEVICE: Table = Table::new(&[(Rule::Text, "match:path")]);

static DEVICE_PAIRS: Table = Table::new(&[
    (Rule::Bool, "boot notrim"),
    (Rule::Text, "guest-block-size image-uuid media model pci-slot uuid"),
    (Rule::Number, "image-size"),
]);

/// Returns the entry of a disk or passthrough device, without the fields of its dataset.
pub(super) fn device(device: Element<'_>) -> Result<VmObject, ParseError> {
    entry(&DEVICE, &DEVICE_PAIRS, device)
}

/// Returns the number to sort a disk by: the N of a path that ends in `-diskN` or `/diskN`, or 0.
pub(super) fn rank(disk: &VmObject) -> f64 {
    let path = text(disk, "path").unwrap_or_default();
    match path.rsplit_once("disk") {
        Some((before, digits)) if before.ends_with(['-', '/']) => index(digits),
        _ => 0.0,
    }
}

/// Returns a column as it is shown: as a number, or as the text `-`.
fn shown(row: &Row, column: Column) -> Value {
    row.number(column).map_or_else(|| json!("-"), number)
}

/// Returns a column to calculate with: NaN for `-`.
fn amount(row: &Row, column: Column) -> f64 {
    row.number(column).unwrap_or(f64::NAN)
}

/// Returns a time of creation as a date.
fn created(name: &str, seconds: &str) -> Result<String, ParseError> {
    zfs_list::number(seconds).and_then(|seconds| iso(seconds * 1000.0)).ok_or_else(|| {
        let what = format!("{name}: expected the time of creation, found {seconds:?}");
        ParseError::content(Origin::Datasets, what)
    })
}

/// Returns the pool of a dataset.
fn pool(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Sets the fields that come from datasets, in their order.
pub(super) fn datasets(
    vm: &mut VmObject,
    zone: &ZoneRow,
    datasets: &VmDatasets,
) -> Result<(), ParseError> {
    if let Some(root) = datasets.at(&zone.zonepath) {
        zone_root(vm, zone, root, datasets)?;
    }
    let filesystem = text(vm, "zfs_filesystem").map(str::to_owned);
    if let Some(filesystem) = &filesystem {
        delegated(vm, &format!("{filesystem}/data"), datasets);
    }
    let volumes = disks(vm, datasets);
    set(vm, "snapshots", snapshots(filesystem.as_deref().unwrap_or_default(), datasets)?);
    if &*zone.brand == "bhyve" {
        free_space(vm, &volumes);
    }
    Ok(())
}

fn zone_root(
    vm: &mut VmObject,
    zone: &ZoneRow,
    root: &Row,
    datasets: &VmDatasets,
) -> Result<(), ParseError> {
    if held(root.name(), datasets) {
        set(vm, "indestructible_zoneroot", true);
    }
    let quota = if &*zone.brand == "bhyve" { Column::Refquota } else { Column::Quota };
    set(vm, "quota", number(amount(root, quota) / GIB));
    if vm.get("create_timestamp").is_none() {
        set(vm, "create_timestamp", created(root.name(), root.text(Column::Creation))?);
    }
    if root.text(Column::Compression) != "off" {
        set(vm, "zfs_root_compression", root.text(Column::Compression));
    }
    set(vm, "zfs_root_recsize", shown(root, Column::Recsize));
    for (key, column) in [
        ("zfs_filesystem_limit", Column::FilesystemLimit),
        ("zfs_snapshot_limit", Column::SnapshotLimit),
    ] {
        if root.number(column) != Some(NO_LIMIT) {
            set(vm, key, shown(root, column));
        }
    }
    set(vm, "zfs_filesystem", root.name());
    set(vm, "zpool", pool(root.name()));
    Ok(())
}

/// Returns true if the dataset is indestructible: its snapshot of that name has a hold.
fn held(dataset: &str, datasets: &VmDatasets) -> bool {
    datasets
        .snapshots(dataset)
        .any(|one| one.name == "indestructible" && one.userrefs().is_some_and(|count| count > 0.0))
}

fn delegated(vm: &mut VmObject, name: &str, datasets: &VmDatasets) {
    let Some(data) = datasets.get(name) else {
        return;
    };
    if held(name, datasets) {
        set(vm, "indestructible_delegated", true);
    }
    if data.text(Column::Compression) != "off" {
        set(vm, "zfs_data_compression", data.text(Column::Compression));
    }
    set(vm, "zfs_data_recsize", shown(data, Column::Recsize));
}

/// Sets the fields of each disk that come from its volume. Returns the volumes, `None` for a disk
/// without one.
fn disks<'a>(vm: &mut VmObject, datasets: &'a VmDatasets) -> Vec<Option<&'a Row>> {
    let mut volumes = Vec::new();
    let Some(Value::Array(disks)) = vm.get_mut("disks") else {
        return volumes;
    };
    for disk in disks.iter_mut().filter_map(Value::as_object_mut) {
        let path = text(disk, "path");
        let (has_path, volume) = (path.is_some(), path.and_then(|path| datasets.at(path)));
        match volume {
            Some(volume) => {
                let reserved = amount(volume, Column::Refreservation) / MIB;
                set(disk, "zfs_filesystem", volume.name());
                set(disk, "zpool", pool(volume.name()));
                set(disk, "size", mib(amount(volume, Column::Volsize)));
                set(disk, "compression", volume.text(Column::Compression));
                set(disk, "refreservation", number(reserved.ceil()));
                set(disk, "block_size", shown(volume, Column::Volblocksize));
            }
            None if has_path => set(disk, "missing", true),
            None => {}
        }
        volumes.push(volume);
    }
    volumes
}

/// Returns the snapshots that vmadm made, the newest first.
fn snapshots(dataset: &str, datasets: &VmDatasets) -> Result<Value, ParseError> {
    let mut found = Vec::new();
    for one in datasets.snapshots(dataset) {
        if let Some(name) = one.name.strip_prefix("vmsnap-").filter(|name| !name.is_empty()) {
            let time = created(dataset, one.creation)?;
            found.push((time, name, mib(one.written().unwrap_or(f64::NAN))));
        }
    }
    // Those of one second keep the order of the listing.
    found.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let entry = |(created, name, size): (String, &str, Value)| {
        let mut entry = VmObject::new();
        set(&mut entry, "name", name);
        set(&mut entry, "size", size);
        set(&mut entry, "created_at", created);
        Value::Object(entry)
    };
    Ok(Value::Array(found.into_iter().map(entry).collect()))
}

/// Sets the free space of a flexible disk, if the volumes of all disks are known.
fn free_space(vm: &mut VmObject, volumes: &[Option<&Row>]) {
    let Some(flexible) = vm.get("flexible_disk_size") else {
        return;
    };
    let Some(volumes) = volumes.iter().copied().collect::<Option<Vec<&Row>>>() else {
        return;
    };
    let sum = |column| volumes.iter().map(|row| amount(row, column)).sum::<f64>() / MIB;
    let free =
        flexible.as_f64().unwrap_or(f64::NAN) - sum(Column::Volsize) - sum(Column::Usedbysnapshots);
    set(vm, "free_space", number(free.floor()));
}

/// Sets what a VM that is being received still lacks. As deployed, all filesystems count as missing.
pub(super) fn missing(vm: &mut VmObject, zone: &ZoneRow, datasets: &VmDatasets) {
    let disks = objects(vm, "disks").filter(|disk| disk.contains_key("missing"));
    let disks: Vec<&str> = disks.filter_map(|disk| text(disk, "path")).collect();
    let filesystems = objects(vm, "filesystems").filter_map(|entry| text(entry, "source"));
    let filesystems: Vec<&str> = filesystems.collect();
    let root = text(vm, "zfs_filesystem").filter(|name| !name.is_empty());
    let root = root.unwrap_or_else(|| zone.zonepath.strip_prefix('/').unwrap_or(&zone.zonepath));
    let named = vm.get("datasets").and_then(Value::as_array).into_iter().flatten();
    let wanted = std::iter::once(root).chain(named.filter_map(Value::as_str));
    let absent: Vec<&str> = wanted.filter(|name| datasets.get(name).is_none()).collect();
    let missing = json!({ "datasets": absent, "disks": disks, "filesystems": filesystems });
    set_absent(vm, "missing", missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks() {
        for (path, n) in [
            ("/dev/zvol/rdsk/zones/u-disk10", 10.0),
            ("/dev/zvol/rdsk/zones/u/disk2", 2.0),
            ("/isos/disk2.iso", 0.0),
            ("/x/mydisk4", 0.0),
            ("/x/disk", 0.0),
        ] {
            let mut disk = VmObject::new();
            set(&mut disk, "path", path);
            assert_eq!(rank(&disk), n, "{path}");
        }
        assert_eq!(rank(&VmObject::new()), 0.0);
    }
}
