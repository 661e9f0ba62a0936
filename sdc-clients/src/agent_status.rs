// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the status of each agent of a node has.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `/status` of net-agent, vm-agent, migration-agent or fleet-agent: what all have, and the rest as it came.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The program's version.
    pub version: String,
    /// What it waits for, in words; empty where nothing is held up.
    pub waiting_for: Vec<String>,
    /// What failed last, unless it has succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When that was, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
