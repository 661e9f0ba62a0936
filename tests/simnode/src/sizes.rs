// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What datasets and snapshots take, in exact bytes: a fixed amount each, and the blocks of their
//! contents.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::broken::Broken;
use crate::datasets::{Dataset, Datasets, owner};
use crate::error::NodeError;
use crate::node::Node;

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

/// The sizes of a node's datasets at one moment. Each dataset is measured once.
pub struct Measured<'a> {
    node: &'a Node,
    all: &'a Datasets,
    known: RefCell<BTreeMap<String, Sizes>>,
}

impl Measured<'_> {
    /// The sizes of a dataset, snapshot or bookmark.
    pub fn sizes(&self, name: &str) -> Result<Sizes, NodeError> {
        let row = self.all.get(name).ok_or_else(|| NodeError::NoSuchDataset(name.to_string()))?;
        if row.kind() == "bookmark" {
            return Ok(Sizes::default());
        }
        let known = || self.known.borrow().get(name).copied();
        if let Some(sizes) = known() {
            return Ok(sizes);
        }
        let measured = self.with_snapshots(owner(name))?;
        self.known.borrow_mut().extend(measured);
        Ok(known().unwrap_or_default())
    }

    /// Measures a dataset and its snapshots.
    fn with_snapshots(&self, dataset: &str) -> Result<Vec<(String, Sizes)>, NodeError> {
        let live =
            self.all.get(dataset).ok_or_else(|| NodeError::NoSuchDataset(dataset.to_string()))?;
        let fixed = number(live, "written");
        let contents = |name: &str| self.node.contents(self.all, name);
        let first = live
            .props
            .get("origin")
            .map(|origin| contents(origin))
            .transpose()?
            .unwrap_or_default();
        let mut names: Vec<&str> =
            self.all.snapshots(dataset).iter().map(|row| row.name.as_str()).collect();
        names.push(dataset);
        let trees = names.iter().map(|name| contents(name)).collect::<Result<Vec<_>, _>>()?;
        let mut measured = Vec::new();
        let mut usedbysnapshots = 0;
        for (at, (name, tree)) in names.iter().zip(&trees).enumerate() {
            let used = trees.get(at + 1).map_or(0, |next| tree.new_since(next));
            usedbysnapshots += used;
            let referenced = fixed + tree.size();
            let written = tree.new_since(at.checked_sub(1).map_or(&first, |at| &trees[at]));
            measured
                .push((name.to_string(), Sizes { referenced, used, written, usedbysnapshots: 0 }));
        }
        let (Some((_, sizes)), Some(tree)) = (measured.last_mut(), trees.last()) else {
            return Ok(measured);
        };
        let own = (sizes.referenced - fixed).min(tree.new_since(&first));
        sizes.usedbysnapshots = usedbysnapshots;
        sizes.used = (fixed + own).max(number(live, "refreservation")) + usedbysnapshots;
        let child = |row: &&&Dataset| row.name.rsplit_once('/').is_some_and(|(p, _)| p == dataset);
        for child in self.all.tree(dataset).iter().filter(child) {
            let reserved = number(child, "reservation");
            sizes.used += self.sizes(&child.name)?.used.max(reserved);
        }
        Ok(measured)
    }

    /// What can still be written below a dataset: the least that its quota and those above leave.
    pub fn available(&self, name: &str) -> Result<u64, NodeError> {
        let mut least = if self.node.is_broken(Broken::Pool) { 0 } else { POOL };
        let mut top = Some(owner(name));
        while let Some(name) = top {
            if let Some(row) = self.all.get(name).filter(|row| number(row, "quota") > 0) {
                let used = self.sizes(name)?.used;
                least = least.min(number(row, "quota").saturating_sub(used));
            }
            top = name.rsplit_once('/').map(|(parent, _)| parent);
        }
        Ok(least)
    }
}

impl Node {
    /// The sizes of these datasets now.
    pub fn measured<'a>(&'a self, all: &'a Datasets) -> Measured<'a> {
        Measured { node: self, all, known: RefCell::default() }
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
        if more > self.measured(&all).available(dataset)?
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
        let measured = self.measured(&all);
        let own = measured.sizes(&row.name)?.written;
        if own.min(number(row, "refreservation")) <= measured.available(&row.name)? {
            return Ok(());
        }
        Err(NodeError::refused(format!("cannot create snapshot '{snapshot}': out of space")))
    }

    /// Refuses limits that the sizes of a dataset do not allow.
    pub fn check_limit(&self, name: &str, key: &str, value: &str) -> Result<(), NodeError> {
        let all = self.datasets()?;
        let wanted = crate::payload::bytes(value).filter(|bytes| *bytes > 0);
        let (Some(wanted), true) = (wanted, all.get(name).is_some()) else { return Ok(()) };
        let measured = self.measured(&all);
        let why = match key {
            "quota" if wanted < measured.sizes(name)?.used => {
                "size is less than current used or reserved space"
            }
            "refquota" if wanted < measured.sizes(name)?.referenced => {
                "size is less than current used or reserved space"
            }
            "reservation" | "refreservation" if wanted > measured.available(name)? => {
                "size is greater than available space"
            }
            _ => return Ok(()),
        };
        Err(NodeError::refused(format!("cannot set property for '{name}': {why}")))
    }
}
