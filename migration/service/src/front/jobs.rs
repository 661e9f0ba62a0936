// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /jobs` and `GET /jobs/UUID`: operations in the form of the workflow API, since their ids are those of jobs for
//! the callers of VMAPI, whose own jobs are passed on.

use std::time::Duration;

use axum::extract::Request;
use daemon::http::{Body, collect};
use http::header::ACCEPT_ENCODING;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{Answer, READ, ok, whole};
use super::shared::Front;
use crate::action_params::lower_uuid;
use crate::params::Params;
use crate::records::jobs;
use crate::refused::Refused;
use migration_core::record::{Entry, Record, State as RecordState};

/// The longest list of VMAPI's jobs to which ours are added, and how long it may take.
const LONGEST: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

impl Front {
    pub async fn job(&self, job: &str, request: Request) -> Answer {
        if let Some(id) = lower_uuid(job)
            && let Some(record) = self.service.records.of_job(id).await?
            && let Some(job) = of_record(&record, id)
        {
            return ok(&job);
        }
        self.pass(request).await
    }

    /// VMAPI's list, with the operations of migrations before it. Of pages the first one has them.
    pub async fn jobs(&self, vm: Option<&str>, params: &Params, request: Request) -> Answer {
        let (mut parts, body) = whole(request, READ).await?;
        let ours = self.own_jobs(vm, params).await?;
        if ours.is_empty() {
            return self.upstream.send(parts, body).await;
        }
        parts.headers.remove(ACCEPT_ENCODING); // what is compressed could not be added to
        let (head, body) = self.upstream.send(parts, body).await?.into_parts();
        if head.status != StatusCode::OK {
            return Ok(Response::from_parts(head, body));
        }
        let cut = || Refused::coded(503, "ServiceUnavailableError", "VMAPI's list of jobs was cut");
        let bytes = collect(body, LONGEST, PATIENCE).await.ok_or_else(cut)?;
        match serde_json::from_slice::<Vec<Value>>(&bytes) {
            Ok(theirs) => ok(&json!([ours, theirs].concat())),
            Err(_) => Ok(Response::from_parts(head, Body::from(bytes))),
        }
    }

    /// Returns the operations that a list of jobs is asked for, the newest first.
    async fn own_jobs(&self, vm: Option<&str>, params: &Params) -> Result<Vec<Value>, Refused> {
        let text = |name: &str| params.as_sent(name);
        let of_vm = vm.map(str::to_owned).or_else(|| text("vm_uuid"));
        if text("offset").is_some_and(|offset| offset != "0") {
            return Ok(Vec::new());
        }
        let of_vm = match of_vm.as_deref().map(lower_uuid) {
            Some(None) => return Ok(Vec::new()),
            Some(vm) => vm,
            None => None,
        };
        let records = self.service.records.with_past(of_vm).await?;
        let all = records.iter().flat_map(|record| jobs(record).map(move |id| (record, id)));
        let mut found: Vec<Value> = all.filter_map(|(record, id)| of_record(record, id)).collect();
        let fits = |name: &str, value: &Value| text(name).is_none_or(|text| *value == text);
        found.retain(|job| {
            fits("task", &job["params"]["task"]) && fits("execution", &job["execution"])
        });
        let at = |job: &Value| job["created_at"].as_str().unwrap_or("~").to_owned();
        found.sort_by_key(|job| std::cmp::Reverse(at(job)));
        Ok(found)
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
