// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The properties that the sender reports as set are set here after a stream: only those that the receiver would copy
//! itself.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::failed::Failed;
use super::parts::{Expected, Parts};
use super::quotas::LIFTED;
use super::zfs::{Cause, ZfsError, args};
use super::{vm, zoned};
use migration_core::properties::{self, Carried};

/// Sets what differs of these properties, but for quotas, and checks what it has set. Datasets that are delegated to
/// the VM, or say that they are a zone's, are treated as zoned. What a dataset has and its stream could not bring goes
/// where the sender does not have it, if the stream brought none. What is not here yet is left out.
pub async fn set_again(
    parts: &Parts,
    expected: &Expected,
    delegated: &[String],
) -> Result<(), Failed> {
    let (root, migration) = (&expected.dataset, expected.about.migration);
    let here = parts.zfs.whether_zoned(root).await?;
    for (dataset, wanted) in &expected.properties {
        // A child that was made after the snapshot, or whose stream comes later.
        let Some(says_zoned) = here.get(dataset).copied() else { continue };
        let is_delegated = delegated.iter().any(|top| vm::is_in(dataset, top));
        let is_zoned = says_zoned || is_delegated;
        let mut wanted = wanted.clone();
        wanted.retain(|name, value| {
            let is_of_zone = properties::judge(name, is_zoned) == Carried::OfZone;
            let may = properties::may_set(name, value, is_zoned)
                && (!is_of_zone || says_zoned && is_delegated);
            if !may {
                tracing::warn!(
                    dataset,
                    property = name,
                    "ignored a property that a sender may not set"
                );
            }
            may && !LIFTED.contains(&name.as_str())
        });
        let found = match differing(parts, dataset, &wanted).await {
            // It has gone meanwhile.
            Err(error) if error.cause() == Cause::Absent => continue,
            found => found?,
        };
        for name in found.keys() {
            let value = wanted.get(name).map_or("", String::as_str);
            let words = ["set", &format!("{name}={value}"), dataset];
            match says_zoned && name == "mountpoint" {
                true => zoned::lend(parts, migration, dataset, &words).await?,
                false => parts.zfs.change(args(&words)).await?,
            }
        }
        if expected.is_bare && dataset == root {
            inherit_rest(parts, (migration, dataset), &wanted, is_zoned).await?;
        }
        if found.is_empty() {
            continue;
        }
        if let Some((property, found)) = differing(parts, dataset, &wanted).await?.pop_first() {
            let wanted = wanted.remove(&property).unwrap_or_default();
            let dataset = dataset.clone();
            return Err(Failed::Property { dataset, property, found, wanted });
        }
    }
    Ok(())
}

/// Removes what is set on a dataset, would be carried, and is not among these.
async fn inherit_rest(
    parts: &Parts,
    (migration, dataset): (Uuid, &str),
    wanted: &BTreeMap<String, String>,
    is_zoned: bool,
) -> Result<(), Failed> {
    for name in parts.zfs.names_set(dataset).await? {
        let is_carried = properties::judge(&name, is_zoned) != Carried::No;
        if is_carried && !wanted.contains_key(&name) && !LIFTED.contains(&name.as_str()) {
            // It is never inherited.
            let words = match name == zoned::MOUNTS {
                true => ["set", "canmount=on", dataset],
                false => ["inherit", &name, dataset],
            };
            match is_zoned && name == "mountpoint" {
                true => zoned::lend(parts, migration, dataset, &words).await?,
                false => parts.zfs.change(args(&words)).await?,
            }
        }
    }
    Ok(())
}

/// Returns the properties whose values are others than these, with those values.
async fn differing(
    parts: &Parts,
    dataset: &String,
    wanted: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ZfsError> {
    let is_text = |name: &&str| properties::judge(name, true) != Carried::Word;
    let (texts, words): (Vec<&str>, Vec<&str>) =
        wanted.keys().map(String::as_str).partition(is_text);
    let mut found = BTreeMap::new();
    if !words.is_empty() {
        let rows = parts.zfs.get(&words, std::slice::from_ref(dataset), false).await?;
        found.extend(rows.into_iter().map(|row| (row.name, row.value)));
    }
    for name in texts {
        let value = parts.zfs.text(name, dataset).await?.unwrap_or_default();
        found.insert(name.to_owned(), String::from_utf8_lossy(&value).into_owned());
    }
    found.retain(|name, value| wanted.get(name) != Some(value));
    Ok(found)
}
