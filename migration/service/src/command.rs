// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An action on the record of a VM: checked, and written with compare-and-swap.

use store::Error;
use uuid::Uuid;

use super::action_params::{ActionParams, Words};
use super::begin::{Asks, Vm};
use super::history;
use super::refused::Refused;
use super::state::Service;
use migration_core::checks::Warning;
use migration_core::intent::{Confirmation, End};
use migration_core::machine::{
    Action, Admitted, Ending, Refusal, admit, queue, rescue, settle, stall, start,
};
use migration_core::permit::{Caller, Denied, permit};
use migration_core::record::{Entry, EntryFields, Phase, Record, State};
use migration_core::schedule;
use migration_core::time::Time;

/// What became of a command.
#[derive(Clone, Debug)]
pub enum Done {
    /// 202: an operation runs, or waits for its turn.
    Started {
        /// The operation's id.
        job: Uuid,
        record: Box<Record>,
        /// What is not as it was on the new node, or has to be seen to.
        warnings: Vec<Warning>,
    },
    /// 200: the record is as shown. CloudAPI wants the id of an operation where there is none any more.
    Changed(Box<Record>, Option<Uuid>),
    /// The caller waits until the hidden source is deleted.
    Finalize(Box<Record>),
    /// The caller waits for an estimate.
    Estimate,
}

/// The leader writes its heartbeat within this, in ms.
const HEARD_MS: i64 = 60_000;

/// How often a write is tried that loses against others.
const TRIES: usize = 8;

impl Service {
    /// Does an action on a VM, whose target may be named.
    pub async fn command(
        &self,
        vm: &Vm,
        action: Action,
        asked: &ActionParams,
        target: Option<Uuid>,
    ) -> Result<Done, Refused> {
        if action == Action::Rescue && asked.caller == Caller::Operator {
            Box::pin(self.of_replaced_alone(vm, asked)).await?;
        }
        for _ in 0..TRIES {
            match self.try_command(vm, action, asked, target).await {
                Err(Failed::Lost) => {}
                Err(Failed::Refused(refused)) => return Err(refused),
                Ok(done) => {
                    self.wake.notify_one();
                    return Ok(done);
                }
            }
        }
        Err(Refused::coded(503, "ServiceUnavailableError", "the migration changes all the time"))
    }

