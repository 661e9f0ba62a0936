// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an operation's beginning, notes and end make of the record.

use uuid::Uuid;

use super::decide::next;
use super::facts::Facts;
use super::next::{Ending, Next, Note};
use crate::intent::{Before, End};
use crate::record::{Entry, EntryFields, Phase, Record, State};
use crate::time::Time;

/// No operation has so many notes one after another.
const MOST_NOTES: usize = 16;

/// What becomes of a record after an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It stays, and people can act on it.
    Stays,
    /// It stays as history (RFD 34); the deployed service removes it.
    Over,
    /// It is removed.
    Goes,
}

/// Begins an operation, or continues one that failed: nothing of the last try but facts is relied on.
///
/// A record of the deployed service does not show how far a switch came: the target may have run.
pub fn start(record: &mut Record, phase: Phase, message: &str, job: Uuid, now: Time) {
    let is_late = matches!(record.phase, Phase::Switch | Phase::Rollback);
    if record.intent.revision == 0 && is_late {
        record.intent.target_shown = true;
        record.intent.target_booted = true;
    }
    record.phase = phase;
    record.state = State::Running;
    record.error = None;
    record.error_detail = None;
    record.finished_timestamp = None;
    record.started_timestamp.get_or_insert(now);
    (record.intent.undo, record.intent.again, record.intent.remedy) = (None, None, None);
    (record.intent.sending, record.intent.names_lost) = (None, 0);
    (record.intent.pause, record.intent.rehearsed, record.intent.runs) = (false, None, None);
    (record.intent.rescue, record.intent.let_go) = (None, false);
    // A word is given with a command, and for it; but once the other copy was shown, a node that comes
    // back must still find that it was replaced.
    if !record.intent.target_shown {
        record.intent.source_dead = None;
    }
    if !record.intent.source_shown {
        record.intent.target_dead = None;
        record.intent.discard = None;
    }
    let forced = forced(record, phase);
    record.progress_history.push(Entry::new(EntryFields {
        kind: "progress".into(),
        phase,
        state: State::Running,
        current_progress: Some(1),
        total_progress: Some(100),
        message: Some(format!("{message}{forced}")),
        started_timestamp: Some(now),
        job_uuid: Some(job),
        finished_timestamp: None,
        error: None,
        error_detail: None,
        disallow_retry: None,
        duration_ms: None,
    }));
}

/// Returns what the entry of an operation says besides, where an operator took upon himself what is refused otherwise.
fn forced(record: &Record, phase: Phase) -> &'static str {
    let is_forced = record.intent.any_vm_agent.is_some();
    match phase {
        Phase::Begin | Phase::Switch if is_forced => "; forced, whichever vm-agent the nodes have",
        _ => "",
    }
}

/// Begins a rescue.
pub fn rescue(record: &mut Record, message: &str, job: Uuid, now: Time) {
    let before = match record.state {
        State::Successful => Before::Switched,
        State::Failed => Before::Failed,
        _ => Before::Waited,
    };
    start(record, record.phase, message, job, now);
    record.intent.rescue = Some(before);
}

/// Lets an operation wait for its turn: one of its nodes has as many as it may have.
pub fn queue(record: &mut Record, phase: Phase) {
    record.phase = phase;
    record.state = State::Queued;
}

/// Writes a note into the intent.
pub fn note(record: &mut Record, note: Note) {
    let intent = &mut record.intent;
    match note {
        Note::Power(power) => intent.power = Some(power),
        Note::Restored => intent.power = None,
        Note::Sending(number) => intent.sending = number,
        Note::NameTaken => {
            intent.sending = None;
            intent.names_lost += 1;
        }
        Note::TargetShown => {
            intent.target_shown = true;
            intent.source_shown = false;
        }
        Note::TargetBooted => intent.target_booted = true,
        Note::SourceShown => {
            intent.source_shown = true;
            intent.source_dead = None;
        }
        Note::SourceGoes => intent.source_goes = true,
    }
    let is_decided = matches!(note, Note::TargetShown | Note::SourceShown);
    if is_decided && intent.rescue.is_some() {
        intent.rescue = Some(Before::Failed);
        record.phase = if intent.source_shown { Phase::Rollback } else { Phase::Switch };
    }
}

/// Gives an operation up. What can be undone is undone in the rounds that follow. The first reason stays.
pub fn give_up(record: &mut Record, reason: &impl std::fmt::Display) {
    record.intent.undo.get_or_insert_with(|| reason.to_string());
}

/// Returns true if a record can be right of whose migration the agents of these ends know that it is over: it is
/// about to end, or what follows is none of theirs. A rescue begins after the end of the copy that is gone.
pub fn may_be_over(record: &Record, facts: &Facts, over: &[End]) -> bool {
    if over.is_empty() {
        return true;
    }
    let mut record = record.clone();
    for _ in 0..MOST_NOTES {
        match next(&record, facts) {
            Next::Note(it) => note(&mut record, it),
            Next::Wait(_) => return true,
            Next::Do(step) => return !over.iter().any(|end| step.is_of(*end)),
            Next::End(ending) => return ending.is_last() || record.intent.rescue.is_some(),
            Next::GiveUp(_) => return record.intent.rescue.is_some(),
        }
    }
    false
}

