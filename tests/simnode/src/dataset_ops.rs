// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The effect of each zfs subcommand on the table of datasets. Pure: an operation returns the
//! history it wrote, or the error text of zfs.

use crate::checksum::Checksum;
use crate::datasets::{Dataset, Datasets, History, NO_LIMIT, is_below, owner};
use crate::error::NodeError;
use crate::files;
use crate::names::check_name;
use crate::properties::{READ_ONLY, checked, is_known, stored};

impl Datasets {
    pub(crate) fn need(&mut self, name: &str) -> Result<&mut Dataset, NodeError> {
        self.rows.get_mut(name).ok_or_else(|| NodeError::NoSuchDataset(name.to_string()))
    }

    fn step(&mut self) -> u64 {
        self.txg = self.txg.max(8_812_000) + 3;
        self.txg
    }

    pub(crate) fn record(
        &mut self,
        dsname: &str,
        action: &'static str,
        detail: impl Into<String>,
    ) -> History {
        let txg = self.step();
        let dsid = self.rows.get(dsname).map_or(self.dsid, |d| d.dsid);
        History { dsname: dsname.to_string(), action, detail: detail.into(), dsid, txg }
    }

    pub(crate) fn add(&mut self, name: &str, kind: &str) -> Result<&mut Dataset, NodeError> {
        if self.rows.contains_key(name) {
            let what = if kind == "snapshot" { "snapshot " } else { "" };
            return Err(NodeError::refused(format!(
                "cannot create {what}'{name}': dataset already exists"
            )));
        }
        check_name(if kind == "snapshot" { "snapshot" } else { "create" }, name)?;
        if !name.contains(['@', '#'])
            && let Some((parent, _)) = name.rsplit_once('/')
            && !self.rows.contains_key(parent)
        {
            return Err(NodeError::refused(format!(
                "cannot create '{name}': parent does not exist"
            )));
        }
        self.dsid = self.dsid.max(50) + 1;
        let (dsid, txg) = (self.dsid, self.step());
        let mut row = Dataset::new(name, dsid, txg);
        self.maker.clone_into(&mut row.made_by);
        row.put("type", kind);
        row.put("creation", files::now_seconds().to_string());
        if kind == "snapshot" {
            let guid = Checksum::of(format!("{}/{dsid}/{txg}/{name}", self.salt).as_bytes());
            row.put("guid", guid.to_string());
        }
        Ok(self.rows.entry(name.to_string()).or_insert(row))
    }

    /// `zfs create`: a file system that inherits from its parent.
    pub fn create(&mut self, name: &str) -> Result<Vec<History>, NodeError> {
        self.check_key(name)?;
        self.new_filesystem(name)
    }

    pub(crate) fn new_filesystem(&mut self, name: &str) -> Result<Vec<History>, NodeError> {
        let parent = name.rsplit_once('/').and_then(|(p, _)| self.rows.get(p));
        let compression = parent.map_or("lz4", |p| p.get("compression")).to_string();
        self.add(name, "filesystem")?;
        self.inherit_key(name);
        let row = self.need(name)?;
        for (key, value) in [
            ("compression", compression.as_str()),
            ("filesystem_limit", NO_LIMIT),
            ("quota", "0"),
            ("recsize", "131072"),
            ("refquota", "0"),
            ("refreservation", "0"),
            ("snapshot_limit", NO_LIMIT),
            ("usedbysnapshots", "0"),
            ("written", "131072"),
            ("zoned", "off"),
        ] {
            row.put(key, value);
        }
        row.put("mountpoint", format!("/{name}"));
        let above = parent_properties(self, name);
        above.iter().for_each(|key| self.settle(name, key));
        Ok(vec![self.record(name, "create", "")])
    }

    /// `zfs create -V`: a volume of so many bytes.
    pub fn create_volume(&mut self, name: &str, size: u64) -> Result<Vec<History>, NodeError> {
        self.check_key(name)?;
        self.new_volume(name, size)
    }

