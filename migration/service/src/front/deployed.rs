// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes by which the deployed service's jobs write: `store`, `progress` and `updateVmServerUuid`.
//! They are refused where this service does the steps itself.

use axum::extract::{Path, Request, State};
use daemon::http::Body;
use http::Response;
use serde_json::{Value, json};

use super::answer::{Answer, done, ok, params, respond, uuid};
use super::shared::Front;
use crate::asked::lower_uuid;
use crate::params::Params;
use crate::refused::Refused;
use migration_core::progress::Latest;
use migration_core::record::{Phase, Record, State as RecordState};

/// Answers `POST /migrations/UUID/store`. The path's uuid is not looked at.
pub async fn store(front: State<Front>, request: Request) -> Response<Body> {
    let answer = async {
        let params = allowed(&front, request).await?;
        let mut record = Record::read(&Value::Object(params.into_object()))?;
        record.data_version.get_or_insert(1);
        if record.state == RecordState::Successful
            && matches!(record.phase, Phase::Abort | Phase::Rollback)
        {
            record.state = RecordState::Aborted; // the deployed service removes it
        }
        front.service.records.overwrite(&record).await?;
        let running = record.progress_history.last();
        let running = running.filter(|entry| entry.state == RecordState::Running);
        if running.is_none_or(|entry| entry.phase != Phase::Sync) {
            front.service.records.forget_event(record.vm_uuid).await?;
        }
        done()
    };
    respond(answer.await)
}

/// Answers `POST /migrations/UUID/progress`.
pub async fn progress(
    front: State<Front>,
    Path(vm): Path<String>,
    request: Request,
) -> Response<Body> {
    let answer = async {
        let params = allowed(&front, request).await?;
        if params.text("type") != Some("progress") {
            return Err(Refused::internal("No progress event provided"));
        }
        front.store_event(&vm, params).await
    };
    respond(answer.await)
}

/// Answers `POST /migrations/UUID/updateVmServerUuid`: that field changes, and no other.
pub async fn update_server(
    front: State<Front>,
    Path(vm): Path<String>,
    request: Request,
) -> Response<Body> {
    let answer = async {
        let params = allowed(&front, request).await?;
        let vm = uuid(&vm)?;
        let server = params.text("server_uuid").and_then(lower_uuid);
        let server = server.ok_or_else(|| Refused::parameter("server_uuid", "Invalid UUID"))?;
        let record = front.service.peers.set_server(vm, server).await?;
        ok(&Value::Object(record))
    };
    respond(answer.await)
}

async fn allowed(front: &State<Front>, request: Request) -> Result<Params, Refused> {
    if front.is_external() {
        return params(request).await;
    }
    let why = "migration-service does the steps itself: nobody else writes its records";
    Err(Refused::coded(403, "Forbidden", why))
}

impl Front {
    /// Keeps an event for the watchers of the phase that runs.
    async fn store_event(&self, vm: &str, params: Params) -> Answer {
        let Some(vm) = lower_uuid(vm) else { return done() };
        let kept = self.service.records.of_vm(vm).await?;
        let running = kept.as_ref().and_then(|kept| kept.record.progress_history.last());
        let running = running.filter(|entry| entry.state == RecordState::Running);
        let event = json!(params.into_object());
        let is_of_phase = running.is_some_and(|entry| event["phase"] == json!(entry.phase));
        if let Some(entry) = running.filter(|_| is_of_phase) {
            let latest = Latest { of: entry.started_timestamp, event };
            self.service.records.put_event(vm, &latest).await?;
        }
        done()
    }
}
