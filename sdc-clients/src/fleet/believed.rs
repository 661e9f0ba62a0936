// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is believed of what a node publishes: fields that a VM object has, of the types that they have, of texts as much
//! as people read. Whoever holds a node's key publishes what he likes under that node's name; checked here, it is of one
//! shape for all that read the feed. The same list says what leaves a node. Pure.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::vminfod::VmObject;

/// The longest text, in characters.
const LONGEST: usize = 1024;
/// The most members of a list or a map, and how deep they lie.
const MOST: usize = 4096;
const DEEPEST: usize = 6;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// True or false, also as a text.
    Flag,
    /// A list of texts.
    Texts,
    /// A list of objects.
    Objects,
    Map,
}

/// The fields of a VM object that leave a node. What vminfod shows and is not here stays: commands of QEMU and bhyve have
/// passwords in them.
const FIELDS: &[(Kind, &[&str])] = &[
    (
        Kind::Text,
        &[
            "alias",
            "billing_id",
            "boot",
            "boot_timestamp",
            "bootrom",
            "brand",
            "com1",
            "com2",
            "cpu_type",
            "create_timestamp",
            "datacenter_name",
            "default_gateway",
            "disk_driver",
            "dns_domain",
            "exit_timestamp",
            "failed",
            "fs_allowed",
            "hostname",
            "image_uuid",
            "init_name",
            "kernel_version",
            "last_modified",
            "limit_priv",
            "nic_driver",
            "owner_uuid",
            "package_name",
            "package_version",
            "platform_buildstamp",
            "server_uuid",
            "spice_password",
            "state",
            "transition",
            "transition_to",
            "type",
            "uuid",
            "vga",
            "vnc_password",
            "zfs_data_compression",
            "zfs_filesystem",
            "zfs_root_compression",
            "zlog_mode",
            "zlog_name",
            "zone_state",
            "zonename",
            "zonepath",
            "zpool",
        ],
    ),
    (
        Kind::Number,
        &[
            "cpu_cap",
            "cpu_shares",
            "exit_status",
            "flexible_disk_size",
            "free_space",
            "headnode_id",
            "init_restarts",
            "max_locked_memory",
            "max_lwps",
            "max_msg_ids",
            "max_physical_memory",
            "max_sem_ids",
            "max_shm_ids",
            "max_shm_memory",
            "max_swap",
            "pid",
            "quota",
            "ram",
            "spice_port",
            "tmpfs",
            "transition_expire",
            "v",
            "vcpus",
            "virtio_txburst",
            "virtio_txtimer",
            "vnc_port",
            "zfs_data_recsize",
            "zfs_filesystem_limit",
            "zfs_io_priority",
            "zfs_root_recsize",
            "zfs_snapshot_limit",
            "zlog_max_size",
            "zonedid",
            "zoneid",
        ],
    ),
    (
        Kind::Flag,
        &[
            "app_svc_dependent",
            "archive_on_delete",
            "autoboot",
            "do_not_inventory",
            "docker",
            "firewall_enabled",
            "hvm",
            "indestructible_delegated",
            "indestructible_zoneroot",
            "maintain_resolvers",
            "provisioning",
            "restart_init",
            "vm_autoboot",
        ],
    ),
    (Kind::Texts, &["datasets", "internal_metadata_namespaces", "resolvers"]),
    (Kind::Objects, &["disks", "filesystems", "nics", "pci_devices", "snapshots"]),
    (Kind::Map, &["customer_metadata", "internal_metadata", "missing", "routes", "tags"]),
];

fn kind(field: &str) -> Option<Kind> {
    FIELDS.iter().find(|(_, names)| names.contains(&field)).map(|(kind, _)| *kind)
}

/// Returns true if a field of a VM object leaves its node.
pub fn is_published(field: &str) -> bool {
    kind(field).is_some()
}

/// Returns what is believed of a VM object, and how many of its fields are left out.
pub(super) fn object(vm: VmObject) -> (VmObject, usize) {
    let all = vm.len();
    let fields = vm.into_iter().filter_map(|(name, value)| {
        let value = match (kind(&name)?, value) {
            (_, Value::Null) => Value::Null,
            (Kind::Text, value @ Value::String(_))
            | (Kind::Number, value @ Value::Number(_))
            | (Kind::Flag, value @ Value::Bool(_))
            | (Kind::Map, value @ Value::Object(_)) => value,
            (Kind::Flag, Value::String(text)) if text.parse::<bool>().is_ok() => text.into(),
            (Kind::Texts, Value::Array(all)) => all.into_iter().filter(Value::is_string).collect(),
            (Kind::Objects, Value::Array(all)) => {
                all.into_iter().filter(Value::is_object).collect()
            }
            _ => return None,
        };
        Some((name, cut(value, DEEPEST)))
    });
    let fields: VmObject = fields.collect();
    let left_out = all - fields.len();
    (fields, left_out)
}

