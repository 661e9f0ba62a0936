// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which action is taken in which phase and state.

use super::action::{Action, Call};
use super::refusal::Refusal;
use crate::record::{Phase, Record, State, is_over};

/// What an admitted call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// An operation, answered with 202: the record gets this phase and runs.
    Start(Phase),
    /// What runs waits for its next attempt, and makes that now (202).
    TryNow,
    /// The running sync is paused (202).
    Pause,
    /// What runs is paused, then the migration is aborted (202).
    PauseThenAbort,
    /// There is no target yet: the record ends at once (200).
    AbortAtOnce,
    /// The hidden source is deleted while the caller waits (200).
    Finalize,
    /// The only copy that is left becomes the VM (202).
    Rescue,
    /// The sizes are read while the caller waits (200).
    Estimate,
    /// The time of the switch is stored (200).
    Schedule,
    /// The time of the switch is removed (200).
    Unschedule,
}

/// Returns what a call leads to, given the record of the VM.
pub fn admit(record: Option<&Record>, call: Call) -> Result<Admitted, Refusal> {
    let record = record.filter(|record| !is_over(record));
    // What waits for a node that is declared dead ends with that word, as if it had waited long enough.
    let stalled = record.filter(|it| call.declares && it.state == State::Running).cloned();
    let stalled = stalled.map(|mut record| {
        record.state = State::Failed;
        record.intent.undo.get_or_insert_default();
        record
    });
    let record = stalled.as_ref().or(record);
    if record.is_some_and(|record| waits(record, call)) {
        return Ok(Admitted::TryNow);
    }
    match (call.action, record) {
        (Action::Estimate, _) if call.is_forced => Ok(Admitted::Estimate),
        (Action::Estimate, record) => begin(record).map(|()| Admitted::Estimate),
        (Action::Begin, record) => begin(record).map(|()| Admitted::Start(Phase::Begin)),
        (Action::Schedule, None) => Ok(Admitted::Start(Phase::Begin)),
        (_, None) => Err(Refusal::NoRecord),
        (Action::Sync, Some(record)) => sync(record, call),
        (Action::Switch, Some(record)) => switch(record, call),
        (Action::Pause, Some(record)) => pause(record),
        (Action::Abort, Some(record)) => abort(record, call),
        (Action::Rollback, Some(record)) => rollback(record, call),
        (Action::Finalize, Some(record)) => finalize(record),
        (Action::Rescue, Some(record)) => rescue(record),
        (Action::Schedule, Some(record)) => schedule(record),
        (Action::Unschedule, Some(record)) => match record.scheduled_timestamp {
            Some(_) => Ok(Admitted::Unschedule),
            None => Err(Refusal::NotScheduled),
        },
    }
}

/// Returns true if a step of what is asked for has failed and waits for its next attempt. To force an abort is more.
fn waits(record: &Record, call: Call) -> bool {
    let asked = match call.action {
        Action::Begin => Phase::Begin,
        Action::Sync => Phase::Sync,
        Action::Switch => Phase::Switch,
        Action::Rollback => Phase::Rollback,
        Action::Abort if !call.is_forced => Phase::Abort,
        _ => return false,
    };
    record.state == State::Running
        && record.phase == asked
        && record.intent.again.is_some()
        && !call.is_subtask
}

/// A failed begin may be repeated, on the same record, unless it left something behind.
fn begin(record: Option<&Record>) -> Result<(), Refusal> {
    let Some(record) = record else { return Ok(()) };
    let has_left = record.progress_history.last().is_some_and(|it| it.disallow_retry == Some(true));
    match (record.phase, record.state) {
        (_, State::Successful) => Err(Refusal::NotFinalized),
        (Phase::Begin, State::Failed) if !has_left => Ok(()),
        _ => Err(Refusal::Active),
    }
}

/// The states in which the next action may be given; a subtask is part of what runs.
fn is_ready(state: State, call: Call) -> bool {
    match state {
        State::Paused | State::Failed | State::Scheduled => true,
        State::Running | State::Queued => call.is_subtask,
        State::Successful | State::Aborted => false,
    }
}

