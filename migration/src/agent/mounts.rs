// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mounts of a copy: nothing is mounted that a stream is received into, and everything is mounted where the VM's
//! files are read or changed. What is delegated to the zone is the zone's.

use std::collections::BTreeMap;

use super::failed::Failed;
use super::parts::Parts;
use super::zfs::{Said, args};

/// Returns the file systems of a tree that the node itself mounts, parents first, with whether they are mounted.
async fn file_systems(parts: &Parts, root: &str) -> Result<Vec<(String, bool)>, Failed> {
    let wanted = ["type", "mounted", "mountpoint", "canmount", "zoned"];
    let rows = match parts.zfs.get(&wanted, &[root.to_owned()], true).await {
        Ok(rows) => rows,
        Err(error) if error.said() == Said::Absent => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut by_name: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.of.contains(['@', '#'])) {
        by_name.entry(&row.of).or_default().insert(&row.name, &row.value);
    }
    let is_ours = |of: &BTreeMap<&str, &str>| {
        let is = |key: &str, value: &str| of.get(key) == Some(&value);
        let has_place = of.get("mountpoint").is_some_and(|place| place.starts_with('/'));
        is("type", "filesystem") && has_place && is("canmount", "on") && !is("zoned", "on")
    };
    let found = by_name.into_iter().filter(|(_, of)| is_ours(of));
    Ok(found.map(|(name, of)| (name.to_owned(), of.get("mounted") == Some(&"yes"))).collect())
}

/// Mounts the file systems of a tree.
///
/// # Errors
/// If `zfs` fails.
pub async fn mount(parts: &Parts, root: &str) -> Result<(), Failed> {
    for (name, is_mounted) in file_systems(parts, root).await? {
        if !is_mounted {
            parts.zfs.change(args(&["mount", &name])).await?;
        }
    }
    Ok(())
}

/// Unmounts the file systems of a tree.
///
/// # Errors
/// If `zfs` fails.
pub async fn unmount(parts: &Parts, root: &str) -> Result<(), Failed> {
    for (name, is_mounted) in file_systems(parts, root).await?.into_iter().rev() {
        if is_mounted {
            parts.zfs.change(args(&["unmount", "-f", &name])).await?;
        }
    }
    Ok(())
}