    async fn try_command(
        &self,
        vm: &Vm,
        action: Action,
        asked: &ActionParams,
        target: Option<Uuid>,
    ) -> Result<Done, Failed> {
        let lock = self.records.lock(vm.uuid).await?;
        let kept = self.records.of_vm(vm.uuid).await?;
        let record = kept.as_ref().map(|kept| &kept.record);
        let settings = self.settings.read().await?;
        let begins = matches!(action, Action::Begin | Action::Estimate | Action::Schedule);
        if record.is_some_and(|record| record.intent.older.is_some()) {
            let what = "The store is older than what the agents received of this migration";
            let why = format!("{what}: sdc-migrate adopt {}", vm.uuid);
            return Err(Refused::precondition(&why).into());
        }
        if record.is_none() {
            Box::pin(self.is_no_stranger(vm)).await?;
        }
        if record.is_none() && !begins {
            return Err(Refusal::NoRecord.into());
        }
        permit(asked.caller, action, vm.subject(), record, settings.allow_user_migrations)?;
        let admitted = admit(record, asked.call(action))?;
        let now = self.clock.now();
        let is_elsewhere =
            target.is_some() && target != record.and_then(|it| it.target_server_uuid);
        if admitted == Admitted::TryNow && is_elsewhere {
            return Err(Refusal::Active.into());
        }
        let at = match (action, asked.at.as_deref()) {
            (Action::Schedule, text) => Some(self.time(text, now).await?),
            (_, Some(text)) if action == Action::Begin => Some(self.time(Some(text), now).await?),
            _ => None,
        };
        let by = match asked.caller {
            Caller::Account(account) => account,
            Caller::Operator => self.operators,
        };
        // Of an owner it is no word.
        let may_force = asked.is_forced && asked.caller == Caller::Operator;
        let forced = may_force.then_some(Confirmation { by, at: now });
        let mut warnings = Vec::new();
        if admitted == Admitted::Start(Phase::Begin) || admitted == Admitted::Estimate {
            let asks = if admitted == Admitted::Estimate { Asks::Nothing } else { Asks::Now };
            let mut findings = self.check(vm, target, asks).await?;
            if may_force {
                findings.force();
            }
            if let Some(refused) = Refused::obstacles(&findings) {
                return Err(refused.into());
            }
            self.is_watched_nowhere(vm, target).await?;
            warnings = findings.warnings;
        }
        let job = Uuid::new_v4();
        let Some(mut kept) = kept else {
            if admitted == Admitted::Estimate {
                return Ok(Done::Estimate);
            }
            let mut record = self.new_record(vm, asked, target, now);
            record.scheduled_timestamp = at;
            record.intent.job = Some(job);
            record.intent.asker = Some(asked.asker(now));
            record.intent.any_vm_agent = forced;
            let kept = self.records.create(record, lock).await?;
            return Ok(Done::Started { job, record: Box::new(kept.record), warnings });
        };
        let before = kept.record.clone();
        if let Some(target) = target.filter(|_| admitted == Admitted::Start(Phase::Begin)) {
            kept.record.target_server_uuid = Some(target);
        }
        if let (Some(limit), Admitted::Start(_) | Admitted::TryNow | Admitted::Schedule) =
            (asked.bwlimit, &admitted)
        {
            kept.record.intent.bwlimit = Some(limit).filter(|limit| *limit > 0);
        }
        if let Some(most) = asked.max_downtime {
            kept.record.intent.max_downtime = Some(most).filter(|most| *most > 0);
        }
        if matches!(admitted, Admitted::Start(Phase::Begin | Phase::Switch)) && forced.is_some() {
            kept.record.intent.any_vm_agent = forced;
        }
        let done = match admitted {
            Admitted::Estimate => return Ok(Done::Estimate),
            Admitted::Finalize => {
                self.take(&kept.record, asked.words).await?;
                if asked.words.source_dead.is_some() {
                    kept.record.intent.source_dead = Some(Confirmation { by, at: now });
                    kept.record.intent.returned = None;
                }
                kept.record.intent.finalize = true;
                if let Some(again) = &mut kept.record.intent.again {
                    again.next = now;
                }
                Done::Finalize(Box::new(kept.record.clone()))
            }
            Admitted::AbortAtOnce => {
                Done::Changed(Box::new(aborted(&mut kept.record, job, now)), Some(job))
            }
            Admitted::Schedule => {
                schedule::set(&mut kept.record, at.unwrap_or(now));
                Done::Changed(Box::new(kept.record.clone()), None)
            }
            Admitted::Unschedule => {
                schedule::unset(&mut kept.record);
                Done::Changed(Box::new(kept.record.clone()), None)
            }
            Admitted::Rescue => {
                Box::pin(self.may_rescue(&kept.record, None)).await?;
                rescue(&mut kept.record, "rescuing the instance", job, now);
                Done::Started { job, record: Box::new(kept.record.clone()), warnings }
            }
            Admitted::Start(phase) => {
                let is_second =
                    (kept.record.phase, kept.record.state) == (Phase::Abort, State::Failed);
                let may_discard = asked.is_forced
                    && (is_second || phase == Phase::Abort && self.is_shut_out(&kept.record));
                let words = Words { discard: asked.words.discard || may_discard, ..asked.words };
                self.take(&kept.record, words).await?;
                // A node that it waits for was declared dead: it waits no more.
                if kept.record.state == State::Running && asked.call(action).declares {
                    let what = history::running(&kept.record);
                    stall(&mut kept.record, &"a node was declared dead", now);
                    kept.ended = Some(history::of(&mut kept.record, (what, history::FAILED), now));
                }
                begin_phase(&mut kept.record, phase, words, job, by, now);
                Done::Started { job, record: Box::new(kept.record.clone()), warnings }
            }
            Admitted::TryNow => {
                // Whoever does the rounds sees that the record was changed.
                if let Some(again) = &mut kept.record.intent.again {
                    again.next = now;
                }
                Done::Started {
                    job: running(&kept.record),
                    record: Box::new(kept.record.clone()),
                    warnings,
                }
            }
            Admitted::Pause => Done::Started {
                job: paused(&mut kept.record),
                record: Box::new(kept.record.clone()),
                warnings,
            },
            // What it waits for does not end, and a person has said that it need not: the copy is left, and named.
            Admitted::PauseThenAbort if let Some(left) = hangs(&kept.record) => {
                kept.record.intent.discard = Some(Confirmation { by, at: now });
                kept.record.intent.undo.get_or_insert(left);
                Done::Started {
                    job: running(&kept.record),
                    record: Box::new(kept.record.clone()),
                    warnings,
                }
            }
            // It was asked for before.
            Admitted::PauseThenAbort if kept.record.phase == Phase::Abort => Done::Started {
                job: running(&kept.record),
                record: Box::new(kept.record.clone()),
                warnings,
            },
            Admitted::PauseThenAbort => {
                settle(&mut kept.record, Ending::Paused, now);
                start(&mut kept.record, Phase::Abort, message(Phase::Abort), job, now);
                if self.is_shut_out(&kept.record) {
                    kept.record.intent.discard = Some(Confirmation { by, at: now });
                }
                Done::Started { job, record: Box::new(kept.record.clone()), warnings }
            }
        };
        // An order that is given again changes nothing: a write would cost those who do the rounds theirs.
        if kept.record != before {
            kept.record.intent.asker = Some(asked.asker(now));
            if admitted == Admitted::AbortAtOnce {
                kept.ended =
                    Some(history::of(&mut kept.record, ("abort", history::SUCCESSFUL), now));
            }
            self.records.write(&mut kept, None).await?;
        }
        Ok(done)
    }

