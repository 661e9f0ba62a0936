// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The properties that the sender reports as set are set here after a stream: only those that the receiver would copy
//! itself.

use std::collections::BTreeMap;

use super::failed::Failed;
use super::parts::Parts;
use super::quotas::LIFTED;
use super::vm;
use super::zfs::{Cause, ZfsError, args};
use migration_core::properties::{self, Carried};
use migration_core::protocol::Properties;

/// Sets what differs of these properties, but for quotas, and checks what it has set. Datasets that are delegated to
/// the VM, or say that they are a zone's, are treated as zoned.
pub async fn set_again(
    parts: &Parts,
    root: &str,
    wanted: &Properties,
    delegated: &[String],
) -> Result<(), Failed> {
    let zoned = parts.zfs.zoned(root).await?;
    for (dataset, wanted) in wanted {
        let is_zoned =
            zoned.contains(dataset) || delegated.iter().any(|top| vm::is_in(dataset, top));
        let mut wanted = wanted.clone();
        wanted.retain(|name, value| {
            let may = properties::may_set(name, value, is_zoned);
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
            // A child that was made after the snapshot is not here.
            Err(error) if error.cause() == Cause::Absent => continue,
            found => found?,
        };
        for name in found.keys() {
            let value = wanted.get(name).map_or("", String::as_str);
            parts.zfs.change(args(&["set", &format!("{name}={value}"), dataset])).await?;
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

/// Returns the properties whose values are others than these, with those values.
async fn differing(
    parts: &Parts,
    dataset: &String,
    wanted: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ZfsError> {
    let is_text = |name: &&str| properties::judge(name, true) == Carried::Text;
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
