// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mounts of a copy: nothing is mounted that a stream is received into, and everything is mounted where the VM's
//! files are read or changed. What is delegated to the zone is the zone's.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use daemon::disk;

use super::failed::Failed;
use super::parts::Parts;
use super::vm;
use super::zfs::{Cause, ZfsError, args};
use migration_core::properties::PLACES;

/// Returns the file systems of a tree that the node itself mounts, parents first, with whether they are mounted.
async fn file_systems(parts: &Parts, root: &str) -> Result<Vec<(String, bool)>, Failed> {
    let wanted = ["type", "mounted", "canmount", "zoned"];
    let rows = match parts.zfs.tree(&wanted, root).await {
        Ok(rows) => rows,
        Err(error) if error.cause() == Cause::Absent => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut by_name: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for row in &rows {
        by_name.entry(&row.of).or_default().insert(&row.name, &row.value);
    }
    let is_ours = |of: &BTreeMap<&str, &str>| {
        let is = |key: &str, value: &str| of.get(key) == Some(&value);
        is("type", "filesystem") && is("canmount", "on") && !is("zoned", "on")
    };
    let found = by_name.into_iter().filter(|(_, of)| is_ours(of));
    Ok(found.map(|(name, of)| (name.to_owned(), of.get("mounted") == Some(&"yes"))).collect())
}

/// Returns true if the dataset's place is the one that it has by its name: no stream and no person chose another.
async fn is_in_its_place(parts: &Parts, name: &str) -> Result<bool, ZfsError> {
    let pool = parts.zfs.pool();
    let top = parts.zfs.text("mountpoint", pool).await?.unwrap_or_default();
    let place = parts.zfs.text("mountpoint", name).await?.unwrap_or_default();
    let own = name.strip_prefix(pool).unwrap_or_default();
    Ok(top.starts_with(b"/") && place == [top.as_slice(), own.as_bytes()].concat())
}

/// Takes from the file systems of a tree that are the node's what a stream says of where they are mounted and who may
/// mount them from afar: at its next boot the node would do as it says.
pub async fn put_in_place(parts: &Parts, root: &str, delegated: &[String]) -> Result<(), Failed> {
    for (name, _) in file_systems(parts, root).await? {
        if delegated.iter().any(|it| vm::is_in(&name, it)) {
            continue;
        }
        for place in PLACES {
            let is_fine = match place {
                "mountpoint" => is_in_its_place(parts, &name).await,
                _ => parts.zfs.text(place, &name).await.map(|it| it.is_none_or(|it| it == b"off")),
            };
            let is_fine = match is_fine {
                Err(error) if error.cause() == Cause::Unknown => true, // there is no SMB
                is_fine => is_fine?,
            };
            if !is_fine {
                tracing::warn!(
                    dataset = name,
                    place,
                    "dropped a property that says where a dataset is mounted"
                );
                parts.zfs.change(args(&["inherit", place, &name])).await?;
            }
        }
    }
    Ok(())
}

/// Keeps the file systems below an image's unmounted, also at the node's next boot: an image has none, and the way to
/// their places may go over links that the stream brought.
pub async fn keep_down(parts: &Parts, image: &str) -> Result<(), Failed> {
    let below = file_systems(parts, image).await?.into_iter().filter(|(name, _)| name != image);
    for (name, _) in below {
        tracing::warn!(
            dataset = name,
            "a stream brought a file system below an image; it is not mounted"
        );
        parts.zfs.change(args(&["set", "canmount=noauto", &name])).await?;
    }
    Ok(())
}

/// Mounts the file systems of a tree: those that are the node's and in their place. A delegated dataset is the zone's
/// to mount, also where it arrived a moment ago and does not say so yet.
pub async fn mount(parts: &Parts, root: &str, delegated: &[String]) -> Result<(), Failed> {
    for (name, is_mounted) in file_systems(parts, root).await? {
        let is_zones = delegated.iter().any(|it| vm::is_in(&name, it));
        if is_mounted || is_zones {
            continue;
        }
        if is_in_its_place(parts, &name).await? {
            is_reached(parts, root, &name).await?;
            parts.zfs.change(args(&["mount", &name])).await?;
        } else {
            tracing::warn!(
                dataset = name,
                "not mounting a dataset whose mountpoint differs from its name"
            );
        }
    }
    Ok(())
}

/// Checks that the way to a file system's place, below that of the tree's root, goes over directories: a stream may
/// have put a link there, over which the node would mount it anywhere, and at each boot.
/// Fails with [`Failed::Linked`]; then the node does not mount it any more.
async fn is_reached(parts: &Parts, root: &str, name: &str) -> Result<(), Failed> {
    let below = name.strip_prefix(root).unwrap_or_default().to_owned();
    if below.is_empty() {
        return Ok(());
    }
    let top = parts.zfs.text("mountpoint", root).await?.unwrap_or_default();
    let top = String::from_utf8_lossy(&top).into_owned();
    let (at, place) = (parts.top.join(top.trim_start_matches('/')), format!("{top}{below}"));
    let looked = disk::blocking(move || is_over_directories(&at, &below)).await;
    if looked == Some(true) {
        return Ok(());
    }
    parts.zfs.change(args(&["set", "canmount=noauto", name])).await?;
    Err(Failed::Linked { dataset: name.to_owned(), place })
}

/// Returns true if each part of a path below this directory is a directory, or not there.
fn is_over_directories(top: &Path, below: &str) -> bool {
    let mut at = top.to_owned();
    below.split('/').filter(|part| !part.is_empty()).all(|part| {
        at.push(part);
        match at.symlink_metadata() {
            Ok(about) => about.is_dir(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    })
}

/// Unmounts the file systems of a tree.
pub async fn unmount(parts: &Parts, root: &str) -> Result<(), Failed> {
    for (name, is_mounted) in file_systems(parts, root).await?.into_iter().rev() {
        if is_mounted {
            parts.zfs.change(args(&["unmount", "-f", &name])).await?;
        }
    }
    Ok(())
}