    /// Before a rescue: of a migration whose record has gone, and of which a copy that was replaced is still watched, there
    /// is a record again, if there is something to be rescued.
    async fn of_replaced_alone(&self, vm: &Vm, asked: &ActionParams) -> Result<(), Refused> {
        if let Some(draft) = self.replaced_alone(vm, asked).await? {
            self.may_rescue(&draft.record, Some(&draft)).await?;
            self.keep(draft).await?;
        }
        Ok(())
    }

    /// Whether the node of the new copy has no key that is honoured: a forced abort leaves the copy there.
    fn is_shut_out(&self, record: &Record) -> bool {
        record.target_server_uuid.is_some_and(|cn| self.is_revoked(cn))
    }

    /// Refuses a begin from or to a node whose copy of the VM was replaced: what is seen there is stopped and hidden.
    async fn is_watched_nowhere(&self, vm: &Vm, target: Option<Uuid>) -> Result<(), Failed> {
        let ends = self.records.ends.of_vm(vm.uuid).await?;
        let nodes = [vm.server, target];
        match ends.iter().map(|kept| kept.row.cn_uuid).find(|cn| nodes.contains(&Some(*cn))) {
            None => Ok(()),
            Some(cn) => {
                let what = "was replaced there and is not seen gone yet";
                Err(Refused::precondition(&format!("The copy of the instance on {cn} {what}"))
                    .into())
            }
        }
    }

