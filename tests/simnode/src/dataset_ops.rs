// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The effect of each zfs subcommand on the table of datasets. Pure: an operation returns the
//! history it wrote, or the error text of zfs.

use indexmap::IndexMap;

use vm_model::parse::zfs_list::COLUMNS;

use crate::datasets::{Dataset, Datasets, History, NO_LIMIT, owner};
use crate::error::NodeError;
use crate::{files, payload};

fn is_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.starts_with(['/', '@']))
}

impl Datasets {
    fn need(&mut self, name: &str) -> Result<&mut Dataset, NodeError> {
        self.rows.get_mut(name).ok_or_else(|| NodeError::NoSuchDataset(name.to_string()))
    }

    fn step(&mut self) -> u64 {
        self.txg = self.txg.max(8_812_000) + 3;
        self.txg
    }

    fn record(&mut self, dsname: &str, action: &'static str, detail: impl Into<String>) -> History {
        let txg = self.step();
        let dsid = self.rows.get(dsname).map_or(self.dsid, |d| d.dsid);
        History { dsname: dsname.to_string(), action, detail: detail.into(), dsid, txg }
    }

    fn add(&mut self, name: &str, kind: &str) -> Result<&mut Dataset, NodeError> {
        if self.rows.contains_key(name) {
            return Err(NodeError::refused(format!(
                "cannot create '{name}': dataset already exists"
            )));
        }
        check_name(name)?;
        if kind != "snapshot"
            && let Some((parent, _)) = name.rsplit_once('/')
            && !self.rows.contains_key(parent)
        {
            return Err(NodeError::refused(format!(
                "cannot create '{name}': parent does not exist"
            )));
        }
        self.dsid = self.dsid.max(50) + 1;
        let (dsid, txg) = (self.dsid, self.step());
        let mut row = Dataset { name: name.to_string(), dsid, txg, props: IndexMap::new() };
        row.put("type", kind);
        row.put("creation", files::now_seconds().to_string());
        Ok(self.rows.entry(name.to_string()).or_insert(row))
    }

    /// `zfs create`: a file system that inherits from its parent.
    pub fn create(&mut self, name: &str) -> Result<Vec<History>, NodeError> {
        let parent = name.rsplit_once('/').and_then(|(p, _)| self.rows.get(p));
        let compression = parent.map_or("lz4", |p| p.get("compression")).to_string();
        let row = self.add(name, "filesystem")?;
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
        Ok(vec![self.record(name, "create", "")])
    }

    /// `zfs create -V`: a volume of so many bytes.
    pub fn create_volume(&mut self, name: &str, size: u64) -> Result<Vec<History>, NodeError> {
        let row = self.add(name, "volume")?;
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
        row.put("refreservation", size.saturating_add(size / 64).to_string());
        Ok(vec![self.record(name, "create", "")])
    }

    /// `zfs clone`: a dataset from an image's snapshot, of the same type.
    pub fn clone_from(&mut self, origin: &str, name: &str) -> Result<Vec<History>, NodeError> {
        let Some(snapshot) = self.rows.get(origin) else {
            return Err(NodeError::NoSuchDataset(origin.to_string()));
        };
        let number = snapshot.dsid;
        let image = self.rows.get(owner(origin));
        let volume = image.filter(|i| i.kind() == "volume").map(|i| i.get("volsize").to_string());
        match volume {
            Some(size) => self.create_volume(name, size.parse().unwrap_or(0))?,
            None => self.create(name)?,
        };
        self.need(name)?.put("origin", origin);
        Ok(vec![self.record(name, "clone", format!("origin={origin} ({number})"))])
    }

    /// `zfs set`.
    pub fn set(&mut self, name: &str, key: &str, value: &str) -> Result<Vec<History>, NodeError> {
        let row = self.need(name)?;
        let value = checked(row, key, value)?;
        row.put(key, value.as_str());
        let shown = match value.as_str() {
            "on" if key != "compression" => "1",
            "off" if key != "compression" => "0",
            other => other,
        };
        Ok(vec![self.record(name, "set", format!("{key}={shown}"))])
    }

    /// `zfs inherit` of a property that an operator made up.
    pub fn inherit(&mut self, name: &str, key: &str) -> Result<Vec<History>, NodeError> {
        let row = self.need(name)?;
        if !key.contains(':') {
            return Err(NodeError::refused(format!("'{key}' property cannot be inherited")));
        }
        row.props.shift_remove(key);
        Ok(vec![self.record(name, "inherit", format!("{key}=-"))])
    }

