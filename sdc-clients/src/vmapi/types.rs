// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's records: the few fields this project reads, and all others as they came.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::http::Call;
use crate::uuids;

/// One VM record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// The VM.
    #[serde(deserialize_with = "uuids::field")]
    pub uuid: String,
    /// Its state, an open set of words.
    pub state: String,
    /// The compute node it is on; absent before one is chosen.
    #[serde(
        default,
        deserialize_with = "uuids::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub server_uuid: Option<String>,
    /// Its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_uuid: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What to list. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VmQuery {
    /// The compute node.
    pub server_uuid: Option<String>,
    /// `running`, `stopped`, `active` (neither destroyed nor failed) or `destroyed`.
    pub state: Option<String>,
}

impl VmQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.query_opt("server_uuid", self.server_uuid.as_ref())
            .query_opt("state", self.state.as_ref())
    }
}
