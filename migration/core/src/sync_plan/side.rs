// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What one node shows of the datasets.

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The dataset, exactly: children have snapshots of the same names.
    pub dataset: String,
    /// The name behind `@` or `#`.
    pub name: String,
    /// The GUID; a snapshot has the same one wherever it was received.
    pub guid: u64,
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
    /// The dataset.
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
    /// The bookmarks.
    pub bookmarks: Vec<Row>,
    /// The resume tokens.
    pub tokens: Vec<Token>,
    /// Dataset and GUID of the snapshot that it is a clone of.
    pub origins: Vec<(String, u64)>,
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

    /// Returns the highest number of the sync snapshots of a dataset, or 0.
    pub fn last_number(&self, dataset: &str) -> u32 {
        let rows = self.of(dataset);
        rows.into_iter().filter_map(|row| number_of(&row.name)).max().unwrap_or(0)
    }
}
