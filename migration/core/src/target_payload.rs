// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The payload that creates the hidden target from the source's object (RFD 34, R3, R4), by the rules of
//! `vmadm create`: what an object prints and what a creation takes are two things.

// Blank lines keep the modules in layer order.

mod disks;

mod nics;

mod unfit;

use sdc_clients::restify::is_uuid;
use serde_json::{Map, Value, json};

pub use unfit::{DiskFault, NicFault, Unfit};

use crate::carried::{self, Brands, How, entries, members, text};

/// docker's own mounts, which the node adds itself.
pub const DOCKER_MOUNTS: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// Lists of an instance's parts: of another shape they would be left out without a word.
const LISTS: [&str; 3] = ["nics", "disks", "filesystems"];

/// Returns the payload. The uuid, the MACs and so the addresses are the source's; the target is hidden, does
/// not boot, and can be deleted.
pub fn target_payload(source: &Map<String, Value>) -> Result<Map<String, Value>, Vec<Unfit>> {
    let (payload, unfit) = made_of(source);
    if unfit.is_empty() { Ok(payload) } else { Err(unfit) }
}

/// Returns what there is of a payload, and everything in it that `vmadm create` would refuse.
pub fn made_of(source: &Map<String, Value>) -> (Map<String, Value>, Vec<Unfit>) {
    let brand = text(source, "brand").unwrap_or_default();
    if !Brands::ALL.has(brand) {
        return (Map::new(), vec![Unfit::Brand(brand.to_owned())]);
    }
    let (mut payload, mut unfit) = given(source, brand);
    let needed = if Brands::OS.has(brand) { &["uuid", "image_uuid"][..] } else { &["uuid"] };
    let lacks = needed.iter().filter(|key| !payload.contains_key(**key));
    unfit.extend(lacks.map(|key| Unfit::Lacks(key)));
    if Brands::LX.has(brand) {
        payload.entry("kernel_version").or_insert_with(|| json!("")); // needed, and any text will do
    }
    unfit.extend(LISTS.into_iter().filter(|key| !is_list(source, key)).map(Unfit::Value));
    carried::settle_memory(brand, &mut payload);
    payload.insert("nics".into(), nics::nics(source, brand, &mut unfit));
    if Brands::HVM.has(brand) {
        payload.insert("disks".into(), disks::disks(source, brand, &mut unfit));
    } else {
        let filesystems = filesystems(source);
        if !filesystems.is_empty() {
            payload.insert("filesystems".into(), json!(filesystems));
        }
        if source.get("datasets").and_then(Value::as_array).is_some_and(|all| !all.is_empty()) {
            payload.insert("delegate_dataset".into(), json!(true));
        }
    }
    payload.insert("autoboot".into(), json!(false));
    payload.insert("do_not_inventory".into(), json!(true));
    payload.insert("vm_migration_target".into(), json!(true));
    (payload, unfit)
}

/// Returns true if the object has no such list, or one whose rows can be read.
fn is_list(source: &Map<String, Value>, key: &str) -> bool {
    source.get(key).is_none_or(|rows| match rows {
        Value::Null => true,
        rows => rows.as_array().is_some_and(|rows| rows.iter().all(Value::is_object)),
    })
}

/// The keys that are given as they are, and those whose values vmadm refuses.
fn given(source: &Map<String, Value>, brand: &str) -> (Map<String, Value>, Vec<Unfit>) {
    let (mut payload, mut unfit) = (Map::new(), Vec::new());
    for row in carried::TOP.iter().filter(|row| row.brands.has(brand)) {
        match row.how {
            How::Given(_) | How::Once => match row.value(source) {
                Ok(None) => {}
                Ok(Some(value)) => drop(payload.insert(row.key.into(), value)),
                Err(carried::Unfit) => unfit.push(Unfit::Value(row.key)),
            },
            How::Members => {
                let members = members(source, row.key);
                payload.insert(row.key.into(), Value::Object(members));
            }
            _ => {}
        }
    }
    (payload, unfit)
}

/// The mounts as at the creation of the source: docker's shared volumes by their uuids, and not those that the node
/// adds itself.
fn filesystems(source: &Map<String, Value>) -> Vec<Value> {
    let is_docker = source.get("docker") == Some(&json!(true));
    let adds = |mount: &&Map<String, Value>| {
        is_docker && text(mount, "target").is_some_and(|target| DOCKER_MOUNTS.contains(&target))
    };
    let volume = |mount: &Map<String, Value>| {
        let volumes = format!("/{}/volumes/", carried::root(source)?);
        let name = text(mount, "source")?.strip_prefix(&volumes)?;
        (text(mount, "type") == Some("lofs") && is_uuid(name)).then(|| json!(name))
    };
    let mounts = entries(source, "filesystems").into_iter().filter(|mount| !adds(mount));
    let mounts = mounts.map(|mount| {
        let rows = carried::FILESYSTEMS.iter();
        let kept = rows.filter_map(|row| Some((row.key.to_owned(), mount.get(row.key)?.clone())));
        let mut kept: Map<String, Value> = kept.collect();
        if let Some(volume) = volume(mount) {
            kept.insert("source".into(), volume);
        }
        Value::Object(kept)
    });
    mounts.collect()
}

#[cfg(test)]
mod tests;
