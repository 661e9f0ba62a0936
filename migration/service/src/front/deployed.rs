// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes by which the deployed service's jobs write: `store`, `progress` and `updateVmServerUuid`.
//! They are refused where this service does the steps itself.

use axum::extract::Request;
use serde_json::{Value, json};

use super::answer::{Answer, done, ok, params, uuid};
use super::shared::Front;
use crate::asked::lower_uuid;
use crate::params::Params;
use crate::refused::Refused;
use migration_core::progress::Latest;
use migration_core::record::{Phase, Record, State as RecordState};

impl Front {
    /// Stores a record as it is.
    pub async fn store(&self, request: Request) -> Answer {
        let params = self.of_job(request).await?;
        let mut record = Record::read(&Value::Object(params.into_object()))?;
        record.data_version.get_or_insert(1);
        if record.state == RecordState::Successful
            && matches!(record.phase, Phase::Abort | Phase::Rollback)
        {
            record.state = RecordState::Aborted; // the deployed service removes it
        }
        self.service.records.overwrite(&record).await?;
        let running = record.progress_history.last();
        let running = running.filter(|entry| entry.state == RecordState::Running);
        if running.is_none_or(|entry| entry.phase != Phase::Sync) {
            self.service.records.forget_event(record.vm_uuid).await?;
        }
        done()
    }

    /// Keeps an event for the watchers of the phase that runs.
    pub async fn progress(&self, vm: &str, request: Request) -> Answer {
        let params = self.of_job(request).await?;
        if params.text("type") != Some("progress") {
            return Err(Refused::internal("No progress event provided"));
        }
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

    /// Changes the node of a VM.
    pub async fn update_server(&self, vm: &str, request: Request) -> Answer {
        let params = self.of_job(request).await?;
        let vm = uuid(vm)?;
        let server = params.text("server_uuid").and_then(lower_uuid);
        let server = server.ok_or_else(|| Refused::parameter("server_uuid", "Invalid UUID"))?;
        ok(&Value::Object(self.service.peers.set_server(vm, server).await?))
    }

    async fn of_job(&self, request: Request) -> Result<Params, Refused> {
        if self.is_external() {
            return params(request).await;
        }
        let why = "migration-service does the steps itself: nobody else writes its records";
        Err(Refused::coded(403, "Forbidden", why))
    }
}
