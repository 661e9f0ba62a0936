// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a property of a dataset or snapshot is at this moment, for `zfs list` and `zfs get`.

use crate::dataset_ops::is_mounted;
use crate::datasets::{Dataset, Datasets};
use crate::error::NodeError;
use crate::node::{Node, Zfs};
use crate::properties::{Sourced, is_known};
use crate::sizes::Measured;

/// What zfs-fuse does not know.
const NEWER: [&str; 9] = [
    "encryption",
    "encryptionroot",
    "filesystem_limit",
    "keystatus",
    "logicalused",
    "receive_resume_token",
    "snapshot_limit",
    "sync",
    "written",
];

/// Returns true if this node's zfs refuses the name of the property.
pub(super) fn is_unknown(node: &Node, key: &str) -> bool {
    !is_known(key) || node.info().zfs == Zfs::Fuse && NEWER.contains(&key)
}

/// What the properties are at one moment. Each dataset is measured once, if a size is asked for.
pub(super) struct Values<'a> {
    node: &'a Node,
    all: &'a Datasets,
    measured: Measured<'a>,
}

impl<'a> Values<'a> {
    pub(super) fn now(node: &'a Node, all: &'a Datasets) -> Self {
        Self { node, all, measured: node.measured(all) }
    }

    /// Returns the value and where it comes from; "-" where the dataset has none.
    pub(super) fn of(&self, row: &Dataset, key: &str) -> Result<Sourced, NodeError> {
        let is_snapshot = row.name.contains(['@', '#']);
        let now = |value: String| Ok(Sourced { value, source: "-".to_string() });
        match key {
            "used" => now(self.measured.sizes(&row.name)?.used.to_string()),
            "referenced" | "refer" => now(self.measured.sizes(&row.name)?.referenced.to_string()),
            "written" => now(self.measured.sizes(&row.name)?.written.to_string()),
            "usedbysnapshots" if !is_snapshot => {
                now(self.measured.sizes(&row.name)?.usedbysnapshots.to_string())
            }
            "available" if !is_snapshot => now(self.measured.available(&row.name)?.to_string()),
            "mounted" if row.kind() == "filesystem" => {
                now(if is_mounted(row) { "yes" } else { "no" }.to_string())
            }
            "createtxg" => now(row.txg.to_string()),
            "encryption" | "encryptionroot" | "keystatus" => {
                now(self.all.encryption(&row.name, key))
            }
            "receive_resume_token" => {
                now(self.node.resume_token(self.all, &row.name).unwrap_or_else(|| "-".to_string()))
            }
            _ => Ok(self.all.sourced(row, key)),
        }
    }
}
