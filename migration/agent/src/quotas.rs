// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Quotas that are in the way of a sync: each is in the state file before it is lifted, and leaves it when it is set
//! again.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::failed::Failed;
use super::memory::Entry;
use super::parts::Parts;
use super::zfs::{Property, Set, args};
use super::zoned::{self, MOUNTS};
use migration_core::protocol::Properties;

/// The limits that can be in the way.
pub const LIFTED: [&str; 2] = ["quota", "refquota"];

/// Returns true for what `zfs` writes for no limit.
fn is_none(value: &str) -> bool {
    ["none", "0", "-"].contains(&value)
}

/// Lifts all limits of a dataset and what is below it: of a copy that no VM uses.
pub async fn lift_all(parts: &Parts, migration: Uuid, dataset: &str) -> Result<(), Failed> {
    let rows = parts.zfs.tree(&LIFTED, dataset).await?;
    let rows: Vec<Property> = rows.into_iter().filter(|row| !is_none(&row.value)).collect();
    let save = |entry: &mut Entry| {
        for row in &rows {
            let saved = entry.quotas.entry(row.of.clone()).or_default();
            saved.entry(row.name.clone()).or_insert_with(|| row.value.clone());
        }
    };
    parts.memory.change(migration, save).await?;
    lift(parts, rows).await
}

/// Lifts the quotas of a dataset and what is below it that would make a snapshot or the other node's receive fail:
/// those that are nearly used up, and those that a reservation takes up.
pub async fn lift_tight(parts: &Parts, migration: Uuid, dataset: &str) -> Result<(), Failed> {
    let wanted = ["quota", "used", "reservation", "refreservation"];
    let rows = parts.zfs.tree(&wanted, dataset).await?;
    let mut by_name: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for row in &rows {
        let value = row.value.parse().unwrap_or(0);
        by_name.entry(&row.of).or_default().insert(&row.name, value);
    }
    let number = |of: &BTreeMap<&str, u64>, key: &str| of.get(key).copied().unwrap_or(0);
    let is_reserved = by_name
        .values()
        .any(|of| number(of, "reservation") > 0 || number(of, "refreservation") > 0);
    let is_tight = |of: &BTreeMap<&str, u64>| {
        let (quota, used) = (number(of, "quota"), number(of, "used"));
        quota > 0 && (is_reserved || used >= quota / 20 * 19)
    };
    let tight =
        |row: &&Property| row.name == "quota" && by_name.get(row.of.as_str()).is_some_and(is_tight);
    let rows: Vec<Property> = rows.iter().filter(tight).cloned().collect();
    let save = |entry: &mut Entry| {
        for row in &rows {
            let saved = entry.quotas.entry(row.of.clone()).or_default();
            saved.insert(row.name.clone(), row.value.clone());
            entry.tight.insert(row.of.clone());
        }
    };
    parts.memory.change(migration, save).await?;
    lift(parts, rows).await
}

async fn lift(parts: &Parts, rows: Vec<Property>) -> Result<(), Failed> {
    for row in rows {
        parts.zfs.change(args(&["set", &format!("{}=none", row.name), &row.of])).await?;
    }
    Ok(())
}

/// Returns what is set on a dataset and those below it, with the quotas that they are to have again.
pub async fn with_quotas(parts: &Parts, migration: Uuid, dataset: &str) -> Result<Set, Failed> {
    let mut all = parts.zfs.set_by_people(dataset).await?;
    let Some(entry) = parts.memory.get(migration) else { return Ok(all) };
    let found = &mut all.carried;
    for (of, quotas) in entry.quotas {
        if of == dataset || of.starts_with(&format!("{dataset}/")) {
            let is_tight = entry.tight.contains(&of);
            let found = found.entry(of).or_default();
            for (name, saved) in quotas {
                let is_since = |now: &&String| is_tight && name != MOUNTS && !is_none(now);
                let set_since = found.get(&name).filter(is_since).cloned();
                found.insert(name, set_since.unwrap_or(saved));
            }
        }
    }
    Ok(all)
}

/// Takes over what quotas the receiver's datasets are to have when they are restored: those of the sender.
pub async fn expect(
    parts: &Parts,
    migration: Uuid,
    dataset: &str,
    properties: &Properties,
) -> Result<(), Failed> {
    let mut quotas = Properties::new();
    quotas.entry(dataset.to_owned()).or_default();
    for (of, set) in properties {
        let of = quotas.entry(of.clone()).or_default();
        of.extend(
            LIFTED
                .iter()
                .filter_map(|name| set.get_key_value(*name))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }
    for of in quotas.values_mut() {
        for name in LIFTED {
            of.entry(name.to_owned()).or_insert_with(|| "none".to_owned());
        }
    }
    let take_over = |entry: &mut Entry| {
        entry.tight.retain(|dataset| !quotas.contains_key(dataset));
        for (of, limits) in &quotas {
            entry.quotas.entry(of.clone()).or_default().extend(limits.clone());
        }
        // What the sender has set of it is set with the rest.
        for (of, _) in properties.iter().filter(|(_, set)| set.contains_key(MOUNTS)) {
            entry.quotas.entry(of.clone()).or_default().remove(MOUNTS);
        }
    };
    Ok(parts.memory.change(migration, take_over).await?)
}

/// Sets the limits as they were, or as the sender has them. What is gone needs none.
pub async fn restore(parts: &Parts, migration: Uuid) -> Result<(), Failed> {
    let Some(entry) = parts.memory.get(migration) else { return Ok(()) };
    if entry.quotas.values().any(|of| of.contains_key(MOUNTS)) {
        zoned::give(parts, &zoned::delegated(parts, entry.vm).await?).await?;
    }
    for (dataset, quotas) in &entry.quotas {
        for (name, wanted) in quotas {
            let of = std::slice::from_ref(dataset);
            let Some(found) = parts.zfs.each(name, of).await?.remove(dataset) else { continue };
            let is_volume = found == "-";
            let was_set_since = entry.tight.contains(dataset) && name != MOUNTS && !is_none(&found);
            if is_same(&found, wanted) || is_volume || was_set_since {
                continue;
            }
            parts.zfs.change(args(&["set", &format!("{name}={wanted}"), dataset])).await?;
            let found = parts.zfs.each(name, of).await?.remove(dataset).unwrap_or_default();
            if !is_same(&found, wanted) {
                let (dataset, property, wanted) = (dataset.clone(), name.clone(), wanted.clone());
                return Err(Failed::Property { dataset, property, found, wanted });
            }
        }
    }
    let forget = |entry: &mut Entry| {
        entry.quotas.clear();
        entry.tight.clear();
    };
    Ok(parts.memory.change(migration, forget).await?)
}

fn is_same(one: &str, two: &str) -> bool {
    one == two || is_none(one) && is_none(two)
}
