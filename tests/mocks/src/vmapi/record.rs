// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One VM record: what is kept of an object that was sent, and what is shown of a record. Pure.

use serde_json::{Map, Value, json};

use crate::restify::{falsy, iso};

/// A stored record: the fields that were set, in the order in which they are shown.
pub type Record = Map<String, Value>;

/// The fields that every GET shows, in its order; `image_uuid` comes last.
const ALWAYS: [&str; 34] = [
    "uuid",
    "alias",
    "autoboot",
    "brand",
    "billing_id",
    "cpu_cap",
    "cpu_shares",
    "create_timestamp",
    "customer_metadata",
    "datasets",
    "destroyed",
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
    "zfs_filesystem",
    "zfs_io_priority",
    "zone_state",
    "zonepath",
    "zpool",
];
/// The fields that are shown only where they were set.
const WHEN_SET: [&str; 17] = [
    "tmpfs",
    "docker",
    "delegate_dataset",
    "flexible_disk_size",
    "free_space",
    "dns_domain",
    "fs_allowed",
    "hostname",
    "indestructible_delegated",
    "indestructible_zoneroot",
    "maintain_resolvers",
    "mdata_exec_timeout",
    "package_name",
    "package_version",
    "zfs_data_compression",
    "zfs_snapshot_limit",
    "zlog_max_size",
];
/// What `fields=*` leaves out.
const NOT_IN_ALL: [&str; 1] = ["docker"];
/// May come as JSON or as its text.
const STRUCTURED: [&str; 7] =
    ["nics", "disks", "datasets", "snapshots", "customer_metadata", "internal_metadata", "tags"];
const TIMES: [&str; 3] = ["create_timestamp", "last_modified", "destroyed"];

/// What depends on the brand, shown by every GET: machines with disks have no image of their own.
fn of_brand(brand: &str) -> &'static [&'static str] {
    match brand {
        "kvm" | "bhyve" => &["vcpus", "cpu_type", "disks"],
        _ => &["image_uuid"],
    }
}

/// A field that is a text; empty if there is none.
pub(super) fn text<'a>(object: &'a Record, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns what is kept of an object: known fields that are neither null nor the empty text.
pub fn kept(sent: &Map<String, Value>) -> Record {
    let brand = of_brand(text(sent, "brand"));
    let names = ALWAYS.iter().chain(&WHEN_SET).chain(brand);
    let mut record = Record::new();
    for name in names {
        let value = match sent.get(*name) {
            None if *name == "tags" => json!({}),
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) if text.is_empty() => continue,
            Some(Value::String(text)) if STRUCTURED.contains(name) => {
                let parsed = serde_json::from_str(text).ok();
                parsed.unwrap_or_else(|| if *name == "tags" { json!({}) } else { json!(text) })
            }
            Some(value) if TIMES.contains(name) && !falsy(value) => time(value),
            Some(value) => value.clone(),
        };
        record.insert((*name).to_owned(), value);
    }
    record
}

/// A time in its usual form; null if it is none.
fn time(value: &Value) -> Value {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    let parsed = match number {
        #[allow(clippy::cast_possible_truncation)] // Milliseconds.
        Some(ms) => Some(ms as i64),
        None => value
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .map(|at| at.as_millisecond()),
    };
    parsed.map_or(Value::Null, |ms| json!(iso(ms)))
}

/// Returns the record as a GET answers it: the usual fields have a default.
pub(super) fn as_get(record: &Record) -> Record {
    let brand = of_brand(text(record, "brand"));
    let mut shown = Record::new();
    let mut show = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
    for name in ALWAYS.iter().chain(brand) {
        show(name, record.get(*name).cloned().unwrap_or_else(|| default(name)));
    }
    for name in WHEN_SET {
        if let Some(value) = record.get(name) {
            show(name, value.clone());
        }
    }
    // Of what shares the node's kernel.
    if brand == ["image_uuid"] && shown["ram"].is_null() {
        shown["ram"] = shown["max_physical_memory"].clone();
    }
    shown
}

fn default(name: &str) -> Value {
    match name {
        "firewall_enabled" => json!(false),
        "datasets" | "nics" | "snapshots" => json!([]),
        "customer_metadata" | "internal_metadata" | "tags" => json!({}),
        _ => Value::Null,
    }
}

/// Returns true if `fields=` of a list may name it.
pub(super) fn is_field(name: &str) -> bool {
    matches!(name, "*" | "role_tags" | "image_uuid" | "vcpus" | "cpu_type" | "disks")
        || ALWAYS.contains(&name)
        || WHEN_SET.contains(&name)
}

/// Returns the record as a GET with `fields=` answers it; names that it does not have are left out.
pub(super) fn with_fields(record: &Record, fields: Option<&str>, role_tags: &[String]) -> Value {
    let mut all = as_get(record);
    let Some(fields) = fields else { return Value::Object(all) };
    all.insert("role_tags".to_owned(), json!(role_tags));
    if fields.split(',').any(|name| name == "*") {
        all.retain(|name, _| !NOT_IN_ALL.contains(&name.as_str()));
        return Value::Object(all);
    }
    let named =
        fields.split(',').filter_map(|name| Some((name.to_owned(), all.get(name)?.clone())));
    Value::Object(named.collect())
}
