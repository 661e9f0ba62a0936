// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The second pass: the disks of a guest.

use serde_json::{Value, json};

use super::forms::is_true;
use super::kinds::is_block_size;
use super::slots::Slot;
use super::storage;
use super::surroundings::Surroundings;
use crate::payload::{self, Payload};
use crate::refusal::Refusal;

/// What zfs takes for the blocks of a volume where nothing is said.
const BLOCK_SIZE: u64 = 8192;

/// What the disks of a payload are for.
#[derive(Clone, Copy)]
pub(crate) struct Of<'a> {
    /// The brand of the VM.
    pub(crate) brand: &'a str,
    pub(crate) uuid: &'a str,
    pub(crate) pool: &'a str,
    /// The model where a disk has none.
    pub(crate) driver: Option<&'a str>,
    /// The disks that the VM has.
    pub(crate) old: &'a [Payload],
    /// A new VM's disks get a medium.
    pub(crate) is_create: bool,
}

impl Of<'_> {
    fn models(&self) -> &'static [&'static str] {
        match self.brand {
            "kvm" => &["virtio", "scsi", "ide"],
            _ => &["virtio", "ahci", "nvme"],
        }
    }

    /// The number of the first volume that is not there yet.
    fn next(&self) -> usize {
        let of = |n: &usize| payload::disk_dataset(self.brand, self.uuid, *n);
        let is_there = |n: &usize| {
            self.old
                .iter()
                .any(|disk| payload::text(disk, "path").is_some_and(|path| path.ends_with(&of(n))))
        };
        (0..).find(|n| !is_there(n)).unwrap_or_default()
    }
}

fn shown(disk: &Payload) -> String {
    serde_json::to_string(disk).unwrap_or_default()
}

fn is_disk(disk: &Payload) -> bool {
    disk.get("media").is_none_or(|media| media == "disk")
}

/// Returns true if vmadm makes the volume of this disk.
pub(crate) fn is_made(disk: &Payload) -> bool {
    is_disk(disk) && !disk.get("nocreate").is_some_and(is_true)
}

/// Completes and checks new disks.
pub(crate) fn complete(
    disks: &mut [&mut Payload],
    of: &Of<'_>,
    around: &mut Surroundings,
) -> Result<(), Refusal> {
    if of.is_create {
        for disk in disks.iter_mut() {
            disk.entry("media").or_insert(json!("disk"));
        }
    }
    if of.brand == "bhyve" {
        one_boots(disks, of.old)?;
        places(disks, of.old)?;
        for disk in disks.iter_mut().filter(|disk| !disk.contains_key("uuid")) {
            let uuid = around.uuid();
            disk.insert("uuid".to_string(), json!(uuid));
        }
    }
    let mut number = of.next();
    for disk in disks.iter_mut() {
        check(disk, of)?;
        if is_made(disk) {
            volume(disk, of, number);
            number += 1;
        }
    }
    Ok(())
}

fn one_boots(disks: &[&mut Payload], old: &[Payload]) -> Result<(), Refusal> {
    let boots = |disk: &&Payload| disk.get("boot").is_some_and(is_true);
    let new = disks.iter().map(|disk| &**disk);
    match old.iter().chain(new).filter(boots).nth(1) {
        Some(second) => Refusal::rule(format!(
            "multiple boot disks: \"\"true\"\" and \"\"{}\"\"",
            shown(second)
        )),
        None => Ok(()),
    }
}

/// Gives a slot to each disk that has none.
fn places(disks: &mut [&mut Payload], old: &[Payload]) -> Result<(), Refusal> {
    let path = |disk: &Payload| payload::text(disk, "path").unwrap_or("undefined").to_string();
    let mut taken: Vec<(Slot, String)> = Vec::new();
    let given = |disk: &Payload| payload::text(disk, "pci_slot").map(str::to_string);
    let all = old.iter().chain(disks.iter().map(|disk| &**disk));
    for (disk, text) in all.filter_map(|disk| Some((disk, given(disk)?))) {
        let slot = Slot::checked(&text)?;
        if let Some((_, other)) = taken.iter().find(|(known, _)| *known == slot) {
            let what = format!("VM has multiple disks in pci_slot \"{slot}\"");
            return Refusal::rule(format!("{what}: \"{other}\" and \"{}", path(disk)));
        }
        taken.push((slot, path(disk)));
    }
    let mut order: Vec<usize> = (0..disks.len()).collect();
    let boots = |disk: &Payload| disk.get("boot").is_some_and(is_true);
    order.sort_by_key(|n| disks.get(*n).is_none_or(|disk| !boots(disk)));
    for n in order {
        let Some(disk) = disks.get_mut(n).filter(|disk| given(disk).is_none()) else { continue };
        let slots: Vec<Slot> = taken.iter().map(|(slot, _)| *slot).collect();
        let slot = Slot::free(payload::text(disk, "media") == Some("cdrom"), &slots)?;
        taken.push((slot, path(disk)));
        disk.insert("pci_slot".to_string(), json!(slot.to_string()));
    }
    Ok(())
}

