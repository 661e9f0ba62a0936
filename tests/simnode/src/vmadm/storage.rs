// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The second pass: record sizes, compression, limits of datasets, and two words of a guest.

use serde_json::{Value, json};

use super::kinds::is_block_size;
use super::refusal::Refusal;
use crate::payload::{self, Payload};

/// The algorithms of zfs that vmadm knows.
const COMPRESSIONS: [&str; 15] = [
    "on", "off", "gzip", "gzip-1", "gzip-2", "gzip-3", "gzip-4", "gzip-5", "gzip-6", "gzip-7",
    "gzip-8", "gzip-9", "lz4", "lzjb", "zle",
];
const LARGEST_RECORD: u64 = 131_072;
const DISPLAYS: [&str; 5] = ["cirrus", "std", "vmware", "qxl", "xenfb"];
const LONGEST_PASSWORD: usize = 8;

/// Returns true if vmadm knows the algorithm.
pub(crate) fn is_compression(name: &str) -> bool {
    COMPRESSIONS.contains(&name)
}

/// The algorithms, as an answer lists them.
pub(crate) fn compressions() -> String {
    COMPRESSIONS.join(", ")
}

/// Checks and completes the properties of the VM's datasets.
pub(crate) fn check(vm: &mut Payload) -> Result<(), Refusal> {
    for name in ["zfs_root_compression", "zfs_data_compression"] {
        if let Some(given) =
            payload::text(vm, name).filter(|given| !given.is_empty() && !is_compression(given))
        {
            let all = compressions();
            return Refusal::rule(format!(
                "invalid compression type for {given}, must be one of: {all}"
            ));
        }
    }
    for name in ["zfs_root_recsize", "zfs_data_recsize"] {
        match vm.get(name) {
            None | Some(Value::Null) => {}
            Some(given) if given.as_u64() == Some(0) => {
                drop(vm.insert(name.to_string(), json!(LARGEST_RECORD)))
            }
            Some(given) if given.as_u64().is_some_and(is_block_size) => {}
            Some(given) => {
                let rule = "must be 512-131072 and a power of 2. (0 to disable)";
                return Refusal::rule(format!("invalid {name} ({given}), {rule}"));
            }
        }
    }
    // What is said of the root only does not hold for the data below it.
    for (root, data, value) in [
        ("zfs_root_compression", "zfs_data_compression", json!("off")),
        ("zfs_root_recsize", "zfs_data_recsize", json!(LARGEST_RECORD)),
    ] {
        if vm.contains_key(root) {
            vm.entry(data).or_insert(value);
        }
    }
    for (name, unset) in [
        ("zfs_snapshot_limit", json!("none")),
        ("zfs_filesystem_limit", json!("none")),
        ("quota", json!(0)),
    ] {
        if let Some(value) = vm.get_mut(name).filter(|value| value.is_null()) {
            *value = unset;
        }
    }
    guest(vm)
}

fn guest(vm: &Payload) -> Result<(), Refusal> {
    if let Some(given) = payload::text(vm, "vga").filter(|given| !DISPLAYS.contains(given)) {
        let all = DISPLAYS.join(",");
        return Refusal::rule(format!("Invalid VGA type: \"{given}\", supported types are: {all}"));
    }
    if payload::text(vm, "vnc_password")
        .is_some_and(|given| given.chars().count() > LONGEST_PASSWORD)
    {
        let what =
            format!("VNC password is too long, maximum length is {LONGEST_PASSWORD} characters.");
        return Refusal::rule(what);
    }
    Ok(())
}
