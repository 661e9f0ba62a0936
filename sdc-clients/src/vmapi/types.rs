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

/// What to list. Unset fields are not sent; all that are set must match.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VmQuery {
    /// These VMs only; all where it is empty.
    pub uuids: Vec<String>,
    /// The owner.
    pub owner_uuid: Option<String>,
    /// The compute node.
    pub server_uuid: Option<String>,
    /// `running`, `stopped`, `active` (neither destroyed nor failed) or `destroyed`.
    pub state: Option<String>,
    /// VMAPI's condition in JSON, as `{"eq": ["brand", "lx"]}`.
    pub predicate: Option<Value>,
    /// The fields of each record, always with the uuid; all where it is empty.
    pub fields: Vec<String>,
}

impl VmQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        let mut fields = self.fields.clone();
        if !fields.is_empty() && fields.iter().all(|name| name != "uuid" && name != "*") {
            fields.push("uuid".to_owned());
        }
        call.query_list("fields", &fields)
            .query_opt("owner_uuid", self.owner_uuid.as_ref())
            .query_opt("server_uuid", self.server_uuid.as_ref())
            .query_opt("state", self.state.as_ref())
            .query_opt("predicate", self.predicate.as_ref())
            .query_list("uuids", &self.uuids)
    }
}

/// What VMAPI has ordered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Ordered {
    /// The VM.
    pub vm_uuid: String,
    /// The job that does it.
    pub job_uuid: String,
    /// The base URL of the workflow API that has the job, where the answer says it.
    #[serde(skip)]
    pub workflow: Option<String>,
}