fn check(disk: &mut Payload, of: &Of<'_>) -> Result<(), Refusal> {
    let is_cdrom = payload::text(disk, "media") == Some("cdrom");
    if disk.contains_key("path") && !is_cdrom && !disk.get("nocreate").is_some_and(is_true) {
        return Refusal::rule("you cannot specify a path for a disk unless you set nocreate=true");
    }
    match (payload::text(disk, "model"), of.driver) {
        (Some(_), _) => {}
        (None, Some(driver)) => drop(disk.insert("model".to_string(), json!(driver))),
        (None, None) => {
            return Refusal::rule(format!("missing .model option for disk: {}", shown(disk)));
        }
    }
    model(disk, of)?;
    compression(disk)?;
    if let Some(size) = disk.get("block_size") {
        if !size.as_u64().is_some_and(is_block_size) {
            let shown = super::forms::printed(size);
            return Refusal::rule(format!(
                "invalid .block_size({shown}), must be 512-131072 and a power of 2."
            ));
        }
        if disk.contains_key("image_uuid") {
            return Refusal::rule(
                "setting both .block_size and .image_uuid on a volume is invalid",
            );
        }
    }
    let size = disk.get("size").filter(|size| !size.is_number());
    match size.filter(|_| is_made(disk)) {
        Some(_) => Err(Refusal::Dies("the size of a volume is no number")),
        None => Ok(()),
    }
}

fn model(disk: &Payload, of: &Of<'_>) -> Result<(), Refusal> {
    let known = of.models();
    match payload::text(disk, "model") {
        Some(model) if !known.contains(&model) => {
            let (brand, all) = (of.brand, known.join(","));
            Refusal::rule(format!(
                "\"{model}\" is not a valid disk model for {brand} brand. Valid are: {all}"
            ))
        }
        _ => Ok(()),
    }
}

fn compression(disk: &Payload) -> Result<(), Refusal> {
    match payload::text(disk, "compression") {
        Some(given) if !storage::is_compression(given) => {
            let all = storage::compressions();
            Refusal::rule(format!("invalid compression setting for disk, must be one of: {all}"))
        }
        _ => Ok(()),
    }
}

/// Where the volume is.
fn volume(disk: &mut Payload, of: &Of<'_>, number: usize) {
    let pool = payload::text(disk, "zpool").unwrap_or(of.pool).to_string();
    let dataset = payload::disk_dataset(of.brand, of.uuid, number).replacen("zones", &pool, 1);
    if !disk.contains_key("image_uuid") {
        disk.entry("block_size").or_insert(json!(BLOCK_SIZE));
    }
    disk.entry("zpool").or_insert(json!(pool));
    disk.insert("path".to_string(), json!(format!("/dev/zvol/rdsk/{dataset}")));
    disk.insert("zfs_filesystem".to_string(), json!(dataset));
}

/// Checks changes of disks that are there; `rests` says that the VM is stopped.
pub(crate) fn change(
    disks: &[&Payload],
    of: &Of<'_>,
    rests: bool,
    state: &str,
) -> Result<(), Refusal> {
    let is_live =
        |field: &String| matches!(field.as_str(), "path" | "compression" | "refreservation");
    if !rests && disks.iter().any(|disk| !disk.keys().all(is_live)) {
        let what = "at least one specified update to disks is only allowed when state is";
        return Refusal::rule(format!("{what} \"stopped\", currently: {state}"));
    }
    for disk in disks {
        let path = payload::text(disk, "path");
        if !of.old.iter().any(|old| path.is_some() && payload::text(old, "path") == path) {
            return Err(Refusal::Dies("there is no disk of this path"));
        }
        model(disk, of)?;
        compression(disk)?;
        if let Some(slot) = payload::text(disk, "pci_slot") {
            Slot::checked(slot)?;
        }
    }
    Ok(())
}

/// The disk that vmadm adds for the metadata of cloud-init, where an image wants one.
pub(crate) fn cloudinit(vm: &mut Payload, of: &Of<'_>, around: &Surroundings) {
    let disks = super::forms::objects(vm, "disks");
    let wants = disks.iter().find_map(|disk| {
        let image = payload::text(disk, "image_uuid").and_then(|uuid| around.images.get(uuid));
        image.and_then(|image| image.cloudinit.clone())
    });
    let Some(source) = wants else { return };
    let number = disks.iter().filter(|disk| is_made(disk)).count();
    let pool = payload::text(vm, "zpool").unwrap_or(of.pool).to_string();
    let mut disk = json!({"size": 16, "model": "virtio", "boot": false, "media": "disk", "block_size": 512,
        "cloudinit_datasource": source});
    if let Some(disk) = disk.as_object_mut() {
        volume(disk, &Of { pool: &pool, ..*of }, number);
    }
    let path = disk["path"].clone();
    let metadata = vm.entry("internal_metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("cloudinit_datasource".to_string(), json!(source));
        metadata.insert(format!("cloudinit_{source}_path"), path);
    }
    if let Some(disks) = vm.get_mut("disks").and_then(Value::as_array_mut) {
        disks.push(disk);
    }
}
