// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of the node's datasets, volumes and snapshots with their properties. Pure.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// The text for "no limit".
pub const NO_LIMIT: &str = "18446744073709551615";
/// One internal history record, which becomes one sysevent.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The dataset.
    pub dsname: String,
    /// The action, such as `set` or `clone swap`.
    pub action: &'static str,
    /// Details in the words of zfs.
    pub detail: String,
    /// The dataset's number.
    pub dsid: u64,
    /// The transaction group.
    pub txg: u64,
}

/// One dataset, volume or snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// `pool/a/b` or `pool/a/b@snap`.
    pub name: String,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
    pub(crate) props: IndexMap<String, String>,
}

impl Dataset {
    /// A property, `-` when it has none.
    pub fn get(&self, key: &str) -> &str {
        match key {
            "name" => &self.name,
            "recordsize" => self.get("recsize"),
            "used" | "refer" | "referenced" => self.get("written"),
            _ => self.props.get(key).map_or("-", String::as_str),
        }
    }

    pub(crate) fn put(&mut self, key: &str, value: impl Into<String>) {
        self.props.insert(key.to_string(), value.into());
    }

    /// filesystem, volume or snapshot.
    pub fn kind(&self) -> &str {
        self.get("type")
    }

    /// Depth below the pool; a snapshot is one below its dataset.
    pub fn depth(&self) -> usize {
        self.name.matches(['/', '@']).count()
    }
}

/// Every dataset of the node, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Datasets {
    pub(crate) rows: IndexMap<String, Dataset>,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
}

pub(crate) fn owner(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

impl Datasets {
    /// One dataset or snapshot.
    pub fn get(&self, name: &str) -> Option<&Dataset> {
        self.rows.get(name)
    }

    /// Everything in the order of `zfs list`: by name, snapshots right after their dataset by age.
    pub fn sorted(&self) -> Vec<&Dataset> {
        let mut rows: Vec<&Dataset> = self.rows.values().collect();
        rows.sort_by(|a, b| {
            let key = |d: &Dataset| (owner(&d.name).to_string(), d.kind() == "snapshot");
            key(a).cmp(&key(b)).then(a.txg.cmp(&b.txg)).then(a.name.cmp(&b.name))
        });
        rows
    }

    /// Sets a creation time that does not depend on the clock.
    pub fn age(&mut self, from: i64) {
        for (at, row) in (0_i64..).zip(self.rows.values_mut()) {
            row.put("creation", (from + at).to_string());
        }
    }
}
