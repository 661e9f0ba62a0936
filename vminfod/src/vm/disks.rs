// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Devices, and everything that comes from datasets.

use serde_json::{Value, json};

use super::convert::mib;
use super::draft::{Draft, Field};
use super::nics::index;
use super::rules::{Rule, Table, put_attributes, put_pair};
use super::{ComposeError, absent, set};
use crate::json::{iso, number};
use crate::load::datasets::{Column, Datasets, Row};
use crate::load::zone_xml::{Attributes, Pair};
use crate::load::{Origin, ZoneRow};

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;
/// What zfs prints for a limit that is not set: all 64 bits, as a double.
const NO_LIMIT: f64 = 18_446_744_073_709_551_615.0;

const DEVICE: &Table = &[("match", "path", Rule::Text)];

const NET_ATTRS: &Table = &[
    ("boot", "boot", Rule::Bool),
    ("guest-block-size", "guest_block_size", Rule::Text),
    ("image-size", "image_size", Rule::Number),
    ("image-uuid", "image_uuid", Rule::Text),
    ("media", "media", Rule::Text),
    ("model", "model", Rule::Text),
    ("notrim", "notrim", Rule::Bool),
    ("pci-slot", "pci_slot", Rule::Text),
    ("uuid", "uuid", Rule::Text),
];

/// A disk or a passthrough device, without what its dataset adds.
pub(super) fn device(attributes: &Attributes, net_attrs: &[Pair]) -> Result<Draft, ComposeError> {
    let mut device = Draft::with_capacity(attributes.len() + net_attrs.len());
    put_attributes(&mut device, DEVICE, attributes);
    for pair in net_attrs {
        put_pair(&mut device, NET_ATTRS, pair)?;
    }
    Ok(device)
}

/// Where a disk stands among its kind: the N at the end of `-diskN` or `/diskN`.
pub(super) fn rank(disk: &Draft) -> f64 {
    let path = disk.text("path").unwrap_or_default();
    match path.rsplit_once("disk") {
        Some((before, digits)) if before.ends_with(['-', '/']) => index(digits),
        _ => 0.0,
    }
}

/// A column as it is shown: a lone `-` stays text.
fn shown(row: &Row, column: Column) -> Value {
    row.number(column).map_or_else(|| json!("-"), number)
}

/// A column to reckon with: a lone `-` is not a number.
fn amount(row: &Row, column: Column) -> f64 {
    row.number(column).unwrap_or(f64::NAN)
}

fn created(name: &str, seconds: Option<f64>, text: &str) -> Result<String, ComposeError> {
    seconds.and_then(|seconds| iso(seconds * 1000.0)).ok_or_else(|| {
        let what = format!("{name}: expected the time of creation, found {text:?}");
        ComposeError::new(Origin::Datasets, what)
    })
}