    pub(crate) fn new_volume(&mut self, name: &str, size: u64) -> Result<Vec<History>, NodeError> {
        self.add(name, "volume")?;
        self.inherit_key(name);
        let row = self.need(name)?;
        for (key, value) in [
            ("compression", "lz4"),
            ("snapshot_limit", NO_LIMIT),
            ("usedbysnapshots", "0"),
            ("volblocksize", "8192"),
            ("written", "57344"),
        ] {
            row.put(key, value);
        }
        row.put("volsize", size.to_string());
        row.put("refreservation", reserved(size).to_string());
        Ok(vec![self.record(name, "create", "")])
    }

    /// `zfs clone`: a dataset from an image's snapshot, of the same type.
    pub fn clone_from(&mut self, origin: &str, name: &str) -> Result<Vec<History>, NodeError> {
        let snapshot = self.rows.get(origin).filter(|_| origin.contains('@'));
        let Some(snapshot) = snapshot else {
            return Err(NodeError::NoSuchDataset(origin.to_string()));
        };
        let number = snapshot.dsid;
        let image = self.rows.get(owner(origin));
        let volume = image.filter(|i| i.kind() == "volume").map(|i| i.get("volsize").to_string());
        match volume {
            Some(size) => self.create_volume(name, size.parse().unwrap_or(0))?,
            None => self.create(name)?,
        };
        let key = self.key_of(origin).map(|root| root.name.clone());
        let row = self.need(name)?;
        row.put("origin", origin);
        if let Some(key) = key {
            row.put("encryptionroot", key);
        }
        Ok(vec![self.record(name, "clone", format!("origin={origin} ({number})"))])
    }

    /// `zfs set`.
    pub fn set(&mut self, name: &str, key: &str, value: &str) -> Result<Vec<History>, NodeError> {
        let (row, key) = (self.need(name)?, stored(key));
        let value = checked(&row.name, key, value)?;
        row.put(key, value.as_str());
        row.local.insert(key.to_string());
        self.settle(name, key);
        let shown = match value.as_str() {
            "on" if key != "compression" => "1",
            "off" if key != "compression" => "0",
            other => other,
        };
        Ok(vec![self.record(name, "set", format!("{key}={shown}"))])
    }

    /// `zfs inherit`: the value of the parent or the default; with `received` (`-S`) what a stream
    /// brought, if one did.
    pub fn inherit(
        &mut self,
        name: &str,
        key: &str,
        received: bool,
    ) -> Result<Vec<History>, NodeError> {
        let (row, key) = (self.need(name)?, stored(key));
        let is_limit = matches!(
            key,
            "quota" | "refquota" | "reservation" | "refreservation" | "volsize" | "canmount"
        );
        if is_limit && !received {
            return Err(NodeError::refused(format!("'{key}' property cannot be inherited")));
        }
        if !is_known(key) || READ_ONLY.contains(&key) {
            return Err(NodeError::refused(format!("invalid property '{key}'")));
        }
        row.local.remove(key);
        if !received {
            row.received.shift_remove(key);
        }
        self.settle(name, key);
        Ok(vec![self.record(name, "inherit", format!("{key}=-"))])
    }

    /// `zfs snapshot`, with `-r` of everything below too.
    pub fn snapshot(&mut self, full: &str, recursive: bool) -> Result<Vec<History>, NodeError> {
        self.snapshot_at_once(&[full.to_string()], recursive)
    }

    /// `zfs snapshot` of several: all of them in one transaction group, or none.
    pub fn snapshot_at_once(
        &mut self,
        fulls: &[String],
        recursive: bool,
    ) -> Result<Vec<History>, NodeError> {
        let txg = self.step();
        let mut history = Vec::new();
        for full in fulls {
            let Some((top, snap)) = full.split_once('@') else {
                return Err(NodeError::refused(format!(
                    "cannot snapshot '{full}': missing '@' delimiter in snapshot name"
                )));
            };
            self.need(top)?;
            let mut names = vec![top.to_string()];
            if recursive {
                names = self.tree(top).into_iter().map(|row| row.name.clone()).collect();
            }
            for name in names {
                let written = self.get(&name).map_or("0", |d| d.get("written")).to_string();
                let full = format!("{name}@{snap}");
                let row = self.add(&full, "snapshot")?;
                row.txg = txg;
                row.put("userrefs", "0");
                row.put("written", written);
                history.push(self.record(&full, "snapshot", ""));
                self.need(&name)?.props.shift_remove(TOUCHED);
            }
        }
        Ok(history)
    }