/// Returns a value as much of which is read as people read.
pub(super) fn value(value: Value) -> Value {
    cut(value, DEEPEST)
}

fn cut(value: Value, deep: usize) -> Value {
    match value {
        Value::String(text) => Value::String(short(text, LONGEST)),
        Value::Array(_) | Value::Object(_) if deep == 0 => Value::Null,
        Value::Array(all) => all.into_iter().take(MOST).map(|it| cut(it, deep - 1)).collect(),
        Value::Object(all) => {
            let all = all.into_iter().take(MOST);
            Value::Object(all.map(|(name, it)| (short(name, LONGEST), cut(it, deep - 1))).collect())
        }
        value => value,
    }
}

/// Returns a text of at most so many characters.
pub(super) fn short(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// The fields of an object of JSON, each read by its type; those that are of another one are counted.
#[derive(Debug)]
pub(super) struct Fields {
    all: Map<String, Value>,
    pub(super) left_out: usize,
}

impl Fields {
    /// Reads a body. One that is no object is one field that is left out.
    pub(super) fn of(body: &[u8]) -> Fields {
        match serde_json::from_slice(body) {
            Ok(Value::Object(all)) => Fields { all, left_out: 0 },
            _ => Fields { all: Map::new(), left_out: 1 },
        }
    }

    /// Takes a field; none if it is not there, is null, or is of another type.
    pub(super) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.all.remove(name).filter(|it| !it.is_null())?;
        let read = serde_json::from_value(cut(value, DEEPEST)).ok();
        self.left_out += usize::from(read.is_none());
        read
    }

    /// Takes a list, of which each member is read by its type.
    pub(super) fn list<T: DeserializeOwned>(&mut self, name: &str, most: usize) -> Vec<T> {
        let all: Vec<Value> = self.take(name).unwrap_or_default();
        let count = all.len();
        let read = all.into_iter().filter_map(|it| serde_json::from_value(it).ok());
        let read: Vec<T> = read.take(most).collect();
        self.left_out += count - read.len();
        read
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn believed(vm: Value) -> (Value, usize) {
        let Value::Object(vm) = vm else { panic!("{vm}") };
        let (vm, left_out) = object(vm);
        (Value::Object(vm), left_out)
    }

    #[test] // N37
    fn a_field_of_another_type_or_that_no_vm_has_is_left_out_and_counted() {
        for odd in [json!({"a": 1}), json!([1]), json!(7), json!(true)] {
            let vm = json!({"alias": odd, "state": "running", "ram": 512});
            assert_eq!(believed(vm), (json!({"state": "running", "ram": 512}), 1));
        }
        let vm = json!({"uuid": "u", "qemu_opts": "-vnc password", "__proto__": {}, "ram": "512",
            "nics": [{"ip": "10.0.0.1"}, "x", 7], "resolvers": ["8.8.8.8", {}], "tags": [],
            "autoboot": "true", "do_not_inventory": "maybe", "zoneid": null});
        let want = json!({"uuid": "u", "nics": [{"ip": "10.0.0.1"}], "resolvers": ["8.8.8.8"],
            "autoboot": "true", "zoneid": null});
        assert_eq!(believed(vm), (want, 5));
    }

    #[test] // N37
    fn a_text_is_as_long_as_people_read_and_nothing_is_deep_or_many() {
        let deep = (0..100).fold(json!("x"), |inner, _| json!({ "a": inner }));
        let many: Vec<Value> = (0..10_000).map(|at| json!({"mac": at.to_string()})).collect();
        let vm = json!({"alias": "ä".repeat(700_000), "tags": deep, "nics": many});
        let (vm, left_out) = believed(vm);
        assert_eq!(left_out, 0);
        assert_eq!(vm["alias"].as_str().map(|it| it.chars().count()), Some(LONGEST + 1));
        assert_eq!(vm["nics"].as_array().map(Vec::len), Some(MOST));
        assert!(vm["tags"].to_string().len() < 100, "{}", vm["tags"]);
    }
}
