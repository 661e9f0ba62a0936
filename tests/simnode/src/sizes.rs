// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What datasets and snapshots take, in exact bytes: a fixed amount each, and the blocks of their
//! contents.

use crate::datasets::{Dataset, Datasets, owner};
use crate::error::NodeError;
use crate::node::Node;
use crate::trees::Tree;

/// The room of a pool without a quota.
pub const POOL: u64 = 1776 << 30;

/// The sizes of a dataset or snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// What it shows.
    pub referenced: u64,
    /// What would be free without it: a dataset with its snapshots and children, of a snapshot what
    /// its successor does not have.
    pub used: u64,
    /// What is in it that its predecessor does not have.
    pub written: u64,
    /// The part of `used` that only the snapshots have.
    pub usedbysnapshots: u64,
}

fn number(row: &Dataset, key: &str) -> u64 {
    row.get(key).parse().unwrap_or(0)
}

impl Node {
    /// The sizes of a dataset, snapshot or bookmark now.
    pub fn sizes(&self, all: &Datasets, name: &str) -> Result<Sizes, NodeError> {
        let row = all.get(name).ok_or_else(|| NodeError::NoSuchDataset(name.to_string()))?;
        if row.kind() == "bookmark" {
            return Ok(Sizes::default());
        }
        let dataset = owner(name);
        let fixed = all.get(dataset).map_or(0, |row| number(row, "written"));
        let snapshots = all.snapshots(dataset);
        let mut names: Vec<&str> = snapshots.iter().map(|row| row.name.as_str()).collect();
        names.push(dataset);
        let mut trees = Vec::new();
        for name in &names {
            trees.push(self.contents(all, name)?);
        }
        let first = match all.get(dataset).and_then(|row| row.props.get("origin")) {
            Some(origin) => self.contents(all, origin)?,
            None => Tree::default(),
        };
        let mut sizes = Sizes::default();
        for (at, tree) in trees.iter().enumerate() {
            let only = trees.get(at + 1).map_or(0, |next| tree.new_since(next));
            sizes.usedbysnapshots += only;
            if names.get(at) == Some(&name) {
                sizes.referenced = fixed + tree.size();
                sizes.written = tree.new_since(at.checked_sub(1).map_or(&first, |at| &trees[at]));
                sizes.used = only;
            }
        }
        if row.kind() == "snapshot" {
            return Ok(Sizes { usedbysnapshots: 0, ..sizes });
        }
        let own = (sizes.referenced - fixed).min(trees.last().map_or(0, |t| t.new_since(&first)));
        sizes.used = (fixed + own).max(number(row, "refreservation")) + sizes.usedbysnapshots;
        let child = |row: &&&Dataset| row.name.rsplit_once('/').is_some_and(|(p, _)| p == name);
        for child in all.tree(name).iter().filter(child) {
            let reserved = number(child, "reservation");
            sizes.used += self.sizes(all, &child.name)?.used.max(reserved);
        }
        Ok(sizes)
    }

    /// What can still be written below a dataset: the least that its quota and those above leave.
    pub fn available(&self, all: &Datasets, name: &str) -> Result<u64, NodeError> {
        let mut least = POOL;
        let mut top = Some(owner(name));
        while let Some(name) = top {
            if let Some(row) = all.get(name).filter(|row| number(row, "quota") > 0) {
                let used = self.sizes(all, name)?.used;
                least = least.min(number(row, "quota").saturating_sub(used));
            }
            top = name.rsplit_once('/').map(|(parent, _)| parent);
        }
        Ok(least)
    }

    /// Writes a file of a dataset, or the bytes of a volume (path `data`), as a program in the zone
    /// does. Refused where a quota is reached.
    pub fn write_file(&self, dataset: &str, path: &str, bytes: &[u8]) -> Result<(), NodeError> {
        let guard = self.lock()?;
        let all = guard.node.datasets()?;
        let row = all.get(dataset).ok_or_else(|| NodeError::NoSuchDataset(dataset.to_string()))?;
        let old = self.contents(&all, dataset)?;
        let tree = old.with_file(path, bytes);
        let more = tree.new_since(&old);
        let refquota = Some(number(row, "refquota")).filter(|quota| *quota > 0);
        let fixed = number(row, "written");
        if more > self.available(&all, dataset)?
            || refquota.is_some_and(|quota| fixed + tree.size() > quota)
        {
            return Err(NodeError::refused(format!("cannot write '{path}': disc quota exceeded")));
        }
        self.set_contents(&all, dataset, &tree)
    }

    /// Refuses a snapshot of a dataset with a reservation of its own (`refreservation`) that finds no room: what the
    /// snapshot keeps has to fit besides what is reserved.
    pub(crate) fn check_room(&self, snapshot: &str) -> Result<(), NodeError> {
        let all = self.datasets()?;
        let Some(row) = all.get(owner(snapshot)) else { return Ok(()) };
        let own = self.sizes(&all, &row.name)?.written;
        if own.min(number(row, "refreservation")) <= self.available(&all, &row.name)? {
            return Ok(());
        }
        Err(NodeError::refused(format!("cannot create snapshot '{snapshot}': out of space")))
    }

    /// Refuses limits that the sizes of a dataset do not allow.
    pub fn check_limit(&self, name: &str, key: &str, value: &str) -> Result<(), NodeError> {
        let all = self.datasets()?;
        let wanted = crate::payload::bytes(value).filter(|bytes| *bytes > 0);
        let (Some(wanted), true) = (wanted, all.get(name).is_some()) else { return Ok(()) };
        let why = match key {
            "quota" if wanted < self.sizes(&all, name)?.used => {
                "size is less than current used or reserved space"
            }
            "refquota" if wanted < self.sizes(&all, name)?.referenced => {
                "size is less than current used or reserved space"
            }
            "reservation" | "refreservation" if wanted > self.available(&all, name)? => {
                "size is greater than available space"
            }
            _ => return Ok(()),
        };
        Err(NodeError::refused(format!("cannot set property for '{name}': {why}")))
    }
}