    /// `zfs bookmark`: keeps the number of a snapshot, so that changes can be sent after it is gone.
    pub fn bookmark(&mut self, snapshot: &str, full: &str) -> Result<Vec<History>, NodeError> {
        let from = self.need(snapshot)?.clone();
        if from.kind() != "snapshot"
            || full.split_once('#').is_none_or(|(of, _)| of != owner(snapshot))
        {
            return Err(NodeError::refused(format!(
                "cannot create bookmark '{full}': bookmark is in a different dataset"
            )));
        }
        let row = self.add(full, "bookmark")?;
        row.txg = from.txg;
        row.put("creation", from.get("creation"));
        row.put("guid", from.get("guid"));
        Ok(vec![self.record(full, "bookmark", "")])
    }

    /// `zfs destroy`: one record per dataset, children and snapshots first.
    pub fn destroy(&mut self, name: &str, recursive: bool) -> Result<Vec<History>, NodeError> {
        self.need(name)?;
        let mut doomed: Vec<String> =
            self.rows.keys().filter(|n| is_below(n, name)).cloned().collect();
        if let Some((top, snap)) = name.split_once('@').filter(|_| recursive) {
            let suffix = format!("@{snap}");
            doomed = self
                .rows
                .keys()
                .filter(|n| n.ends_with(&suffix) && is_below(owner(n), top))
                .cloned()
                .collect();
        } else if !recursive && doomed.iter().any(|n| !n.contains('#')) {
            return Err(NodeError::refused(format!(
                "cannot destroy '{name}': filesystem has children"
            )));
        }
        doomed.push(name.to_string());
        if let Some(held) = doomed.iter().find(|name| self.is_held(name)) {
            let why = format!("cannot destroy snapshot {held}: dataset is busy");
            return Err(NodeError::refused(why));
        }
        if let Some((_, clones)) = self.dependents(&doomed).into_iter().next() {
            let what = if name.contains('@') { "snapshot" } else { self.need(name)?.kind() };
            return Err(NodeError::refused(format!(
                "cannot destroy '{name}': {what} has dependent clones\n\
                 use '-R' to destroy the following datasets:\n{clones}"
            )));
        }
        doomed.sort_by_key(|n| std::cmp::Reverse((n.matches(['/', '@']).count(), n.clone())));
        let mut history = Vec::new();
        for name in doomed {
            history.push(self.record(&name, "destroy", ""));
            self.rows.shift_remove(&name);
        }
        Ok(history)
    }

    /// The clones of these snapshots that are not among these datasets: origin and clone.
    fn dependents(&self, doomed: &[String]) -> Vec<(String, String)> {
        let of = |row: &Dataset| {
            row.props.get("origin").filter(|origin| doomed.contains(origin)).cloned()
        };
        let clones = self.rows.values().filter(|row| !doomed.contains(&row.name));
        clones.filter_map(|row| Some((of(row)?, row.name.clone()))).collect()
    }

    /// A dataset, what is below it, their clones, what is below those, and so on.
    pub(crate) fn with_dependents(&self, name: &str) -> Vec<String> {
        let inside = |top: &str| -> Vec<String> {
            self.rows.keys().filter(|n| *n == top || is_below(n, top)).cloned().collect()
        };
        let mut found = inside(name);
        while let Some((_, clone)) = self.dependents(&found).pop() {
            found.extend(inside(&clone));
        }
        found
    }