fn pool(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Puts in what the datasets say, in the order of the keys.
pub(super) fn datasets(
    vm: &mut Draft,
    zone: &ZoneRow,
    datasets: &Datasets,
) -> Result<(), ComposeError> {
    if let Some(root) = datasets.at(&zone.zonepath) {
        zone_root(vm, zone, root, datasets)?;
    }
    let filesystem = vm.text("zfs_filesystem").map(str::to_owned);
    if let Some(filesystem) = &filesystem {
        delegated(vm, &format!("{filesystem}/data"), datasets);
    }
    let volumes = disks(vm, datasets);
    vm.put("snapshots", snapshots(filesystem.as_deref().unwrap_or_default(), datasets)?);
    if zone.brand == "bhyve" {
        free_space(vm, &volumes);
    }
    Ok(())
}

fn zone_root(
    vm: &mut Draft,
    zone: &ZoneRow,
    root: &Row,
    datasets: &Datasets,
) -> Result<(), ComposeError> {
    if held(root.name(), datasets) {
        set(vm, "indestructible_zoneroot", true);
    }
    let quota = if zone.brand == "bhyve" { Column::Refquota } else { Column::Quota };
    set(vm, "quota", number(amount(root, quota) / GIB));
    if vm.get("create_timestamp").is_none() {
        let (seconds, text) = (root.number(Column::Creation), root.text(Column::Creation));
        set(vm, "create_timestamp", created(root.name(), seconds, text)?);
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

/// Whether a dataset is protected: somebody holds its snapshot of that name.
fn held(dataset: &str, datasets: &Datasets) -> bool {
    datasets
        .snapshots(dataset)
        .any(|one| one.name == "indestructible" && one.userrefs().is_some_and(|count| count > 0.0))
}

fn delegated(vm: &mut Draft, name: &str, datasets: &Datasets) {
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

/// Gives each disk what its volume says; the volumes, or `None` where there is none.
fn disks<'a>(vm: &mut Draft, datasets: &'a Datasets) -> Vec<Option<&'a Row>> {
    let mut volumes = Vec::new();
    let Some(Field::List(disks)) = vm.get_mut("disks") else {
        return volumes;
    };
    for disk in disks.iter_mut().filter_map(Field::as_object_mut) {
        let path = disk.text("path").map(str::to_owned);
        let volume = path.as_deref().and_then(|path| datasets.at(path));
        match volume {
            Some(volume) => {
                set(disk, "zfs_filesystem", volume.name());
                set(disk, "zpool", pool(volume.name()));
                set(disk, "size", mib(amount(volume, Column::Volsize)));
                set(disk, "compression", volume.text(Column::Compression));
                set(
                    disk,
                    "refreservation",
                    number((amount(volume, Column::Refreservation) / MIB).ceil()),
                );
                set(disk, "block_size", shown(volume, Column::Volblocksize));
            }
            None if path.is_some() => set(disk, "missing", true),
            None => {}
        }
        volumes.push(volume);
    }
    volumes
}

/// vmadm's snapshots, newest first.
fn snapshots(dataset: &str, datasets: &Datasets) -> Result<Field, ComposeError> {
    let mut found = Vec::new();
    for one in datasets.snapshots(dataset) {
        if let Some(name) = one.name.strip_prefix("vmsnap-").filter(|name| !name.is_empty()) {
            let time = created(dataset, one.created(), one.creation)?;
            found.push((time, name, mib(one.written().unwrap_or(f64::NAN))));
        }
    }
    // Names decide where times do not: a listing of one snapshot does not say which of two of
    // one second zfs would list first.
    found.sort_by(|(a, name, _), (b, other, _)| b.cmp(a).then_with(|| name.cmp(other)));
    let entry = |(created, name, size): (String, &str, Value)| {
        let mut entry = Draft::with_capacity(3);
        set(&mut entry, "name", name);
        set(&mut entry, "size", size);
        set(&mut entry, "created_at", created);
        Field::Object(entry)
    };
    Ok(Field::List(found.into_iter().map(entry).collect()))
}

/// What is left of a flexible disk; unknown as soon as one disk is.
fn free_space(vm: &mut Draft, volumes: &[Option<&Row>]) {
    let Some(flexible) = vm.plain("flexible_disk_size") else {
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

/// What a VM that is being received still lacks. Filesystems are listed whether they exist or not.
pub(super) fn missing(vm: &mut Draft, zone: &ZoneRow, datasets: &Datasets) {
    let objects = |name: &str| vm.list(name).iter().filter_map(Field::as_object);
    let text = |object: &Draft, name: &str| object.text(name).map(str::to_owned);
    let root = vm.text("zfs_filesystem").filter(|name| !name.is_empty());
    let root = root.unwrap_or_else(|| zone.zonepath.strip_prefix('/').unwrap_or(&zone.zonepath));
    let named = vm.list("datasets").iter().filter_map(|field| match field {
        Field::Plain(name) => name.as_str(),
        Field::Object(_) | Field::List(_) => None,
    });
    let wanted = std::iter::once(root).chain(named);
    let absent_datasets: Vec<&str> = wanted.filter(|name| datasets.get(name).is_none()).collect();
    let lacks = |disk: &&Draft| disk.get("missing").is_some();
    let disks: Vec<String> =
        objects("disks").filter(lacks).filter_map(|disk| text(disk, "path")).collect();
    let filesystems: Vec<String> =
        objects("filesystems").filter_map(|entry| text(entry, "source")).collect();
    let mut missing = Draft::with_capacity(3);
    set(&mut missing, "datasets", absent_datasets);
    set(&mut missing, "disks", disks);
    set(&mut missing, "filesystems", filesystems);
    absent(vm, "missing", Field::Object(missing));
}

#[cfg(test)]
mod tests {
    use super::{Draft, rank, set};

    #[test]
    fn ranks() {
        for (path, n) in [
            ("/dev/zvol/rdsk/zones/u-disk10", 10.0),
            ("/dev/zvol/rdsk/zones/u/disk2", 2.0),
            ("/isos/disk2.iso", 0.0),
            ("/x/mydisk4", 0.0),
            ("/x/disk", 0.0),
        ] {
            let mut disk = Draft::default();
            set(&mut disk, "path", path);
            assert_eq!(rank(&disk), n, "{path}");
        }
        assert_eq!(rank(&Draft::default()), 0.0);
    }
}
