// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests that would change a VM: the action `migrate`, and what a migrating VM is not to be asked.

use std::time::Duration;

use axum::extract::Request;
use daemon::http::reply_json;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::answer::{Answer, READ, done, ok, uuid, whole};
use super::reading::Change;
use super::shared::Front;
use crate::action_params::{ActionParams, lower_uuid, overrides};
use crate::begin::Vm;
use crate::command::Done;
use crate::params::Params;
use crate::placement::Unplaced;
use crate::refused::Refused;
use crate::runner;
use crate::verify::verify;
use migration_core::checks::Warning;
use migration_core::estimate;
use migration_core::intent::End;
use migration_core::machine::{Action, Call, Refusal, admit};
use migration_core::permit::{self, Caller};
use migration_core::record::{Phase, Record, State as RecordState, is_over};
use migration_core::resync::Rule;

/// Actions of VMAPI that change what a migration moves.
const REFUSED: [&str; 16] = [
    "start",
    "stop",
    "kill",
    "reboot",
    "reprovision",
    "update",
    "add_nics",
    "update_nics",
    "remove_nics",
    "create_snapshot",
    "rollback_snapshot",
    "delete_snapshot",
    "create_disk",
    "resize_disk",
    "delete_disk",
    "delete",
];

/// What a migration that waits refuses: nothing could be brought over any more.
const REMAKES: [&str; 2] = ["reprovision", "rollback_snapshot"];

/// How long a deletion waits for the end of a migration.
const ABORTED: Duration = Duration::from_secs(60);
/// How long a caller waits for a finalize, and between two readings of it.
const FINALIZED: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(500);

impl Front {
    /// Answers a request that would change a VM: what it may, VMAPI answers. `uuid` is the path's.
    pub async fn judge(&self, change: Change, uuid: &str, request: Request) -> Answer {
        let (parts, body) = whole(request, READ).await?;
        let params = Params::of(Some(uuid), parts.uri.query(), &parts.headers, &body)?;
        let vm = named(&params, "uuid", "Invalid UUID")?;
        let action = match change {
            Change::Action => named(&params, "action", "Invalid parameter")?,
            Change::Deletion => "delete",
            Change::Maps => "update",
        };
        if change == Change::Action && action == "migrate" {
            return self.migrate(vm, &params).await;
        }
        if action == "delete" {
            self.end_what_waits(vm, &params).await?;
        }
        self.refuse_while_migrating(vm, change, action, params.is_body_unread).await?;
        self.upstream.send(parts, body).await
    }

    /// Refuses an action on a VM that migrates, and a body that hides which. Where its migration has nothing but a
    /// record, or is done but for the hidden source, all but its deletion passes.
    async fn refuse_while_migrating(
        &self,
        vm: &str,
        change: Change,
        action: &str,
        is_body_unread: bool,
    ) -> Result<(), Refused> {
        let is_known = REFUSED.contains(&action);
        let Some(vm) = lower_uuid(vm).filter(|_| is_known || is_body_unread) else { return Ok(()) };
        let Some(kept) = self.service.records.of_vm(vm).await? else { return Ok(()) };
        let record = &kept.record;
        if !is_in_the_way(record, change, action) {
            return Ok(());
        }
        if is_body_unread {
            let why =
                "The instance is being migrated, and the body has no type that is read: send JSON";
            return Err(Refused::coded(415, "UnsupportedMediaTypeError", why));
        }
        let (phase, state) = (record.phase.name(), record.state.name());
        let message = format!(
            "Cannot {action} an instance that is being migrated (migration {}, {phase} {state})",
            record.id
        );
        Err(Refused::coded(409, "ConflictError", &message))
    }