    /// `zfs destroy -R`: the clones of its snapshots first.
    pub fn destroy_with_clones(&mut self, name: &str) -> Result<Vec<History>, NodeError> {
        self.need(name)?;
        let inside: Vec<String> =
            self.rows.keys().filter(|n| *n == name || is_below(n, name)).cloned().collect();
        let mut history = Vec::new();
        for (_, clone) in self.dependents(&inside) {
            history.extend(self.destroy_with_clones(&clone)?);
        }
        history.extend(self.destroy(name, true)?);
        Ok(history)
    }

    /// `zfs mount` and `zfs unmount`. A mount changes the dataset: it writes access times.
    pub fn mount(&mut self, name: &str, mounted: bool) -> Result<Vec<History>, NodeError> {
        let is_locked = self.is_locked(name);
        let row = self.need(name)?;
        let verb = if mounted { "mount" } else { "unmount" };
        let refused = |why: &str| Err(NodeError::refused(format!("cannot {verb} '{name}': {why}")));
        if row.kind() != "filesystem" {
            return refused("operation not applicable to datasets of this type");
        }
        if mounted && row.get("zoned") == "on" {
            return refused("dataset is exported to a local zone");
        }
        if mounted && matches!(row.get("mountpoint"), "legacy" | "none") {
            return refused("legacy or no mountpoint");
        }
        if mounted && is_locked {
            return refused("encryption key not loaded");
        }
        if is_mounted(row) == mounted {
            return refused(if mounted {
                "filesystem already mounted"
            } else {
                "not currently mounted"
            });
        }
        if mounted {
            row.props.shift_remove(UNMOUNTED);
            row.put(TOUCHED, "yes");
        } else {
            row.put(UNMOUNTED, "yes");
        }
        Ok(Vec::new())
    }

    /// `zfs rename`, with everything below. The record has the old name.
    pub fn rename(&mut self, old: &str, new: &str) -> Result<Vec<History>, NodeError> {
        self.need(old)?;
        let refused = |why: &str| Err(NodeError::refused(format!("cannot rename '{old}': {why}")));
        check_name("rename", new)?;
        let snap_of = |name: &str| name.split_once('@').map(|(top, _)| top.to_string());
        match (snap_of(old), snap_of(new)) {
            (Some(of), Some(to)) if of == to => {}
            (None, None) => {}
            _ => return refused("snapshots must be part of same dataset"),
        }
        if self.rows.contains_key(new) {
            return refused(&format!("dataset '{new}' already exists"));
        }
        if is_below(new, old) {
            return refused("new dataset name cannot be a descendant of current dataset name");
        }
        if new.rsplit_once(['/', '@']).is_none_or(|(parent, _)| !self.rows.contains_key(parent)) {
            return refused("parent does not exist");
        }
        let history = self.record(old, "rename", format!("-> {new}"));
        let moved =
            |name: &str| (name == old || is_below(name, old)).then(|| name.replacen(old, new, 1));
        let rows = std::mem::take(&mut self.rows).into_iter().map(|(name, mut row)| {
            let name = moved(&name).unwrap_or(name);
            row.name.clone_from(&name);
            for (key, from) in [("mountpoint", "/"), ("origin", "")] {
                let value = row.get(key).strip_prefix(from).and_then(moved);
                if let Some(value) = value {
                    row.put(key, format!("{from}{value}"));
                }
            }
            (name, row)
        });
        self.rows = rows.collect();
        Ok(vec![history])
    }

    /// The snapshots that a clone gets when it is promoted: their names before and after.
    pub(crate) fn promoted(&self, clone: &str) -> Result<Vec<(String, String)>, NodeError> {
        let refused = |why: &str| NodeError::refused(format!("cannot promote '{clone}': {why}"));
        let row = self.rows.get(clone).ok_or(NodeError::NoSuchDataset(clone.to_string()))?;
        let Some(origin) = self.rows.get(row.get("origin")) else {
            return Err(refused("not a cloned filesystem"));
        };
        let of = self.snapshots(owner(&origin.name)).into_iter().filter(|it| it.txg <= origin.txg);
        let named = of.filter_map(|it| {
            let (_, name) = it.name.split_once('@')?;
            Some((it.name.clone(), format!("{clone}@{name}")))
        });
        let named: Vec<(String, String)> = named.collect();
        match named.iter().any(|(_, new)| self.rows.contains_key(new)) {
            true => Err(refused("conflicting snapshot")),
            false => Ok(named),
        }
    }

