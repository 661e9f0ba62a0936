// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has to be changed on the target so that it has the settings of the source. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::machine::Settings;

/// Fields that `vmadm update` sets as they are.
const PLAIN: [&str; 25] = [
    "alias",
    "billing_id",
    "cpu_cap",
    "cpu_shares",
    "dns_domain",
    "firewall_enabled",
    "fs_allowed",
    "hostname",
    "limit_priv",
    "maintain_resolvers",
    "max_locked_memory",
    "max_lwps",
    "max_msg_ids",
    "max_physical_memory",
    "max_sem_ids",
    "max_shm_ids",
    "max_swap",
    "owner_uuid",
    "package_name",
    "quota",
    "ram",
    "resolvers",
    "tmpfs",
    "vcpus",
    "zfs_io_priority",
];

/// Objects of which single members are set and removed.
const MAPS: [&str; 4] = ["customer_metadata", "internal_metadata", "routes", "tags"];

/// Fields of a NIC that the node makes.
const MADE_OF_A_NIC: [&str; 1] = ["interface"];

/// Compares the settings of the two copies.
pub fn settings(source: &Map<String, Value>, target: &Map<String, Value>) -> Settings {
    let disks = |of: &Map<String, Value>| -> BTreeSet<String> {
        let disks = of.get("disks").and_then(Value::as_array).into_iter().flatten();
        disks.map(|disk| disk["path"].to_string()).collect()
    };
    let is_alike = |field: &&str| source.get(*field) == target.get(*field);
    if !["brand", "image_uuid"].iter().all(is_alike) || disks(source) != disks(target) {
        return Settings::Remade;
    }
    match bring_over(source, target) {
        None => Settings::Same,
        Some(_) => Settings::Differ,
    }
}

/// Returns the payload of `vmadm update` for the target; none if nothing differs.
pub fn bring_over(
    source: &Map<String, Value>,
    target: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let mut update = Map::new();
    for change in vm_model::diff::diff(target, source) {
        let Some(Some(field)) = change.path.first() else { continue };
        let field = field.as_str();
        if update.contains_key(field) {
            continue;
        }
        if PLAIN.contains(&field) {
            // What the source lacks has its default there.
            update.insert(field.into(), source.get(field).cloned().unwrap_or(Value::Null));
        } else if MAPS.contains(&field) {
            map(field, source, target, &mut update);
        } else if field == "nics" {
            nics(source, target, &mut update);
        }
    }
    (!update.is_empty()).then_some(update)
}

/// Sets the members that differ, and removes those that the source lacks.
fn map(
    field: &str,
    source: &Map<String, Value>,
    target: &Map<String, Value>,
    update: &mut Map<String, Value>,
) {
    let empty = Map::new();
    let of = |object: &Map<String, Value>| {
        object.get(field).and_then(Value::as_object).cloned().unwrap_or(empty.clone())
    };
    let (source, target) = (of(source), of(target));
    let set: Map<String, Value> = source
        .iter()
        .filter(|(name, value)| target.get(*name) != Some(*value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let gone: Vec<&String> = target.keys().filter(|name| !source.contains_key(*name)).collect();
    if !set.is_empty() {
        update.insert(format!("set_{field}"), Value::Object(set));
    }
    if !gone.is_empty() {
        update.insert(format!("remove_{field}"), json!(gone));
    }
}

/// Adds, updates and removes NICs by their MACs.
fn nics(source: &Map<String, Value>, target: &Map<String, Value>, update: &mut Map<String, Value>) {
    let of = |object: &Map<String, Value>| {
        let nics = object.get("nics").and_then(Value::as_array).into_iter().flatten();
        nics.filter_map(|nic| {
            let mut nic = nic.as_object()?.clone();
            MADE_OF_A_NIC.iter().for_each(|name| drop(nic.shift_remove(*name)));
            Some(nic)
        })
        .collect::<Vec<Map<String, Value>>>()
    };
    let (source, target) = (of(source), of(target));
    let find = |nics: &[Map<String, Value>], nic: &Map<String, Value>| {
        nics.iter().find(|other| other.get("mac") == nic.get("mac")).cloned()
    };
    let (mut added, mut updated) = (Vec::new(), Vec::new());
    for nic in &source {
        match find(&target, nic) {
            None => added.push(nic.clone()),
            Some(there) if there != *nic => updated.push(nic.clone()),
            Some(_) => {}
        }
    }
    let gone = target.iter().filter(|nic| find(&source, nic).is_none());
    let gone: Vec<Value> = gone.filter_map(|nic| nic.get("mac").cloned()).collect();
    for (name, list) in
        [("add_nics", json!(added)), ("update_nics", json!(updated)), ("remove_nics", json!(gone))]
    {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            update.insert(name.into(), list);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pretty_assertions::assert_eq;

    use super::*;

    fn vm(fields: Value) -> Map<String, Value> {
        let mut vm = json!({
            "uuid": "u", "alias": "a", "ram": 1024, "state": "running", "autoboot": true, "zoneid": 3,
            "tags": {"keep": "1", "old": true}, "customer_metadata": {}, "resolvers": ["8.8.8.8"],
            "nics": [{"mac": "m1", "ip": "10.0.0.1", "interface": "net0"}],
            "brand": "bhyve", "vcpus": 1, "disks": [{"path": "/dev/zvol/rdsk/zones/u/disk0", "size": 10}],
        });
        vm.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        vm.as_object().unwrap().clone()
    }

    #[test] // R25 M17
    fn what_was_changed_during_the_syncs_is_brought_over() {
        let hidden = json!({
            "state": "stopped", "autoboot": false, "do_not_inventory": true, "zoneid": 9,
            "nics": [{"mac": "m1", "ip": "10.0.0.1", "interface": "net3"}],
        });
        assert_eq!(bring_over(&vm(json!({})), &vm(hidden.clone())), None);
        let source = vm(json!({
            "alias": "b", "ram": 2048, "tags": {"keep": "1", "new": 2}, "resolvers": [],
            "customer_metadata": {"user-script": "x"},
            "nics": [{"mac": "m1", "ip": "10.0.0.2", "interface": "net0"}, {"mac": "m2", "ip": "10.0.0.3"}],
        }));
        let mut target = vm(hidden);
        target.insert("nics".into(), json!([{"mac": "m1", "ip": "10.0.0.1"}, {"mac": "m0"}]));
        assert_eq!(
            Value::Object(bring_over(&source, &target).unwrap()),
            json!({
                "alias": "b", "ram": 2048, "set_tags": {"new": 2}, "remove_tags": ["old"],
                "set_customer_metadata": {"user-script": "x"}, "resolvers": [],
                "update_nics": [{"mac": "m1", "ip": "10.0.0.2"}], "add_nics": [{"mac": "m2", "ip": "10.0.0.3"}],
                "remove_nics": ["m0"],
            })
        );
    }

    #[test] // R25
    fn what_no_update_changes_is_told_from_what_one_does() {
        for (changed, want) in [
            (json!({"state": "stopped", "zoneid": null}), Settings::Same),
            (
                json!({"disks": [{"path": "/dev/zvol/rdsk/zones/u/disk0", "size": 20}]}),
                Settings::Same,
            ),
            (json!({"ram": 2048}), Settings::Differ),
            (json!({"vcpus": 4}), Settings::Differ),
            (json!({"brand": "kvm"}), Settings::Remade),
            (json!({"image_uuid": "another", "ram": 2048}), Settings::Remade),
            (json!({"disks": []}), Settings::Remade),
        ] {
            assert_eq!(settings(&vm(changed.clone()), &vm(json!({}))), want, "{changed}");
        }
    }
}
