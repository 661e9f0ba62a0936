// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has ended: the entries of migration-service's history.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::Call;

/// Something that has ended: an operation of a migration, an evacuation, a change of a setting. What is not known is
/// absent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ended {
    /// The key of the entry.
    pub id: String,
    /// `migrate`, `rollback`, `finalize`, `abort`, a phase that failed, `remove`, `evacuate`, `set`; an open set of
    /// words.
    pub what: String,
    /// `successful` or `failed`; an open set of words.
    pub outcome: String,
    /// When it began, as ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// When it ended, as ISO 8601.
    pub ended: String,
    /// The record of the migration that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<String>,
    /// The VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_uuid: Option<String>,
    /// The VM's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_uuid: Option<String>,
    /// The nodes that it is about.
    pub cn_uuids: Vec<String>,
    /// The node that the VM was on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The node that it moved to, or was to move to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The account or the person who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The program through which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Bytes that the streams carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long a VM that ran was down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last phases, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<EndedStep>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A phase of an operation that ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the record's names
pub struct EndedStep {
    pub phase: String,
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Which entries; the newest come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Of this VM.
    pub vm_uuid: Option<String>,
    /// About this node.
    pub cn_uuid: Option<String>,
    /// Of this owner's VMs.
    pub owner_uuid: Option<String>,
    /// Ended at this time or later, as ISO 8601.
    pub since: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
}

impl HistoryQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.query("format", "history")
            .query_opt("vm_uuid", self.vm_uuid.as_ref())
            .query_opt("cn_uuid", self.cn_uuid.as_ref())
            .query_opt("owner_uuid", self.owner_uuid.as_ref())
            .query_opt("since", self.since.as_ref())
            .query_opt("limit", self.limit.map(|limit| limit.to_string()))
    }
}