    /// `zfs snapshot`, with `-r` of everything below too.
    pub fn snapshot(&mut self, full: &str, recursive: bool) -> Result<Vec<History>, NodeError> {
        let Some((top, snap)) = full.split_once('@') else {
            return Err(NodeError::invalid("snapshot", format!("'{full}' has no '@'")));
        };
        self.need(top)?;
        let mut history = Vec::new();
        for name in self.tree(top, recursive) {
            let written = self.get(&name).map_or("0", |d| d.get("written")).to_string();
            let full = format!("{name}@{snap}");
            let row = self.add(&full, "snapshot")?;
            row.put("userrefs", "0");
            row.put("written", written);
            history.push(self.record(&full, "snapshot", ""));
        }
        Ok(history)
    }

    fn tree(&self, top: &str, recursive: bool) -> Vec<String> {
        let below = |n: &&String| recursive && is_below(n, top) && !n.contains('@');
        let mut names = vec![top.to_string()];
        names.extend(self.rows.keys().filter(below).cloned());
        names
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
        } else if !recursive && !doomed.is_empty() {
            return Err(NodeError::refused(format!(
                "cannot destroy '{name}': filesystem has children"
            )));
        }
        doomed.push(name.to_string());
        doomed.sort_by_key(|n| std::cmp::Reverse((n.matches(['/', '@']).count(), n.clone())));
        let mut history = Vec::new();
        for name in doomed {
            history.push(self.record(&name, "destroy", ""));
            self.rows.shift_remove(&name);
        }
        Ok(history)
    }

    /// `zfs rename`, with everything below. The record has the old name.
    pub fn rename(&mut self, old: &str, new: &str) -> Result<Vec<History>, NodeError> {
        self.need(old)?;
        let refused = |why: &str| Err(NodeError::refused(format!("cannot rename '{old}': {why}")));
        check_name(new)?;
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

    /// `zfs rollback`: later snapshots must be gone already, or go with `-r`.
    pub fn rollback(&mut self, snapshot: &str, recursive: bool) -> Result<Vec<History>, NodeError> {
        let age = self.need(snapshot)?.txg;
        let top = owner(snapshot).to_string();
        let later: Vec<String> = self
            .rows
            .values()
            .filter(|d| d.txg > age && d.name.contains('@') && owner(&d.name) == top)
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
        let shadow = format!("{top}/%rollback");
        history.push(self.record(&shadow, "destroy", ""));
        history.push(self.record(&shadow, "clone swap", format!("parent={top}")));
        Ok(history)
    }
}

fn check_name(name: &str) -> Result<(), NodeError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:%/@ ".contains(c);
    let parts_fine = name.split(['/', '@']).all(|p| !p.is_empty() && p != "." && p != "..");
    if name.len() < 256 && parts_fine && name.chars().all(fine) && name.matches('@').count() < 2 {
        return Ok(());
    }
    Err(NodeError::invalid("dataset name", format!("{name:?}")))
}

/// Returns a property's value in the form that zfs stores, or why it is invalid.
fn checked(row: &Dataset, key: &str, value: &str) -> Result<String, NodeError> {
    let refused = |why: &str| {
        NodeError::refused(format!("cannot set property for '{}': '{key}' {why}", row.name))
    };
    let number = |parsed: Option<u64>| {
        let wrong = || refused(&format!("must be a number: {value:?}"));
        parsed.map(|number| number.to_string()).ok_or_else(wrong)
    };
    if value.contains(['\t', '\n']) {
        return Err(refused("must be one line"));
    }
    match key {
        "quota" | "refquota" | "refreservation" | "volsize" | "recsize" => match value {
            "none" => Ok("0".to_string()),
            text => number(payload::bytes(text)),
        },
        "filesystem_limit" | "snapshot_limit" => match value {
            "none" => Ok(NO_LIMIT.to_string()),
            text => number(text.parse().ok()),
        },
        "zoned" if !matches!(value, "on" | "off") => Err(refused("must be one of 'on | off'")),
        "name" | "type" | "creation" | "written" | "usedbysnapshots" | "userrefs" => {
            Err(refused("is readonly"))
        }
        k if k.contains(':') || COLUMNS.split(',').any(|known| known == k) => Ok(value.to_string()),
        _ => Err(refused("is no property")),
    }
}

#[cfg(test)]
mod tests;