/// Ends an operation that cannot go on nor be undone now, because a node does not answer. The next command
/// takes it up where it is.
pub fn stall(record: &mut Record, reason: &impl std::fmt::Display, now: Time) {
    give_up(record, reason);
    finish(record, State::Failed, now);
    record.error = record.intent.undo.clone();
}

/// Ends an operation. Returns what becomes of the record.
pub fn settle(record: &mut Record, ending: Ending, now: Time) -> After {
    match ending {
        Ending::Begun => finish(record, State::Successful, now),
        Ending::Synced => {
            record.num_sync_phases += 1;
            finish(record, State::Successful, now);
        }
        Ending::Paused => finish(record, State::Paused, now),
        Ending::Switched => {
            record.intent.power = None;
            finish(record, State::Successful, now);
            record.state = State::Successful;
            record.finished_timestamp = Some(now);
            return After::Stays;
        }
        Ending::Aborted => {
            finish(record, State::Successful, now);
            record.error = record.intent.undo.take();
            record.state = State::Aborted;
            record.finished_timestamp = Some(now);
            return After::Over;
        }
        Ending::RolledBack { is_gone } => {
            finish(record, State::Successful, now);
            return leave(record, is_gone);
        }
        Ending::Finalized { is_gone } => return leave(record, is_gone),
        Ending::Failed(ref error) => {
            fail(record, error.clone(), now);
            return After::Stays;
        }
    }
    let waits_for_time = ending == Ending::Synced && record.scheduled_timestamp.is_some();
    record.state = if waits_for_time { State::Scheduled } else { State::Paused };
    (record.intent.sending, record.intent.names_lost) = (None, 0);
    record.intent.pause = false;
    After::Stays
}

/// Ends a record whose other copy is gone, or will be found by its agent when the node is back.
fn leave(record: &mut Record, is_gone: bool) -> After {
    record.intent.over = !is_gone;
    if is_gone { After::Goes } else { After::Over }
}

fn fail(record: &mut Record, error: String, now: Time) {
    let is_past_return = record.intent.target_shown;
    let is_finalize = record.state == State::Successful;
    record.error = Some(error);
    record.intent.undo = None;
    if is_finalize {
        return; // a finalize that failed can be repeated: the record stays successful
    }
    finish(record, State::Failed, now);
    if let Some(before) = record.intent.rescue.take() {
        record.state = match before {
            Before::Switched => State::Successful,
            Before::Waited if record.scheduled_timestamp.is_some() => State::Scheduled,
            Before::Waited => State::Paused,
            Before::Failed => State::Failed,
        };
        return;
    }
    record.intent.let_go = match record.phase {
        // Where the target has run, the source may be hidden still.
        Phase::Abort => !record.intent.target_booted,
        Phase::Rollback => record.intent.source_shown,
        _ => false,
    };
    // A switch that was undone leaves the migration where it was: ready for a sync.
    if record.phase == Phase::Switch && !is_past_return {
        record.phase = Phase::Sync;
    }
    // What a failed begin made is removed by abort; nothing is begun on top of it.
    let has_target = record.phase == Phase::Begin && record.target_server_uuid.is_some();
    if (has_target || is_past_return)
        && let Some(entry) = record.progress_history.last_mut()
    {
        entry.disallow_retry = Some(true);
    }
}

/// Closes the last entry of the history.
fn finish(record: &mut Record, state: State, now: Time) {
    record.intent.runs = None;
    let error = record.error.clone();
    record.state = state;
    if let Some(entry) = record.progress_history.last_mut() {
        entry.state = state;
        entry.error = if state == State::Failed { error } else { None };
        entry.current_progress = entry.total_progress;
        entry.finished_timestamp = Some(now);
        entry.duration_ms = Some(now.since(entry.started_timestamp.unwrap_or(now)));
    }
}

/// Returns the phase that follows an ending by itself: an automatic migration syncs after begin, then as
/// long as another sync is worth it, then switches; a scheduled one syncs once and waits for its time.
/// After a pause nothing follows: the next sync or switch is a command's, and the rest follows it again.
pub fn follow(record: &Record, ending: &Ending, is_synced_enough: bool) -> Option<Phase> {
    let is_scheduled = record.scheduled_timestamp.is_some();
    match ending {
        Ending::Begun if record.automatic || is_scheduled => Some(Phase::Sync),
        Ending::Synced if record.automatic && !is_scheduled => {
            Some(if is_synced_enough { Phase::Switch } else { Phase::Sync })
        }
        _ => None,
    }
}