    /// Aborts a migration of which nothing runs: its owner deletes the VM. Where the copy cannot be removed the first
    /// deletion is refused with the reason, and the VM is let go of.
    async fn end_what_waits(&self, vm: &str, params: &Params) -> Result<(), Refused> {
        let Some(uuid) = lower_uuid(vm) else { return Ok(()) };
        let Some(kept) = self.service.records.of_vm(uuid).await? else { return Ok(()) };
        let (record, id) = (&kept.record, kept.record.id);
        let can_abort = admit(Some(record), Call::new(Action::Abort)).is_ok();
        if !waits(record) || !can_abort {
            return Ok(());
        }
        let vm = self.service.vm(uuid).await?;
        let asked =
            ActionParams { through: params.through.clone(), ..ActionParams::of(Action::Abort) };
        self.service.command(&vm, Action::Abort, &asked, None).await?;
        let until = Instant::now() + ABORTED;
        while Instant::now() < until {
            match self.service.records.get(id).await? {
                Some(kept) if is_over(&kept.record) => return Ok(()),
                None => return Ok(()),
                Some(kept) if kept.record.state == RecordState::Failed => {
                    let why = kept.record.error.as_deref().unwrap_or("no reason is known");
                    let message = format!("The migration {id} cannot be aborted: {why}");
                    return Err(Refused::coded(409, "ConflictError", &message));
                }
                Some(_) => sleep(POLL).await,
            }
        }
        Ok(())
    }

    /// Answers `action=migrate`. The order of the checks is VMAPI's.
    async fn migrate(&self, vm: &str, params: &Params) -> Answer {
        let vm_uuid = uuid(vm)?;
        let asked = ActionParams::read(params)?;
        let vm = self.service.vm(vm_uuid).await?;
        permit::permit_reading(asked.caller, vm.subject())?;
        if asked.action == Some(Action::Begin) {
            self.service.peers.check_networks(&vm.object).await?;
        }
        if let Some(sync) = params.get("sync")
            && !["true", "false"].iter().any(|word| *sync == json!(word))
            && !sync.is_boolean()
        {
            return Err(Refused::parameter("sync", "Invalid parameter"));
        }
        vm.is_allocated()?;
        let action = asked.action.ok_or(Refusal::UnknownAction)?;
        if vm.server.is_none() {
            return Err(Refused::precondition("Invalid vm instance"));
        }
        let target = overrides(params)?;
        let is_operator = asked.caller == Caller::Operator;
        if action == Action::Finalize
            && is_operator
            && runner::delete(&self.service, vm_uuid).await?
        {
            return done();
        }
        if action == Action::Finalize && !asked.is_forced {
            self.verified(vm_uuid, asked.call(action)).await?;
        }
        match self.service.command(&vm, action, &asked, target).await? {
            Done::Started { job, record, warnings } => {
                let caller = asked.caller;
                self.accepted(job, &record, (action, caller), &warnings).await
            }
            Done::Changed(record, job) => {
                let mut body = json!({"migration": record.raw_entries(self.service.clock.now())});
                if let Some(job) = job {
                    body["job_uuid"] = json!(job);
                }
                ok(&body)
            }
            Done::Finalize(record) => self.finalize(&record).await,
            Done::Estimate => self.estimate(&vm, &asked, target).await,
        }
    }

    /// Refuses to delete a source whose copy is not whole. Where a node does not answer the rounds will wait. A call
    /// that is refused anyway gets no hint that force would help.
    async fn verified(&self, vm: Uuid, call: Call) -> Result<(), Refused> {
        let Some(kept) = self.service.records.of_vm(vm).await? else { return Ok(()) };
        let intent = &kept.record.intent;
        // Nothing is compared with a copy on a node that was, or is about to be, declared dead.
        let is_given_up = call.declares || intent.is_dead(End::Source);
        if is_given_up || intent.source_goes || admit(Some(&kept.record), call).is_err() {
            return Ok(());
        }
        match verify(&self.service, &kept.record).await {
            Ok(compared) if compared["equal"] == json!(false) => Err(Refused::precondition(
                "The copies do not have the same snapshot of every dataset (see verify); use force to finalize",
            )),
            _ => Ok(()),
        }
    }