    /// Reads the time of a switch. One that no instance would follow is refused.
    async fn time(&self, text: Option<&str>, now: Time) -> Result<Time, Failed> {
        let bad = |why: &str| Failed::Refused(Refused::parameter("scheduled_timestamp", why));
        let text = text.ok_or_else(|| bad("a time is needed"))?;
        let seen = self.records.news.seen().await?;
        if !schedule::is_followed(seen, HEARD_MS, now) {
            let why = "No migration-service runs the timers, so a schedule would have no effect";
            return Err(Failed::Refused(Refused::coded(503, "ServiceUnavailableError", why)));
        }
        schedule::read(text, now).map_err(|why| bad(&why.to_string()))
    }
}

/// Why a try failed.
enum Failed {
    /// Another request or instance has changed the record meanwhile.
    Lost,
    Refused(Refused),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Refused(refused)
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::Refused(refusal.into())
    }
}

impl From<Denied> for Failed {
    fn from(denied: Denied) -> Failed {
        Failed::Refused(denied.into())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match error {
            Error::EtagConflict { .. } => Failed::Lost,
            error => Failed::Refused(error.into()),
        }
    }
}

/// The history's entry of an operation when it begins.
pub fn message(phase: Phase) -> &'static str {
    match phase {
        Phase::Begin => "creating the target",
        Phase::Sync => "syncing data",
        Phase::Switch => "switching the instance",
        Phase::Abort => "aborting the migration",
        Phase::Rollback => "rolling the migration back",
    }
}

/// Begins an operation, or lets it wait for its turn. What undoes, goes on with a switch that has begun, or
/// an operator confirmed does not wait.
fn begin_phase(record: &mut Record, phase: Phase, words: Words, job: Uuid, by: Uuid, now: Time) {
    let has_begun = record.intent.power.is_some() || record.intent.target_shown;
    let is_urgent = has_begun || words.is_any() || matches!(phase, Phase::Abort | Phase::Rollback);
    if !is_urgent {
        queue(record, phase);
        record.intent.job = Some(job);
        return;
    }
    start(record, phase, message(phase), job, now);
    let word = |is_given: bool| is_given.then_some(Confirmation { by, at: now });
    if words.is_any() {
        record.intent.returned = None;
    }
    if words.source_dead.is_some() {
        record.intent.source_dead = word(true);
    }
    if words.target_dead.is_some() {
        record.intent.target_dead = word(true);
    }
    if words.discard {
        record.intent.discard = word(true);
    }
}

/// Asks for a pause, and returns the id of the operation that it ends.
fn paused(record: &mut Record) -> Uuid {
    if record.state == State::Queued {
        record.state = State::Paused;
        return record.intent.job.take().unwrap_or_default();
    }
    record.intent.pause = true;
    running(record)
}

/// Returns what an abort leaves that waits for a program of the target's node that does not end.
fn hangs(record: &Record) -> Option<String> {
    let runs = record.intent.runs.as_ref().filter(|it| it.end == End::Target)?;
    let cn = record.target_server_uuid.filter(|_| record.phase == Phase::Abort)?;
    Some(format!("the copy on {cn} is left: it waited for {runs}"))
}

/// Returns the id of the operation that runs.
fn running(record: &Record) -> Uuid {
    record.progress_history.last().and_then(|entry| entry.job_uuid).unwrap_or_default()
}

/// Ends a record that has no target. Returns it in the form in which the deployed service shows it, which
/// removes it then.
fn aborted(record: &mut Record, job: Uuid, now: Time) -> Record {
    record.progress_history.push(Entry::new(EntryFields {
        kind: "progress".into(),
        phase: Phase::Abort,
        state: State::Successful,
        current_progress: Some(100),
        total_progress: Some(100),
        message: None,
        started_timestamp: Some(now),
        job_uuid: Some(job),
        finished_timestamp: Some(now),
        error: None,
        error_detail: None,
        disallow_retry: None,
        duration_ms: None,
    }));
    (record.phase, record.state) = (Phase::Abort, State::Successful);
    record.finished_timestamp = Some(now);
    record.data_version.get_or_insert(1);
    let shown = record.clone();
    record.state = State::Aborted;
    shown
}
