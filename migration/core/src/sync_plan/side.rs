// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What one node shows of the datasets.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

const PREFIX: &str = "vm-migration-";

/// Returns the name of the sync snapshot of this number.
pub fn snapshot_name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// Returns the number of a sync snapshot, if the name is one's.
pub fn number_of(snapshot: &str) -> Option<u32> {
    let digits = snapshot.strip_prefix(PREFIX)?;
    let number = digits.parse().ok()?;
    (snapshot_name(number) == snapshot && number > 0).then_some(number)
}

/// A snapshot or a bookmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The dataset, exactly: children have snapshots of the same names.
    pub dataset: String,
    /// The name behind `@` or `#`.
    pub name: String,
    /// The GUID; a snapshot has the same one wherever it was received.
    pub guid: u64,
    /// The transaction group that it was made in; only its own node knows it.
    #[serde(skip)]
    pub txg: u64,
    /// The number of a sync snapshot of the migration. A name alone does not make one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

/// What an agent's state file has of a VM's sync snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    /// The numbers of those that were taken here. Those of all datasets were made at one moment.
    pub made: BTreeSet<u32>,
    /// Of those that came from the other node: the transaction group of the last that came, while no other process
    /// could make any.
    pub received: BTreeMap<u32, u64>,
}

impl Row {
    /// Returns dataset and name of a snapshot.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.dataset, self.name)
    }
}

/// A resume token: a dataset has received a part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub dataset: String,
    /// `receive_resume_token`.
    pub text: String,
    /// The GUID of the snapshot that was being received.
    pub guid: u64,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The datasets of the VM that are there.
    pub datasets: Vec<String>,
    /// The snapshots of these datasets and of the images, the oldest of each dataset first.
    pub snapshots: Vec<Row>,
    pub bookmarks: Vec<Row>,
    /// The resume tokens.
    pub tokens: Vec<Token>,
    /// Dataset and GUID of the snapshot that it is a clone of.
    pub origins: Vec<(String, u64)>,
    /// The snapshots that are held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
}

impl Side {
    /// Returns the snapshots of exactly this dataset, oldest first.
    pub fn of(&self, dataset: &str) -> Vec<&Row> {
        self.snapshots.iter().filter(|row| row.dataset == dataset).collect()
    }

    /// Returns true if any dataset has a snapshot of this GUID.
    pub fn has(&self, guid: u64) -> bool {
        self.snapshots.iter().any(|row| row.guid == guid)
    }

    /// Returns true if the snapshot of this name has this GUID, as `zfs` writes it.
    pub fn has_as(&self, name: &str, guid: &str) -> bool {
        self.snapshots.iter().any(|row| row.full_name() == name && guid.parse() == Ok(row.guid))
    }

    /// Numbers the sync snapshots of the migration: those of the VM's root, and those of the same name elsewhere
    /// that were made with them. In what is delegated to the VM its owner makes snapshots of any name; of the root he
    /// makes none. Those in `left` are no part of the migration any more.
    pub fn number(&mut self, root: &str, known: &Notes, left: &BTreeSet<String>) {
        let is_part = |row: &Row| !left.contains(&row.full_name());
        let of_root = self.snapshots.iter().filter(|row| row.dataset == root && is_part(row));
        let roots: BTreeMap<u32, u64> =
            of_root.filter_map(|row| Some((number_of(&row.name)?, row.txg))).collect();
        let datasets: BTreeSet<&String> = self.datasets.iter().collect();
        for row in &mut self.snapshots {
            let is_of_root = |number: &u32| match roots.get(number) {
                None => false,
                Some(_) if row.dataset == root => true,
                Some(made) if known.made.contains(number) => row.txg == *made,
                Some(_) => known.received.get(number).is_none_or(|last| row.txg <= *last),
            };
            let number = number_of(&row.name).filter(is_of_root);
            row.number = number.filter(|_| datasets.contains(&row.dataset) && is_part(row));
        }
    }

    /// Returns the numbers of the sync snapshots of each dataset that has any.
    pub fn numbers(&self) -> BTreeMap<&str, BTreeSet<u32>> {
        let mut all: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for row in &self.snapshots {
            if let Some(number) = row.number {
                all.entry(&row.dataset).or_default().insert(number);
            }
        }
        all
    }

    /// Returns the sync snapshots that a test chooses by their number: those of children first, those of the root last,
    /// since the others are known by them.
    pub fn ours(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<String> {
        let mut rows: Vec<&Row> =
            self.snapshots.iter().filter(|row| row.number.is_some_and(&is_wanted)).collect();
        rows.sort_by(|a, b| b.dataset.cmp(&a.dataset));
        rows.into_iter().map(Row::full_name).collect()
    }

    /// Returns the snapshots that are named as sync snapshots of the root are, and are none, at most so many: where
    /// they arrive nothing else tells them apart.
    pub fn others_named_so(&self, root: &str, most: usize) -> Vec<String> {
        let numbers = self.numbers();
        let Some(of_root) = numbers.get(root) else { return Vec::new() };
        let is_named_so = |row: &&Row| {
            row.number.is_none() && number_of(&row.name).is_some_and(|it| of_root.contains(&it))
        };
        self.snapshots.iter().filter(is_named_so).take(most).map(Row::full_name).collect()
    }

    /// Returns the numbers above this one that other snapshots have in their names, as ranges, the lowest so many.
    pub fn taken_above(&self, last: u32, most: usize) -> Vec<(u32, u32)> {
        let others = self.snapshots.iter().filter(|row| row.number.is_none());
        let numbers: BTreeSet<u32> =
            others.filter_map(|row| number_of(&row.name)).filter(|it| *it > last).collect();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for number in numbers {
            let next = ranges.last_mut().filter(|(_, to)| to.checked_add(1) == Some(number));
            if let Some((_, to)) = next {
                *to = number;
            } else if ranges.len() < most {
                ranges.push((number, number));
            } else {
                break;
            }
        }
        ranges
    }
}
