// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets of a VM, as the commands of zfs that vmadm runs.

use std::fmt;

use sdc_clients::restify::is_uuid;
use serde_json::Value;

use super::disks::is_made;
use super::forms::{self, objects};
use super::surroundings::Surroundings;
use crate::payload::{self, Payload};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `zfs create`
    Create(String),
    /// `zfs create -V`
    Volume {
        name: String,
        /// Its size in MiB.
        size: u64,
        with: Vec<(&'static str, String)>,
    },
    /// `zfs clone`
    Clone {
        origin: String,
        /// The new dataset.
        name: String,
        with: Vec<(&'static str, String)>,
    },
    /// `zfs set`
    Set(String, Vec<(&'static str, String)>),
    /// `zfs destroy -rF`
    Destroy(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = |with: &[(&str, String)]| -> String {
            with.iter().map(|(key, value)| format!("-o {key}={value} ")).collect()
        };
        match self {
            Step::Create(name) => write!(f, "zfs create {name}"),
            Step::Volume { name, size, with } => {
                write!(f, "zfs create {}-V {size}M {name}", options(with))
            }
            Step::Clone { origin, name, with } => {
                write!(f, "zfs clone -F {}{origin} {name}", options(with))
            }
            Step::Set(name, pairs) => {
                let pairs: Vec<String> =
                    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "zfs set {} {name}", pairs.join(" "))
            }
            Step::Destroy(name) => write!(f, "zfs destroy -rF {name}"),
        }
    }
}

fn number(map: &Payload, name: &str) -> Option<u64> {
    map.get(name).and_then(Value::as_u64)
}

fn dataset(disk: &Payload) -> String {
    payload::text(disk, "zfs_filesystem").unwrap_or_default().to_string()
}

/// The volume of a disk.
fn volume(disk: &Payload) -> Step {
    let name = dataset(disk);
    let mut with = Vec::new();
    let text = |field: &str| disk.get(field).map(forms::printed);
    with.extend(text("compression").map(|value| ("compression", value)));
    let reserved = text("refreservation").map(|mib| format!("{mib}M"));
    match payload::text(disk, "image_uuid") {
        Some(image) => {
            let origin =
                format!("{}/{image}@final", payload::text(disk, "zpool").unwrap_or("zones"));
            with.extend(text("size").map(|mib| ("volsize", format!("{mib}M"))));
            with.push(("refreservation", reserved.unwrap_or_else(|| "auto".to_string())));
            Step::Clone { origin, name, with }
        }
        None => {
            with.extend(text("block_size").map(|value| ("volblocksize", value)));
            with.extend(reserved.map(|value| ("refreservation", value)));
            Step::Volume { name, size: number(disk, "size").unwrap_or_default(), with }
        }
    }
}

/// The volumes of new disks.
pub fn volumes(vm: &Payload) -> Vec<Step> {
    objects(vm, "disks").into_iter().filter(|disk| is_made(disk)).map(volume).collect()
}

/// The volumes that go with the disks that an update removes.
pub fn removed(old: &[Payload], changes: &Payload) -> Vec<Step> {
    let paths = changes.get("remove_disks").and_then(Value::as_array).into_iter().flatten();
    let known = |path: &&str| old.iter().any(|disk| payload::text(disk, "path") == Some(path));
    let volumes = paths.filter_map(Value::as_str).filter(known);
    volumes
        .filter_map(|path| path.strip_prefix("/dev/zvol/rdsk/"))
        .map(|name| Step::Destroy(name.to_string()))
        .collect()
}

/// What vmadm makes of a guest before it has a zone.
pub fn before_zone(vm: &Payload, around: &Surroundings) -> Vec<Step> {
    let disks = volumes(vm);
    if payload::text(vm, "brand") != Some("bhyve") {
        return disks;
    }
    let top = root(vm);
    let mut steps = vec![Step::Create(top.clone())];
    steps.extend(disks);
    let quota = number(vm, "quota").unwrap_or_default().saturating_mul(GIB);
    let none = ("refreservation", "none".to_string());
    steps.push(Step::Set(top.clone(), vec![none, ("refquota", quota.to_string())]));
    let made: Vec<&Payload> =
        objects(vm, "disks").into_iter().filter(|disk| is_made(disk)).collect();
    let auto = || vec![("refreservation", "auto".to_string())];
    steps.extend(made.iter().map(|disk| Step::Set(dataset(disk), auto())));
    let size = |disk: &&Payload| {
        let mib = number(disk, "size").or_else(|| number(disk, "image_size"));
        mib.unwrap_or_default().saturating_mul(MIB)
    };
    let sizes: u64 = made.iter().map(size).sum();
    let reserved: u64 = made.iter().map(|disk| (around.reserves)(size(disk))).sum();
    // A flexible VM has the space between its disks and what it pays for.
    let room = number(vm, "flexible_disk_size")
        .map_or(0, |mib| mib.saturating_mul(MIB).saturating_sub(sizes));
    let all = (reserved + quota + room).to_string();
    let own = quota.saturating_sub(MIB).to_string();
    steps.push(Step::Set(
        top,
        vec![("quota", all.clone()), ("reservation", all), ("refreservation", own)],
    ));
    steps
}

/// The root of a VM.
fn root(vm: &Payload) -> String {
    let uuid = payload::text(vm, "uuid").unwrap_or_default();
    format!("{}/{uuid}", payload::text(vm, "zpool").unwrap_or("zones"))
}

/// Properties of a dataset with their values.
pub type Properties = Vec<(&'static str, String)>;

/// Properties of datasets that a payload sets, of the root and of what is delegated, by the names that zfs has for
/// them.
pub fn properties(vm: &Payload) -> (Properties, Properties) {
    let of = |names: &[(&'static str, &'static str)]| -> Properties {
        let text = |name: &str| vm.get(name).filter(|value| !value.is_null()).map(forms::printed);
        let given = |name: &str| text(name).filter(|text| !text.is_empty());
        names.iter().filter_map(|(name, key)| Some((*key, given(name)?))).collect()
    };
    let root = of(&[
        ("zfs_root_compression", "compression"),
        ("zfs_root_recsize", "recsize"),
        ("zfs_snapshot_limit", "snapshot_limit"),
        ("zfs_filesystem_limit", "filesystem_limit"),
    ]);
    (root, of(&[("zfs_data_compression", "compression"), ("zfs_data_recsize", "recsize")]))
}

/// What vmadm and zoneadm make while the zone is installed.
pub fn at_install(vm: &Payload, has_image: bool) -> Vec<Step> {
    let brand = payload::text(vm, "brand").unwrap_or_default();
    let (top, image) = (root(vm), payload::text(vm, "image_uuid").filter(|_| has_image));
    let pool = payload::text(vm, "zpool").unwrap_or("zones");
    let mut steps = Vec::new();
    if brand != "bhyve" {
        steps.push(match image {
            Some(image) => Step::Clone {
                origin: format!("{pool}/{image}@final"),
                name: top.clone(),
                with: Vec::new(),
            },
            None => Step::Create(top.clone()),
        });
        let quota = number(vm, "quota").unwrap_or_default().saturating_mul(GIB);
        steps.push(Step::Set(top.clone(), vec![("quota", quota.to_string())]));
    }
    let (of_root, of_data) = properties(vm);
    if !of_root.is_empty() {
        steps.push(Step::Set(top.clone(), of_root));
    }
    if vm.get("delegate_dataset").is_some_and(forms::is_true) {
        let data = format!("{top}/data");
        steps.push(Step::Create(data.clone()));
        steps.push(Step::Set(data, [vec![("zoned", "on".to_string())], of_data].concat()));
    }
    for (n, volume) in docker_volumes(vm).into_iter().enumerate() {
        if n == 0 {
            steps.push(Step::Create(format!("{top}/volumes")));
        }
        steps.push(Step::Create(format!("{top}/volumes/{volume}")));
    }
    steps.push(Step::Create(format!(
        "zones/cores/{}",
        payload::text(vm, "uuid").unwrap_or_default()
    )));
    steps
}

/// The file systems of a payload that name a volume, which vmadm makes, and not a place.
pub fn docker_volumes(vm: &Payload) -> Vec<&str> {
    let sources =
        objects(vm, "filesystems").into_iter().filter_map(|fs| payload::text(fs, "source"));
    sources.filter(|source| is_uuid(source)).collect()
}
