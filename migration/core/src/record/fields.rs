// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The fields of a record and of the entries of its history.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::shape::{Fields, Reader, Shape};
use super::states::{Phase, State};
use crate::intent::Intent;
use crate::time::Time;

/// A migration record.
pub type Record = Shape<RecordFields>;

/// An entry of a record's history: one phase that ran or runs.
pub type Entry = Shape<EntryFields>;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordFields {
    /// `begin` in the records of the deployed service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// One action does all phases.
    pub automatic: bool,
    pub created_timestamp: Time,
    /// The key of the record.
    pub id: Uuid,
    pub num_sync_phases: u32,
    /// The VM's owner. The deployed service sets it in calls of users only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_uuid: Option<Uuid>,
    /// The account that asked (RFD 34), operators' included. The deployed service does not set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_uuid: Option<Uuid>,
    pub phase: Phase,
    pub progress_history: Vec<Entry>,
    pub source_server_uuid: Uuid,
    pub state: State,
    /// Differs from `vm_uuid` in tests of the deployed service only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_vm_uuid: Option<Uuid>,
    /// None until the target is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_server_uuid: Option<Uuid>,
    pub vm_uuid: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// When the migration left the queue (RFD 34).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_timestamp: Option<Time>,
    /// When the switch is to start (RFD 34).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_timestamp: Option<Time>,
    /// Bytes that the last sync sent (RFD 34).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What stands behind `error`, for operators (RFD 34).
    #[serde(rename = "errorDetail", skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    /// Addresses that this migration itself reserved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_nics: Vec<ReservedNic>,
    #[serde(rename = "journal", skip_serializing_if = "is_default")]
    pub intent: Intent,
}

/// An address that is reserved in NAPI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedNic {
    pub network_uuid: Uuid,
    pub ip: std::net::IpAddr,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryFields {
    #[serde(rename = "type")]
    pub kind: String,
    pub phase: Phase,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_progress: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_progress: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_uuid: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(rename = "errorDetail", skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<String>,
    /// A failed begin that left something behind may not be begun again.
    #[serde(rename = "disallowRetry", skip_serializing_if = "Option::is_none")]
    pub disallow_retry: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
}

fn is_default(intent: &Intent) -> bool {
    *intent == Intent::default()
}

impl Fields for RecordFields {
    fn read(reader: &mut Reader) -> Option<RecordFields> {
        let id = reader.required("id");
        let vm_uuid = reader.required("vm_uuid");
        let source_server_uuid = reader.required("source_server_uuid");
        let phase = reader.required("phase");
        let state = reader.required("state");
        let automatic = reader.optional("automatic").unwrap_or(false);
        let num_sync_phases = reader.optional("num_sync_phases").unwrap_or(0);
        let created_timestamp = reader.required("created_timestamp");
        let fields = RecordFields {
            action: reader.optional("action"),
            automatic,
            created_timestamp: created_timestamp.unwrap_or(Time::from_millis(0)),
            id: id.unwrap_or_default(),
            num_sync_phases,
            owner_uuid: reader.optional("owner_uuid"),
            account_uuid: reader.optional("account_uuid"),
            phase: phase?,
            progress_history: reader.list("progress_history"),
            source_server_uuid: source_server_uuid.unwrap_or_default(),
            state: state?,
            target_vm_uuid: reader.optional("target_vm_uuid"),
            target_server_uuid: reader.optional("target_server_uuid"),
            vm_uuid: vm_uuid.unwrap_or_default(),
            data_version: reader.optional("data_version"),
            duration_ms: reader.optional("duration_ms"),
            started_timestamp: reader.optional("started_timestamp"),
            scheduled_timestamp: reader.optional("scheduled_timestamp"),
            finished_timestamp: reader.optional("finished_timestamp"),
            last_sync_size: reader.optional("last_sync_size"),
            error: reader.optional("error"),
            error_detail: reader.optional("errorDetail"),
            reserved_nics: reader.optional("reserved_nics").unwrap_or_default(),
            intent: reader.optional("journal").unwrap_or_default(),
        };
        Some(fields)
    }
}

impl Fields for EntryFields {
    fn read(reader: &mut Reader) -> Option<EntryFields> {
        let (kind, phase, state) =
            (reader.required("type"), reader.required("phase"), reader.required("state"));
        Some(EntryFields {
            kind: kind?,
            phase: phase?,
            state: state?,
            current_progress: reader.optional("current_progress"),
            total_progress: reader.optional("total_progress"),
            message: reader.optional("message"),
            started_timestamp: reader.optional("started_timestamp"),
            job_uuid: reader.optional("job_uuid"),
            finished_timestamp: reader.optional("finished_timestamp"),
            error: reader.optional("error"),
            error_detail: reader.optional("errorDetail"),
            disallow_retry: reader.optional("disallowRetry"),
            duration_ms: reader.optional("duration_ms"),
        })
    }
}
