// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has to be changed on the target so that it has the settings of the source. Pure.

mod nics;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::carried::{self, How, Row, Unset, entries, members, text};
use crate::machine::SettingsMatch;

/// The limits that `vmadm update` moves together: each is given where one differs.
const MEMORY: [&str; 5] = ["max_locked_memory", "max_physical_memory", "max_swap", "ram", "tmpfs"];

/// Compares the settings of the two copies.
pub fn settings(source: &Map<String, Value>, target: &Map<String, Value>) -> SettingsMatch {
    let disks = |of: &Map<String, Value>| -> BTreeSet<String> {
        entries(of, "disks").iter().map(|disk| json!(disk.get("path")).to_string()).collect()
    };
    let is_alike = |field: &&str| source.get(*field) == target.get(*field);
    if !["brand", "image_uuid"].iter().all(is_alike) || disks(source) != disks(target) {
        return SettingsMatch::Remade;
    }
    match bring_over(source, target).is_empty() {
        true => SettingsMatch::Same,
        false => SettingsMatch::Differ,
    }
}

/// Returns the payloads of `vmadm update` for the target, in this order; none if nothing differs.
pub fn bring_over(
    source: &Map<String, Value>,
    target: &Map<String, Value>,
) -> Vec<Map<String, Value>> {
    let brand = text(source, "brand").unwrap_or_default();
    let mut update = plain(source, target, brand);
    for row in carried::TOP.iter().filter(|row| row.how == How::Members) {
        changed_members(row.key, source, target, &mut update);
    }
    let nics = nics::changes(source, target, brand);
    update.extend(nics.first);
    let mut updates: Vec<Map<String, Value>> =
        [update, nics.then].into_iter().filter(|update| !update.is_empty()).collect();
    // An update of a bhyve VM that names neither of its consoles sets both to their defaults.
    for update in &mut updates {
        for row in consoles(brand) {
            if let Ok(Some(value)) = row.value(source) {
                update.insert(row.key.into(), value);
            }
        }
    }
    updates
}

/// Returns the first key of an update that brings no setting over; none of one that [`bring_over`] may return.
pub fn foreign(update: &Map<String, Value>) -> Option<String> {
    update.iter().find_map(|(key, value)| match key.split_once("_nics") {
        Some(("remove", "")) => None,
        Some(("add" | "update", "")) => nics::foreign(value),
        _ if is_setting(key) => None,
        _ => Some(key.clone()),
    })
}

fn is_setting(key: &str) -> bool {
    let members = key.strip_prefix("set_").or(key.strip_prefix("remove_"));
    let has = |key: &str, is: fn(How) -> bool| carried::row(key).is_some_and(|row| is(row.how));
    has(key, |how| matches!(how, How::Given(_)))
        || members.is_some_and(|key| has(key, |how| how == How::Members))
}

/// The keys that each update of a VM of this brand has to name.
fn consoles(brand: &str) -> impl Iterator<Item = &'static Row> {
    carried::CONSOLES.into_iter().filter_map(carried::row).filter(move |row| row.brands.has(brand))
}

/// The values of an object, as `vmadm` takes and settles them.
fn settled(object: &Map<String, Value>, brand: &str) -> Map<String, Value> {
    let mut values = Map::new();
    for row in rows(brand) {
        // What vmadm does not take cannot be brought over.
        if let Ok(Some(value)) = row.value(object) {
            values.insert(row.key.into(), value);
        }
    }
    carried::settle_memory(brand, &mut values);
    values
}

fn rows(brand: &str) -> impl Iterator<Item = &'static Row> {
    let is_given = |row: &&Row| matches!(row.how, How::Given(_));
    carried::TOP.iter().filter(is_given).filter(move |row| row.brands.has(brand))
}

/// The keys that differ, with what removes those that the source lacks.
fn plain(
    source: &Map<String, Value>,
    target: &Map<String, Value>,
    brand: &str,
) -> Map<String, Value> {
    let (source, target) = (settled(source, brand), settled(target, brand));
    let mut update = Map::new();
    for row in rows(brand) {
        let (want, has) = (source.get(row.key), target.get(row.key));
        if want == has {
            continue;
        }
        let value = match (want, row.how) {
            (Some(want), _) => want.clone(),
            (None, How::Given(Unset::Null)) => Value::Null,
            (None, How::Given(Unset::Empty)) => json!(""),
            (None, How::Given(Unset::False)) => json!(false),
            (None, How::Given(Unset::True)) => json!(true),
            (None, _) => continue,
        };
        update.insert(row.key.into(), value);
    }
    if MEMORY.iter().any(|key| update.contains_key(*key)) {
        for key in MEMORY {
            if let Some(value) = source.get(key) {
                update.insert(key.into(), value.clone());
            }
        }
    }
    update
}

/// Sets the members that differ, and removes those that the source lacks.
fn changed_members(
    key: &str,
    source: &Map<String, Value>,
    target: &Map<String, Value>,
    update: &mut Map<String, Value>,
) {
    let (has, keeps) = (members(target, key), source.get(key));
    let mut set = members(source, key);
    set.retain(|name, value| has.get(name) != Some(value));
    // A name with a comma cannot be removed so: it goes with the stream.
    let is_gone = |name: &&String| keeps.is_none_or(|all| all.get(*name).is_none());
    let gone: Vec<&String> =
        has.keys().filter(is_gone).filter(|name| !name.contains(',')).collect();
    if !set.is_empty() {
        update.insert(format!("set_{key}"), Value::Object(set));
    }
    if !gone.is_empty() {
        update.insert(format!("remove_{key}"), json!(gone));
    }
}

#[cfg(test)]
mod tests;