    /// 202: the phase that is shown is the action that was asked for, as the deployed service has it.
    async fn accepted(
        &self,
        job: Uuid,
        record: &Record,
        (action, caller): (Action, Caller),
        warnings: &[Warning],
    ) -> Answer {
        let waits = self.waits(std::iter::once(record)).await?;
        let mut shown = record.public(self.service.clock.now());
        shown["phase"] = json!(action.name());
        shown["state"] = json!("running");
        if let Some(reason) = waits.get(&record.id) {
            shown["state"] = json!(RecordState::Queued);
            if caller == Caller::Operator {
                shown["waits_for"] = json!(reason);
            }
        }
        let mut body = json!({"job_uuid": job, "migration": shown});
        if !warnings.is_empty() {
            let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            tracing::warn!(vm = %record.vm_uuid, reasons = warnings.join("; "), "began the migration despite warnings");
            body["warnings"] = json!(warnings);
        }
        let mut response = reply_json(StatusCode::ACCEPTED, &body);
        if let Ok(url) = HeaderValue::from_str(&self.service.url) {
            response.headers_mut().insert("workflow-api", url);
        }
        Ok(response)
    }

    /// Waits until the hidden source is deleted, or could not be.
    async fn finalize(&self, record: &Record) -> Answer {
        let (service, id) = (&self.service, record.id);
        let until = Instant::now() + FINALIZED;
        loop {
            let Some(kept) = service.records.get(id).await? else { return done() };
            if is_over(&kept.record) {
                return done();
            }
            if !kept.record.intent.finalize {
                let why = kept
                    .record
                    .error
                    .as_deref()
                    .unwrap_or("another request or the service ended it");
                return Err(Refused::internal(&format!("Migration finalize failed: {why}")));
            }
            if Instant::now() >= until {
                return Err(Refused::internal("Migration finalize failed: it goes on"));
            }
            sleep(POLL).await;
        }
    }

    async fn estimate(&self, vm: &Vm, asked: &ActionParams, target: Option<Uuid>) -> Answer {
        // Many of these come at once: an agent that does not answer holds up none of them for long.
        if let (true, Some(source)) = (asked.with_target, vm.server)
            && self.service.agents.recent_node(source).await.node().is_none()
        {
            return Err(Unplaced::NoSource.into());
        }
        let (basis, bytes) = self.service.basis(vm).await?;
        if !asked.is_forced {
            return ok(&estimate::deployed(bytes));
        }
        let mut estimate_json = basis.estimate(&Rule::default()).rfd34();
        if asked.with_target {
            let target = self.service.destination(vm, asked, target).await?;
            estimate_json["target_server_uuid"] = json!(target);
        }
        ok(&estimate_json)
    }
}

/// Returns a parameter that has to be a text; an empty one where there is none.
fn named<'a>(params: &'a Params, name: &str, wrong: &str) -> Result<&'a str, Refused> {
    let Some(value) = params.get(name) else { return Ok("") };
    value.as_str().ok_or_else(|| Refused::parameter(name, wrong))
}

/// Returns true if nothing of the migration runs, and the VM is where it was: it waits for a person, a time or its
/// turn, or the last sync failed.
fn waits(record: &Record) -> bool {
    match record.state {
        RecordState::Paused | RecordState::Scheduled | RecordState::Queued => true,
        RecordState::Failed => matches!(record.phase, Phase::Begin | Phase::Sync),
        RecordState::Running | RecordState::Successful | RecordState::Aborted => false,
    }
}

/// Returns true if an action would touch what the migration moves. While it waits, the VM is its owner's: what changes
/// is brought over, or fails the next sync. Tags and metadata are brought over also while a sync runs; the switch, or
/// its way back, could lose them.
fn is_in_the_way(record: &Record, change: Change, action: &str) -> bool {
    let is_switch = matches!(record.phase, Phase::Switch | Phase::Rollback);
    match record.state {
        RecordState::Successful => action == "delete",
        RecordState::Aborted => false,
        _ if record.intent.let_go => false,
        _ if change == Change::Maps => is_switch,
        _ if waits(record) && !REMAKES.contains(&action) => action == "delete",
        RecordState::Failed => record.target_server_uuid.is_some(),
        _ => true,
    }
}