    /// `zfs promote`: the clone has what it was made of, which is its clone from then on.
    pub fn promote(&mut self, clone: &str) -> Result<Vec<History>, NodeError> {
        let moved = self.promoted(clone)?;
        let origin = self.need(clone)?.get("origin").to_string();
        let (top, new) = (owner(&origin).to_string(), |old: &str| {
            moved.iter().find(|(name, _)| name == old).map(|(_, new)| new.clone())
        });
        let above = self.need(&top)?.props.shift_remove("origin");
        let rows = std::mem::take(&mut self.rows).into_iter().map(|(name, mut row)| {
            let name = new(&name).unwrap_or(name);
            row.name.clone_from(&name);
            if let Some(origin) = new(row.get("origin")) {
                row.put("origin", origin);
            }
            (name, row)
        });
        self.rows = rows.collect();
        let own = new(&origin).unwrap_or_default();
        self.need(&top)?.put("origin", own);
        let row = self.need(clone)?;
        match above {
            Some(above) => row.put("origin", above),
            None => drop(row.props.shift_remove("origin")),
        }
        Ok(vec![self.record(clone, "promote", "")])
    }

    /// `zfs rollback`: later snapshots must be gone already, or go with `-r`.
    pub fn rollback(&mut self, snapshot: &str, recursive: bool) -> Result<Vec<History>, NodeError> {
        let age = self.need(snapshot)?.txg;
        let top = owner(snapshot).to_string();
        let later: Vec<String> = self
            .rows
            .values()
            .filter(|d| d.txg > age && d.name.contains(['@', '#']) && owner(&d.name) == top)
            .map(|d| d.name.clone())
            .collect();
        if !later.is_empty() && !recursive {
            return Err(NodeError::refused(format!(
                "cannot rollback to '{snapshot}': more recent snapshots or bookmarks exist"
            )));
        }
        let mut history = Vec::new();
        for name in later {
            history.extend(self.destroy(&name, false)?);
        }
        let row = self.need(&top)?;
        if !is_mounted(row) {
            row.props.shift_remove(TOUCHED);
        }
        let shadow = format!("{top}/%rollback");
        history.push(self.record(&shadow, "destroy", ""));
        history.push(self.record(&shadow, "clone swap", format!("parent={top}")));
        Ok(history)
    }
}

/// The space that is reserved for a volume of so many bytes.
pub(crate) fn reserved(size: u64) -> u64 {
    size.saturating_add(size / 64)
}
/// Mark of a file system that `zfs unmount`, or a receive with `-u`, left unmounted.
pub(crate) const UNMOUNTED: &str = "%unmounted";
/// Mark of a file system that was mounted since its last snapshot.
pub(crate) const TOUCHED: &str = "%touched";

/// Returns true if the global zone has it mounted below `/zones`.
pub(crate) fn is_mounted(row: &Dataset) -> bool {
    let at = row.get("mountpoint");
    row.kind() == "filesystem"
        && row.get("zoned") != "on"
        && row.get("canmount") != "off"
        && row.get(UNMOUNTED) == "-"
        && at.starts_with("/zones/")
        && at.split('/').all(|part| part != "." && part != "..")
}

/// What a new dataset may have of those above.
fn parent_properties(all: &Datasets, name: &str) -> Vec<String> {
    let above = name.rsplit_once('/').and_then(|(parent, _)| all.rows.get(parent));
    let own = |key: &&String| {
        key.contains(':') || matches!(key.as_str(), "zoned" | "readonly" | "mountpoint")
    };
    above.map(|row| row.props.keys().filter(own).cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
