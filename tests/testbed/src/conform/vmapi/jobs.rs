// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recorded service's jobs, which did the steps of a migration and wrote what came of them by three routes. Ours
//! does the steps itself and refuses these routes: what a job wrote is put into its records, so that the exchanges
//! that follow meet the recorded state.

use std::path::Path;

use anyhow::Context;
use migration_core::progress::Latest;
use migration_core::record::{Phase, Record, State};
use migration_service::Service;
use migration_service::records::Rest;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::conform::transcript::Asked;

/// Puts what a job wrote into the records. Returns false if the request is none of a job. What the recorded service
/// could not read changes nothing.
pub(super) async fn written(service: &Service, asked: &Asked) -> anyhow::Result<bool> {
    let mut parts = asked.path.split('/').skip(1);
    let (Some("migrations"), Some(vm), Some(route)) = (parts.next(), parts.next(), parts.next())
    else {
        return Ok(false);
    };
    let Some(body) = asked.body.as_ref().filter(|_| asked.method == "POST") else {
        return Ok(false);
    };
    match (route, vm.parse::<Uuid>()) {
        ("store", _) => drop(store(service, body).await),
        ("progress", Ok(vm)) => progress(service, vm, body).await?,
        ("updateVmServerUuid", Ok(vm)) => drop(moved(service, vm, asked).await),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Plays the round that takes a migration up which has just been accepted.
pub(super) async fn begun(service: &Service, vm: &str) -> anyhow::Result<()> {
    let Ok(vm) = vm.parse() else { return Ok(()) };
    let kept = service.records.of_vm(vm).await?;
    if let Some(mut kept) = kept.filter(|kept| kept.record.state == State::Queued) {
        kept.record.state = State::Running;
        service.records.write(&mut kept, None).await?;
    }
    Ok(())
}

/// Plays the round that finalizes a migration: its record goes, or has the failure that was recorded.
pub(super) async fn finalize(
    service: &Service,
    vm: &str,
    failure: Option<&str>,
) -> anyhow::Result<()> {
    let vm: Uuid = vm.parse()?;
    loop {
        let changed = service.wake.notified();
        let kept = service.records.of_vm(vm).await?;
        if let Some(mut kept) = kept.filter(|kept| kept.record.intent.finalize) {
            let Some(why) = failure else {
                return Ok(service.records.remove(&kept, None, Rest::Gone).await?);
            };
            kept.record.intent.finalize = false;
            kept.record.error = Some(why.to_owned());
            return Ok(service.records.write(&mut kept, None).await?);
        }
        changed.await;
    }
}

/// Stores a record as it is.
pub(super) async fn store(service: &Service, record: &Value) -> anyhow::Result<()> {
    let mut record = Record::read(record)?;
    record.data_version.get_or_insert(1);
    if record.state == State::Successful && matches!(record.phase, Phase::Abort | Phase::Rollback) {
        record.state = State::Aborted; // the recorded service removes it
    }
    service.records.overwrite(&record).await?;
    let running = record.progress_history.last().filter(|entry| entry.state == State::Running);
    if running.is_none_or(|entry| entry.phase != Phase::Sync) {
        service.records.news.forget_event(record.vm_uuid).await?;
    }
    Ok(())
}

/// Keeps an event for the watchers of the phase that runs.
async fn progress(service: &Service, vm: Uuid, event: &Value) -> anyhow::Result<()> {
    let kept = service.records.of_vm(vm).await?;
    let running = kept.as_ref().and_then(|kept| kept.record.progress_history.last());
    let running = running.filter(|entry| entry.state == State::Running);
    if let Some(entry) = running.filter(|entry| event["phase"] == json!(entry.phase)) {
        let latest = Latest { of: entry.started_timestamp, event: event.clone() };
        service.records.news.put_event(vm, &latest).await?;
    }
    Ok(())
}

/// Changes the node of a VM.
async fn moved(service: &Service, vm: Uuid, asked: &Asked) -> anyhow::Result<()> {
    let of_query = asked.query.split('&').find_map(|pair| pair.strip_prefix("server_uuid="));
    let of_body = asked.body.as_ref().and_then(|body| body["server_uuid"].as_str());
    let named = of_body.or(of_query).filter(|text| text.parse::<Uuid>().is_ok());
    let Some(server) = named else { return Ok(()) };
    let vm = vm.to_string();
    let mut record = service.peers.vmapi.record(&vm).await?;
    record.insert("server_uuid".into(), json!(server));
    service.peers.vmapi.put_vm(&vm, &record).await?;
    Ok(())
}

/// The jobs that VMAPI posted.
pub(super) struct Jobs(Vec<Value>);

impl Jobs {
    /// Reads the recording in the directory of the exchanges.
    pub(super) fn read(transcript: &Path) -> anyhow::Result<Jobs> {
        let path = transcript.with_file_name("migrate-jobs.jsonl");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Jobs(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?))
    }

    /// Returns the record that the job of an exchange had.
    pub(super) fn record(&self, exchange: &str) -> Option<Value> {
        let job = self.0.iter().find(|job| job["id"] == exchange)?;
        let mut record = job["job"]["migrationTask"]["record"].clone();
        // What was computed for the job, not stored.
        for entry in record["progress_history"].as_array_mut()? {
            entry.as_object_mut()?.shift_remove("duration_ms");
        }
        record.as_object_mut()?.shift_remove("data_version");
        Some(record)
    }

    /// Returns the record of any job on the VM, with this phase and state.
    pub(super) fn like(&self, change: &Value, vm: &str) -> Option<Value> {
        let job = self.0.iter().find(|job| job["job"]["vm_uuid"] == vm)?;
        let mut record = self.record(job["id"].as_str()?)?;
        for field in ["phase", "state"] {
            record[field] = change[field].clone();
            record["progress_history"][0][field] = change[field].clone();
        }
        record["num_sync_phases"] = change["num_sync_phases"].clone();
        Some(record)
    }
}
