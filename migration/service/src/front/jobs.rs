// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /jobs/UUID`: an operation in the form of the workflow API, since its id is a job's for the callers
//! of VMAPI.

use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{Answer, ok, uuid};
use super::shared::Front;
use crate::refused::Refused;
use migration_core::record::{Entry, Record, State as RecordState};

impl Front {
    pub async fn job(&self, job: &str) -> Answer {
        let id = uuid(job)?;
        let record = self.service.records.of_job(id).await?;
        let job = record.and_then(|record| of_record(&record, id));
        let missing = || Refused::not_found(&format!("Job {id} does not exist"));
        ok(&job.ok_or_else(missing)?)
    }
}

/// Returns the operation of this id, if the record has it.
fn of_record(record: &Record, id: Uuid) -> Option<Value> {
    let params = |phase: &str| {
        let task = format!("migrate-{phase}");
        json!({"vm_uuid": record.vm_uuid, "task": task, "migration": record.id})
    };
    if record.intent.job == Some(id) {
        return Some(json!({
            "uuid": id, "name": format!("migrate-{}", record.phase.name()), "execution": "queued",
            "params": params(record.phase.name()), "chain_results": [],
        }));
    }
    let entry = record.progress_history.iter().rev().find(|entry| entry.job_uuid == Some(id))?;
    let mut results = json!([]);
    if entry.finished_timestamp.is_some() {
        let error = entry.error.clone().unwrap_or_default();
        results = json!([{
            "name": entry.phase.name(), "result": if error.is_empty() { "OK" } else { "" },
            "error": error, "started_at": entry.started_timestamp,
            "finished_at": entry.finished_timestamp,
        }]);
    }
    Some(json!({
        "uuid": id,
        "name": format!("migrate-{}", entry.phase.name()),
        "execution": execution(entry),
        "params": params(entry.phase.name()),
        "created_at": entry.started_timestamp,
        "started": entry.started_timestamp,
        "elapsed": entry.duration_ms.map(|ms| ms / 1000),
        "chain_results": results,
    }))
}

fn execution(entry: &Entry) -> &'static str {
    match entry.state {
        RecordState::Running | RecordState::Queued => "running",
        RecordState::Failed => "failed",
        RecordState::Paused => "canceled",
        _ => "succeeded",
    }
}
