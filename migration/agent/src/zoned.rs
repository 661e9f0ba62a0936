// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is delegated is the zone's, with all below it. libzfs renames nothing in the global zone of which it, what is
//! below, or a clone of it is a zone's, nor says where that is mounted: for both it is lent to the node.

use uuid::Uuid;

use super::failed::Failed;
use super::memory::Entry;
use super::parts::Parts;
use super::vm;
use super::zfs::{Cause, Property, args};

/// Decides whether the node mounts a dataset at its boot.
pub const MOUNTS: &str = "canmount";

/// Returns the datasets that the VM's own copy here delegates to its zone.
pub async fn delegated(parts: &Parts, vm: Uuid) -> Result<Vec<String>, Failed> {
    let vm = parts.node.vm(vm).await?;
    Ok(vm.as_ref().map(vm::delegated).unwrap_or_default())
}

/// What is delegated to the VM by its own zone is the zone's with all below it, whatever came: a stream without
/// properties says nothing, the sender is not asked, and the node would mount at its next boot what says that it is
/// not.
pub async fn give(parts: &Parts, delegated: &[String]) -> Result<(), Failed> {
    for top in delegated {
        // What is below has it from above, unless it says otherwise: that is looked at afterwards.
        for is_deep in [false, true] {
            let rows = match is_deep {
                true => parts.zfs.tree(&["zoned"], top).await,
                false => parts.zfs.get(&["zoned"], std::slice::from_ref(top), false).await,
            };
            let rows = match rows {
                Err(error) if error.cause() == Cause::Absent => continue,
                rows => rows?,
            };
            for row in rows.into_iter().filter(|row| row.value == "off") {
                parts.zfs.change(args(&["set", "zoned=on", &row.of])).await?;
            }
        }
    }
    Ok(())
}

/// Runs a change while `top` and all below it are the node's. Meanwhile nothing of it is mounted, also by a node that
/// loses power now and boots: what it mounts is in the state file before it is taken, and is set again here, or with the
/// quotas once all is the zone's.
pub async fn lend(
    parts: &Parts,
    migration: Uuid,
    top: &str,
    change: &[&str],
) -> Result<(), Failed> {
    let moved = |name: &str| match *change {
        ["rename", from, to] if vm::is_in(name, from) => name.replacen(from, to, 1),
        _ => name.to_owned(),
    };
    let rows = parts.zfs.tree(&["zoned", MOUNTS], top).await?;
    let known = parts.memory.get(migration).map(|entry| entry.quotas).unwrap_or_default();
    let is_known = |name: &str| known.get(name).is_some_and(|of| of.contains_key(MOUNTS));
    let is_on = |row: &&Property, name: &str| row.name == name && row.value == "on";
    let is_mounted = |row: &&Property| {
        is_on(row, MOUNTS) || row.name == MOUNTS && (is_known(&row.of) || is_known(&moved(&row.of)))
    };
    let mounted: Vec<&Property> = rows.iter().filter(is_mounted).collect();
    let says_so = |row: &&Property| row.of == top || !row.source.starts_with("inherited");
    let zoned = rows.iter().filter(|row| is_on(row, "zoned")).filter(says_so);
    let names = || mounted.iter().flat_map(|row| [row.of.clone(), moved(&row.of)]);
    let save = |entry: &mut Entry| {
        for name in names() {
            entry.quotas.entry(name).or_default().insert(MOUNTS.to_owned(), "on".to_owned());
        }
    };
    parts.memory.change(migration, save).await?;
    for row in &mounted {
        parts.zfs.change(args(&["set", "canmount=noauto", &row.of])).await?;
    }
    for row in zoned.clone() {
        parts.zfs.change(args(&["set", "zoned=off", &row.of])).await?;
    }
    let done = parts.zfs.change(args(change)).await;
    let now = |row: &Property| if done.is_ok() { moved(&row.of) } else { row.of.clone() };
    for row in zoned {
        let words = match row.source.starts_with("inherited") {
            true => ["inherit", "zoned"],
            false => ["set", "zoned=on"],
        };
        parts.zfs.change(args(&[words[0], words[1], &now(row)])).await?;
    }
    for row in &mounted {
        parts.zfs.change(args(&["set", "canmount=on", &now(row)])).await?;
    }
    let forget = |entry: &mut Entry| {
        for name in names() {
            entry.quotas.entry(name).or_default().remove(MOUNTS);
        }
        entry.quotas.retain(|_, of| !of.is_empty());
    };
    parts.memory.change(migration, forget).await?;
    Ok(done?)
}
