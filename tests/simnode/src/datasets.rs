// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of the node's datasets, volumes and snapshots with their properties. Pure.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// The text for "no limit".
pub const NO_LIMIT: &str = "18446744073709551615";
/// One internal history record, which becomes one sysevent.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
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

/// One dataset, volume, snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// `pool/a/b`, `pool/a/b@snap` or `pool/a/b#bookmark`.
    pub name: String,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
    /// The values that are in force.
    pub(crate) props: IndexMap<String, String>,
    /// The names of those that were set here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) local: BTreeSet<String>,
    /// What a stream set, also where a local value covers it.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(crate) received: IndexMap<String, String>,
    /// The tags of a snapshot's holds.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) holds: BTreeSet<String>,
    /// Who made it, where that is known; no command shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub made_by: String,
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

    /// A dataset or snapshot without properties.
    pub(crate) fn new(name: &str, dsid: u64, txg: u64) -> Dataset {
        Dataset {
            name: name.to_string(),
            dsid,
            txg,
            props: IndexMap::new(),
            local: BTreeSet::new(),
            received: IndexMap::new(),
            holds: BTreeSet::new(),
            made_by: String::new(),
        }
    }

    /// Returns true if the property was set here or by a stream.
    pub(crate) fn owns(&self, key: &str) -> bool {
        self.local.contains(key) || self.received.contains_key(key)
    }

    /// The number that a snapshot keeps in every pool that receives it.
    pub fn guid(&self) -> Option<u64> {
        self.props.get("guid")?.parse().ok()
    }

    /// filesystem, volume, snapshot or bookmark.
    pub fn kind(&self) -> &str {
        self.get("type")
    }

    /// The order of `zfs list`: by name, snapshots right after their dataset by age.
    pub(crate) fn listed(&self, other: &Dataset) -> Ordering {
        // By bytes: each listing sorts.
        let key = |d: &'_ Self| {
            let end = d.name.bytes().position(|it| matches!(it, b'@' | b'#'));
            (end.unwrap_or(d.name.len()), end.is_some(), d.txg)
        };
        let ((end, is_below, txg), (other_end, other_is_below, other_txg)) =
            (key(self), key(other));
        let names = self.name.as_bytes()[..end].cmp(&other.name.as_bytes()[..other_end]);
        names
            .then((is_below, txg).cmp(&(other_is_below, other_txg)))
            .then(self.name.cmp(&other.name))
    }

    /// Depth below the pool; a snapshot is one below its dataset.
    pub fn depth(&self) -> usize {
        self.name.matches(['/', '@', '#']).count()
    }
}

/// Every dataset of the node, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Datasets {
    pub(crate) rows: IndexMap<String, Dataset>,
    pub(crate) dsid: u64,
    pub(crate) txg: u64,
    /// Makes the numbers of this pool's snapshots differ from those of other pools.
    #[serde(default)]
    pub(crate) salt: u64,
    /// Who makes what is made now.
    #[serde(skip)]
    pub(crate) maker: &'static str,
}

/// The dataset of a snapshot or bookmark.
pub(crate) fn owner(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// Returns true if a name is inside the tree of another one: a child, a snapshot or a bookmark.
pub(crate) fn is_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.starts_with(['/', '@', '#']))
}

impl Datasets {
    /// One dataset or snapshot.
    pub fn get(&self, name: &str) -> Option<&Dataset> {
        self.rows.get(name)
    }

    /// Everything in the order of `zfs list`.
    pub fn sorted(&self) -> Vec<&Dataset> {
        let mut rows: Vec<&Dataset> = self.rows.values().collect();
        rows.sort_by(|a, b| a.listed(b));
        rows
    }

    /// The dataset and the datasets below it, parents first.
    pub fn tree(&self, top: &str) -> Vec<&Dataset> {
        let inside = |row: &&Dataset| {
            !row.name.contains(['@', '#']) && (row.name == top || is_below(&row.name, top))
        };
        let mut rows: Vec<&Dataset> = self.rows.values().filter(inside).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// The snapshots of one dataset, oldest first.
    pub fn snapshots(&self, dataset: &str) -> Vec<&Dataset> {
        let of = |row: &&Dataset| {
            row.name.strip_prefix(dataset).is_some_and(|rest| rest.starts_with('@'))
        };
        let mut rows: Vec<&Dataset> = self.rows.values().filter(of).collect();
        rows.sort_by_key(|row| row.txg);
        rows
    }

    /// The snapshot with this number, in the tree of `near` or else of its parents.
    pub fn by_guid(&self, guid: u64, near: &str) -> Option<&Dataset> {
        let mut top = Some(near);
        while let Some(name) = top {
            let mut inside = self.rows.values().filter(|row| is_below(&row.name, name));
            let found = inside.find(|row| row.kind() == "snapshot" && row.guid() == Some(guid));
            if found.is_some() {
                return found;
            }
            top = name.rsplit_once('/').map(|(parent, _)| parent);
        }
        None
    }

    /// Sets a creation time that does not depend on the clock.
    pub fn age(&mut self, from: i64) {
        for (at, row) in (0_i64..).zip(self.rows.values_mut()) {
            row.put("creation", (from + at).to_string());
        }
    }
}