fn sync(record: &Record, call: Call) -> Result<Admitted, Refusal> {
    if !is_ready(record.state, call) {
        return Err(Refusal::SyncState(record.state));
    }
    match record.phase {
        Phase::Begin if record.state != State::Failed => Ok(Admitted::Start(Phase::Sync)),
        Phase::Sync => Ok(Admitted::Start(Phase::Sync)),
        // The last sync is a part of the switch, whose phase stays.
        Phase::Switch if record.state == State::Running => Ok(Admitted::Start(Phase::Sync)),
        phase => Err(Refusal::SyncPhase(phase)),
    }
}

fn switch(record: &Record, call: Call) -> Result<Admitted, Refusal> {
    if has_begun_switch(record) {
        return Ok(Admitted::Start(Phase::Switch));
    }
    if !matches!(record.phase, Phase::Begin | Phase::Sync) {
        return Err(Refusal::SwitchPhase(record.phase));
    }
    if !is_ready(record.state, call) {
        return Err(Refusal::SwitchState(record.state));
    }
    if record.num_sync_phases == 0 {
        return Err(Refusal::NeverSynced);
    }
    Ok(Admitted::Start(Phase::Switch))
}

/// A failed switch that was not undone, or a rollback that has not shown the source: it goes on where it ended. The
/// records of the deployed service lack it, and are refused as recorded.
fn has_begun_switch(record: &Record) -> bool {
    let intent = &record.intent;
    match (record.phase, record.state) {
        (Phase::Switch, State::Failed) => {
            intent.target_shown || intent.power.is_some() || intent.undo.is_some()
        }
        (Phase::Rollback, State::Failed) => intent.target_shown && !intent.source_shown,
        _ => false,
    }
}

fn pause(record: &Record) -> Result<Admitted, Refusal> {
    match (record.phase, record.state) {
        (Phase::Sync, State::Running | State::Queued) => Ok(Admitted::Pause),
        _ => Err(Refusal::NoRunningSync),
    }
}

fn abort(record: &Record, call: Call) -> Result<Admitted, Refusal> {
    let start = match record.target_server_uuid {
        Some(_) => Admitted::Start(Phase::Abort),
        None => Admitted::AbortAtOnce,
    };
    match record.state {
        State::Successful => Err(Refusal::AbortSuccessful),
        State::Running if call.is_forced && record.intent.target_shown => Err(Refusal::UseRollback),
        State::Running if call.is_forced => Ok(Admitted::PauseThenAbort),
        State::Running => Err(Refusal::AbortRunning),
        _ if record.intent.target_shown => Err(Refusal::UseRollback),
        _ => Ok(start),
    }
}

fn rollback(record: &Record, call: Call) -> Result<Admitted, Refusal> {
    if record.intent.source_goes {
        return Err(Refusal::UseFinalize);
    }
    if call.declares && !call.discards && record.intent.has_written() {
        let switched = record.progress_history.iter().rev();
        let mut switched = switched.filter(|it| it.phase == Phase::Switch);
        return Err(Refusal::Unread(switched.find_map(|it| it.finished_timestamp)));
    }
    match (record.phase, record.state) {
        (Phase::Rollback, State::Running) => Err(Refusal::RollbackRunning),
        (Phase::Rollback, _) | (Phase::Switch, State::Successful) => {
            Ok(Admitted::Start(Phase::Rollback))
        }
        (Phase::Switch, State::Failed) if record.intent.target_shown => {
            Ok(Admitted::Start(Phase::Rollback))
        }
        _ => Err(Refusal::NothingToRollBack),
    }
}

/// Finalize deletes the source: a success of any other phase is none.
fn finalize(record: &Record) -> Result<Admitted, Refusal> {
    match (record.phase, record.state) {
        (Phase::Switch, State::Successful) => Ok(Admitted::Finalize),
        _ => Err(Refusal::NothingToFinalize),
    }
}

/// What it finds on the nodes decides what it does.
fn rescue(record: &Record) -> Result<Admitted, Refusal> {
    let is_at_rest = !matches!(record.state, State::Running | State::Queued);
    match record.target_server_uuid {
        Some(_) if is_at_rest => Ok(Admitted::Rescue),
        Some(_) => Err(Refusal::RescueRunning),
        None => Err(Refusal::NothingToRescue),
    }
}

fn schedule(record: &Record) -> Result<Admitted, Refusal> {
    match (record.phase, record.state) {
        (Phase::Begin | Phase::Sync, state) if state != State::Successful => Ok(Admitted::Schedule),
        (phase, state) => Err(Refusal::Schedule(phase, state)),
    }
}
