// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What differs between the node's object and VMAPI's record. What VMAPI adds to a record, leaves out
//! of it or makes up is no difference.

use sdc_clients::vminfod::VmFields as _;
use serde_json::{Map, Value};

use super::record::Record;

/// The fields of an object that VMAPI stores: where the record lacks one, it lacks it.
const STORED: [&str; 34] = [
    "alias",
    "autoboot",
    "billing_id",
    "brand",
    "cpu_cap",
    "cpu_shares",
    "create_timestamp",
    "customer_metadata",
    "datasets",
    "delegate_dataset",
    "firewall_enabled",
    "internal_metadata",
    "last_modified",
    "limit_priv",
    "max_locked_memory",
    "max_lwps",
    "max_physical_memory",
    "max_swap",
    "nics",
    "owner_uuid",
    "platform_buildstamp",
    "quota",
    "ram",
    "resolvers",
    "server_uuid",
    "snapshots",
    "state",
    "tags",
    "tmpfs",
    "zfs_filesystem",
    "zfs_io_priority",
    "zone_state",
    "zonepath",
    "zpool",
];
/// Of these VMAPI stores the first two for machines with disks of their own, the last for all others.
const BY_BRAND: [&str; 3] = ["disks", "vcpus", "image_uuid"];
/// The fields of a record that are not the node's, and those of an object that VMAPI drops.
const NOT_COMPARED: [&str; 7] =
    ["destroyed", "role_tags", "do_not_inventory", "routes", "v", "zoneid", "zonename"];

/// Returns the names of the fields that differ, in order.
pub fn differences(record: &Record, object: &Map<String, Value>) -> Vec<String> {
    let mut keys: Vec<&String> = record.0.keys().chain(object.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&String| {
        let stored = record.0.get(*key).filter(|value| !is_default(value));
        let here = object.get(*key).filter(|value| !is_default(value));
        match (stored, here) {
            _ if NOT_COMPARED.contains(&key.as_str()) => false,
            _ if *key == "state" && record.has_made_up_state() => false,
            (None, None) => false,
            (None, Some(_)) => is_stored(key, object),
            // Where it is not set, VMAPI shows the other one.
            (Some(stored), None) if *key == "ram" => {
                object.get("max_physical_memory").is_none_or(|here| !same(stored, here))
            }
            (Some(_), None) => true,
            (Some(stored), Some(here)) => !same(stored, here),
        }
    };
    keys.into_iter().filter(differs).cloned().collect()
}

fn is_stored(key: &str, object: &Map<String, Value>) -> bool {
    if !BY_BRAND.contains(&key) {
        return STORED.contains(&key);
    }
    let brand = object.brand();
    let has_disks = matches!(brand, Some("kvm" | "bhyve"));
    has_disks == (key != "image_uuid")
}

/// Returns true for what VMAPI shows for a field that is not set.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Compares two values. Numbers are JavaScript's, and an array of objects (NICs, disks, snapshots) is
/// a set.
fn same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            let is_in = |item: &Value| item.is_object() && two.iter().any(|it| same(item, it));
            one.len() == two.len()
                && one.iter().zip(two).all(|(one, two)| same(one, two) || is_in(one))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().all(|(key, one)| two.get(key).is_some_and(|two| same(one, two)))
        }
        (one, two) => one == two,
    }
}
