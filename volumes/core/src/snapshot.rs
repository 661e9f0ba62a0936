// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! A snapshot of a volume (RFD 26 §Snapshots), as it is kept in the volume's record.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script::show_time;

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Creating,
    Created,
    Failed,
    Deleting,
}

/// Who asked for something about a snapshot, through which program, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// In milliseconds since 1970.
    pub at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub uuid: String,
    /// One of its kind among the volume's.
    pub name: String,
    /// In milliseconds since 1970.
    pub create_timestamp: i64,
    pub state: Stage,
    /// Why it failed, or why the last roll-back to it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is asked about it now, or was last; clients do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Origin>,
}

impl Snapshot {
    /// Returns it as clients see it.
    pub fn shown(&self) -> Value {
        let mut shown = match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        shown.remove("asked");
        show_time(&mut shown);
        shown.into()
    }
}

/// A roll-back that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The uuid of the snapshot.
    pub snapshot: String,
    /// The data is as it was, or stays as it is: the storage VM is to run again.
    pub is_over: bool,
}
