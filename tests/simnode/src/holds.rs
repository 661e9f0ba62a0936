// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Holds of snapshots: a snapshot that is held is not destroyed. Whoever may snapshot a dataset may hold its
//! snapshots, the owner of a delegated dataset among them. Pure.

use crate::datasets::{Datasets, History, is_below, owner};
use crate::error::NodeError;

impl Datasets {
    /// Returns true if a snapshot has a hold.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.rows.get(name).is_some_and(|row| !row.holds.is_empty())
    }

    /// The snapshot, with `recursive` those of its name below too.
    fn snapshots_named(&mut self, full: &str, recursive: bool) -> Result<Vec<String>, NodeError> {
        self.need(full)?;
        let Some((top, snap)) = full.split_once('@') else {
            return Err(NodeError::refused(format!("'{full}' is not a snapshot")));
        };
        let suffix = format!("@{snap}");
        let is_one = |name: &&String| {
            **name == full || recursive && name.ends_with(&suffix) && is_below(owner(name), top)
        };
        Ok(self.rows.keys().filter(is_one).cloned().collect())
    }

    /// `zfs hold`.
    pub fn hold(&mut self, tag: &str, full: &str, r: bool) -> Result<Vec<History>, NodeError> {
        if tag.starts_with('.') {
            let why = format!("cannot hold: tag may not start with '.': {tag}");
            return Err(NodeError::refused(why));
        }
        let mut history = Vec::new();
        for name in self.snapshots_named(full, r)? {
            let row = self.need(&name)?;
            if !row.holds.insert(tag.to_string()) {
                let why = "tag already exists on this dataset";
                return Err(NodeError::refused(format!("cannot hold snapshot '{name}': {why}")));
            }
            let count = row.holds.len().to_string();
            row.put("userrefs", count.as_str());
            history.push(self.record(&name, "hold", format!("tag={tag} temp=0 refs={count}")));
        }
        Ok(history)
    }

    /// `zfs release`.
    pub fn release(&mut self, tag: &str, full: &str, r: bool) -> Result<Vec<History>, NodeError> {
        let mut history = Vec::new();
        for name in self.snapshots_named(full, r)? {
            let row = self.need(&name)?;
            if !row.holds.remove(tag) {
                let why = "no such tag on this dataset";
                return Err(NodeError::refused(format!(
                    "cannot release hold from snapshot '{name}': {why}"
                )));
            }
            let count = row.holds.len().to_string();
            row.put("userrefs", count.as_str());
            history.push(self.record(&name, "release", format!("tag={tag} refs={count}")));
        }
        Ok(history)
    }
}
