// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which state of a migration a person has to end, and when that has lasted too long.

use crate::intent::{End, Remedy};
use crate::record::{Phase, Record, State, is_over};
use crate::time::Time;

/// A state that lasts longer than this raises an alarm: a migration that runs, is paused, is not finalized, has no
/// copy shown, or whose step is tried again.
const RUNNING_MS: i64 = DAY_MS;
const PAUSED_MS: i64 = 3 * DAY_MS;
const UNFINISHED_MS: i64 = 7 * DAY_MS;
const HIDDEN_MS: i64 = 60_000;
const AGAIN_MS: i64 = 60_000;
const SILENT_MS: i64 = 60_000;
pub const DAY_MS: i64 = 86_400_000;

/// A state that a person ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    BeginFailed,
    SyncFailed,
    SwitchUndone,
    SwitchFailed,
    AbortFailed,
    CopyUnfit,
    CopyLost,
    NoRoom,
    OnlyCopy,
    NoWayBack,
    RollbackFailed,
    FinalizeFailed,
    Unsynced,
    Paused,
    Late,
    Unfinalized,
    /// The old node does not answer, and a copy that was synced is on the new one.
    SourceSilent,
    /// The new node does not answer, to which the VM was switched.
    TargetSilent,
    /// The node of the new copy does not answer; the VM is on the old one.
    CopySilent,
    /// The node of the old copy does not answer; the VM is on the new one.
    OldSilent,
    /// Nothing can be done without the nodes that do not answer.
    NodesSilent,
    Stuck,
    Again,
    Hidden,
    Older,
    Stranger,
    /// A node was declared dead.
    Declared,
    Returned,
    RunsReplaced,
    /// Both copies run, and what ends it is what the record waits for anyway, or happens by itself.
    BothRun,
    /// Both run before the switch: the copy on the target was booted by hand.
    CopyRuns,
    /// Both run after it: the old copy was.
    OldRuns,
}

impl Why {
    /// Returns its name in the table of all states; a node that was declared dead needs nothing yet.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Why::BeginFailed => "migration-begin-failed",
            Why::SyncFailed => "migration-sync-failed",
            Why::SwitchUndone => "migration-switch-undone",
            Why::SwitchFailed => "migration-switch-failed",
            Why::AbortFailed => "migration-abort-failed",
            Why::CopyUnfit => "migration-copy-unfit",
            Why::CopyLost => "migration-copy-lost",
            Why::NoRoom => "migration-no-room",
            Why::OnlyCopy => "migration-only-copy",
            Why::NoWayBack => "migration-no-way-back",
            Why::RollbackFailed => "migration-rollback-failed",
            Why::FinalizeFailed => "migration-finalize-failed",
            Why::Unsynced => "migration-unsynced",
            Why::Paused => "migration-paused",
            Why::Late => "migration-late",
            Why::Unfinalized => "migration-unfinalized",
            Why::SourceSilent => "migration-source-silent",
            Why::TargetSilent => "migration-target-silent",
            Why::CopySilent => "migration-copy-silent",
            Why::OldSilent => "migration-old-silent",
            Why::NodesSilent => "migration-nodes-silent",
            Why::Stuck => "migration-stuck",
            Why::Again => "migration-again",
            Why::Hidden => "migration-hidden",
            Why::Older => "migration-older",
            Why::Stranger => "migration-unknown",
            Why::Returned => "migration-returned",
            Why::RunsReplaced => "migration-replaced-runs",
            Why::BothRun => "migration-both-run",
            Why::CopyRuns => "migration-copy-runs",
            Why::OldRuns => "migration-old-copy-runs",
            Why::Declared => return None,
        })
    }

    /// Returns true if something has failed.
    pub fn is_failure(self) -> bool {
        self <= Why::RollbackFailed
    }

    /// Returns true if an agent does not answer.
    pub fn is_silence(self) -> bool {
        (Why::SourceSilent..=Why::NodesSilent).contains(&self)
    }

    /// Returns what a person may do about one that waits for that.
    fn asks(self) -> &'static str {
        match self {
            Why::BeginFailed | Why::CopyUnfit => "you: abort, then begin",
            Why::NoRoom => {
                "you: abort, then begin elsewhere, or make room on the target, then sync"
            }
            Why::OnlyCopy => "you: rescue",
            Why::NoWayBack => "you: switch, or rollback --discard",
            Why::SyncFailed | Why::CopyLost | Why::Unsynced => "you: sync or abort",
            Why::SwitchUndone => "you: switch or abort",
            Why::SwitchFailed => "you: switch or rollback",
            Why::AbortFailed => "you: abort",
            Why::RollbackFailed => "you: rollback or switch",
            Why::FinalizeFailed => "you: finalize",
            Why::Paused => "you: sync, switch or abort",
            Why::Late => "you: switch, schedule or abort",
            Why::Unfinalized => "you: finalize or rollback",
            Why::SourceSilent => "its old node; you, if that is lost: switch --source-dead",
            Why::TargetSilent => "its new node; you, if that is lost: rollback --target-dead",
            Why::CopySilent => "its new node; you, if that is lost: abort --target-dead",
            Why::OldSilent => "its old node; you, if that is lost: finalize --source-dead",
            Why::NodesSilent => "its nodes, which do not answer",
            Why::Older | Why::Stranger => "you: adopt",
            Why::CopyRuns => "you: abort; both copies run",
            Why::OldRuns => "you: finalize; both copies run",
            _ => "you",
        }
    }
}

/// Returns what a migration waits for, in words; none of one that goes on, or is over. `turn` is what one that is
/// queued waits for.
pub fn waits_for(record: &Record, turn: Option<&str>, now: Time) -> Option<String> {
    let intent = &record.intent;
    if is_over(record) {
        return None;
    }
    if intent.older.is_some() {
        return Some(Why::Older.asks().to_owned());
    }
    if let Some(again) = &intent.again {
        return Some(again.sentence(now));
    }
    match (waits(record), record.state) {
        (Some(why), _) => Some(why.asks().to_owned()),
        (None, State::Queued) => Some(turn.unwrap_or("its turn").to_owned()),
        (None, State::Scheduled) => Some(
            record
                .scheduled_timestamp
                .map_or("its time".to_owned(), |at| format!("its time, {at}")),
        ),
        (None, State::Running) => {
            let creation = intent.creation.as_ref().map(|it| it.sentence(now));
            creation.or_else(|| intent.runs.as_ref().map(ToString::to_string))
        }
        (None, _) => None,
    }
}

/// Returns why a migration is not done: what has failed, what it was aborted for, whose turn it is. `turn` is what one
/// that is queued waits for.
pub fn why(record: &Record, turn: Option<&str>) -> Option<String> {
    let error = |otherwise: &str| record.error.clone().unwrap_or_else(|| otherwise.to_owned());
    match record.state {
        State::Failed => Some(error("it failed; no reason is recorded")),
        State::Aborted => Some(error("it was aborted")),
        State::Queued => Some(turn.unwrap_or("it is its turn").to_owned()),
        State::Running | State::Paused | State::Scheduled | State::Successful => {
            record.error.clone()
        }
    }
}

/// Returns what a migration waits for a person to do, however long it does.
pub fn waits(record: &Record) -> Option<Why> {
    let last = record.progress_history.last();
    Some(match record.state {
        _ if is_over(record) => return None,
        _ if let Some((why, _)) = silent(record) => why,
        _ if let Some(why) = twins(record) => why,
        State::Failed if let Some(remedy) = record.intent.remedy => of(remedy),
        State::Failed => match record.phase {
            Phase::Begin => Why::BeginFailed,
            // A switch that was undone is back in its sync.
            Phase::Sync if last.is_some_and(|it| it.phase == Phase::Switch) => Why::SwitchUndone,
            Phase::Sync => Why::SyncFailed,
            Phase::Switch => Why::SwitchFailed,
            Phase::Abort => Why::AbortFailed,
            Phase::Rollback => Why::RollbackFailed,
        },
        State::Paused if record.num_sync_phases == 0 => Why::Unsynced,
        State::Paused => Why::Paused,
        State::Scheduled if record.error.is_some() => Why::Late,
        State::Successful if record.intent.finalize => return None,
        State::Successful if record.error.is_some() => {
            record.intent.remedy.map_or(Why::FinalizeFailed, of)
        }
        State::Successful => Why::Unfinalized,
        _ => return None,
    })
}

/// Returns the state of a migration that a node keeps from going on whose agent does not answer, and which node that is.
/// One that was declared dead does not: unless the operation failed, with which the declaration ends.
pub fn silent(record: &Record) -> Option<(Why, End)> {
    let intent = &record.intent;
    if is_over(record) || intent.older.is_some() {
        return None;
    }
    let has_failed = record.state == State::Failed;
    let is_silent = |end: End| {
        let lasts = match end {
            End::Source => intent.target_shown,
            End::Target => intent.source_shown,
        };
        let is_declared = intent.is_dead(end) && intent.returned.is_none();
        intent.silent(end).is_some() && !(is_declared && (lasts || !has_failed))
    };
    let is_switched = (record.phase, record.state) == (Phase::Switch, State::Successful);
    let may_switch = !intent.source_shown && (intent.target_shown || record.num_sync_phases > 0);
    Some(match (is_silent(End::Source), is_silent(End::Target)) {
        (false, false) => return None,
        (true, true) => (Why::NodesSilent, intent.of_vm()),
        (true, false) if is_switched => (Why::OldSilent, End::Source),
        (true, false) if may_switch => (Why::SourceSilent, End::Source),
        (true, false) => (Why::NodesSilent, End::Source),
        (false, true) if intent.source_goes => (Why::NodesSilent, End::Target),
        (false, true) if intent.target_shown => (Why::TargetSilent, End::Target),
        (false, true) => (Why::CopySilent, End::Target),
    })
}

/// Returns the state of a migration at rest both of whose copies run, where one command ends that whatever else it waits
/// for. A switch or a rollback that failed behind the switch goes on with its own.
fn twins(record: &Record) -> Option<Why> {
    let intent = &record.intent;
    intent.both_run?;
    match record.state {
        State::Successful if !intent.finalize => Some(Why::OldRuns),
        State::Paused | State::Scheduled | State::Failed if !intent.target_shown => {
            Some(Why::CopyRuns)
        }
        _ => None,
    }
}

/// Returns the state whose command is the remedy.
fn of(remedy: Remedy) -> Why {
    match remedy {
        Remedy::Anew => Why::CopyUnfit,
        Remedy::Resend => Why::CopyLost,
        Remedy::Room => Why::NoRoom,
        Remedy::Rescue => Why::OnlyCopy,
        Remedy::Stay => Why::NoWayBack,
    }
}

/// Returns since when a migration is as it is, in ms: the end of what it did last, else the beginning of that.
pub fn age(record: &Record, now: Time) -> i64 {
    let last = record.progress_history.last();
    let since = last.and_then(|entry| entry.finished_timestamp.or(entry.started_timestamp));
    now.since(since.unwrap_or(record.created_timestamp))
}

/// Returns what a person has to do something about now. What is to be done about ends that were replaced, and
/// migrations without a record, is no record's.
pub fn needs(record: &Record, now: Time) -> Vec<Why> {
    let (age, intent) = (age(record, now), &record.intent);
    let mut needs = Vec::new();
    needs.extend(waits(record).filter(|why| match why {
        Why::Unsynced | Why::Paused => age > PAUSED_MS,
        Why::Unfinalized => age > UNFINISHED_MS,
        why if why.is_silence() => {
            let since = [intent.source_silent, intent.target_silent].into_iter().flatten().min();
            since.is_some_and(|since| now.since(since) > SILENT_MS)
        }
        _ => true,
    }));
    let is_said = matches!(waits(record), Some(Why::CopyRuns | Why::OldRuns));
    if intent.both_run.is_some() && !is_said && !is_over(record) {
        needs.push(Why::BothRun);
    }
    if record.state == State::Running && !is_over(record) && age > RUNNING_MS {
        needs.push(Why::Stuck);
    }
    let again = intent.again.as_ref().map_or(0, |again| now.since(again.since));
    if again > AGAIN_MS && !is_over(record) {
        needs.push(Why::Again);
    }
    let hidden = intent.hidden_since.map_or(0, |since| now.since(since));
    if hidden > HIDDEN_MS && !is_over(record) {
        needs.push(Why::Hidden);
    }
    if intent.older.is_some() {
        needs.push(Why::Older);
    }
    needs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::samples::record;

    #[test] // M143
    fn every_wait_is_said() {
        let now = Time::parse("2026-03-01T02:05:00Z").unwrap();
        let again = json!({"why": "CNAPI does not answer", "since": "2026-03-01T02:00:00.000Z", "failed": 3, "most": 10,
            "next": "2026-03-01T02:05:04.000Z"});
        let tried = "CNAPI does not answer (attempt 3 of 10 failed; since 5 min, the next in 4 s)";
        let at = "2026-03-02T00:00:00.000Z";
        for (fields, want) in [
            (json!({"state": "running"}), None),
            (json!({"state": "running", "journal": {"again": again}}), Some(tried)),
            (
                json!({"state": "running", "journal": {"creation": {"since": "2026-03-01T02:01:00.000Z"}}}),
                Some(
                    "CNAPI did not answer the order to create the target; unless the target shows, it is ordered again in 11 min",
                ),
            ),
            (
                json!({"state": "running",
                    "journal": {"creation": {"since": "2026-03-01T02:01:00.000Z", "task": "t-1"}}}),
                Some("CNAPI creates the target (task t-1, since 4 min)"),
            ),
            (
                json!({"state": "successful", "journal": {"again": again, "finalize": true}}),
                Some(tried),
            ),
            (json!({"state": "successful", "journal": {"finalize": true}}), None),
            (json!({"state": "queued"}), Some("N is full; place 2")),
            (
                json!({"state": "scheduled", "scheduled_timestamp": at}),
                Some("its time, 2026-03-02T00:00:00.000Z"),
            ),
            (
                json!({"state": "scheduled", "scheduled_timestamp": at, "error": "x"}),
                Some("you: switch, schedule or abort"),
            ),
            (json!({"state": "paused"}), Some("you: sync or abort")),
            (json!({"state": "paused", "num_sync_phases": 1}), Some("you: sync, switch or abort")),
            (json!({"state": "failed", "phase": "begin"}), Some("you: abort, then begin")),
            (
                json!({"state": "failed", "phase": "sync", "journal": {"remedy": "anew"}}),
                Some("you: abort, then begin"),
            ),
            (
                json!({"state": "failed", "phase": "sync", "journal": {"remedy": "room"}}),
                Some("you: abort, then begin elsewhere, or make room on the target, then sync"),
            ),
            (
                json!({"state": "failed", "phase": "rollback", "journal": {"remedy": "stay"}}),
                Some("you: switch, or rollback --discard"),
            ),
            (
                json!({"state": "successful", "error": "x", "journal": {"remedy": "rescue"}}),
                Some("you: rescue"),
            ),
            (json!({"state": "successful", "phase": "switch"}), Some("you: finalize or rollback")),
            (json!({"state": "running", "journal": {"older": at}}), Some("you: adopt")),
            (
                json!({"state": "paused", "num_sync_phases": 1, "journal": {"both_run": at}}),
                Some("you: abort; both copies run"),
            ),
            (
                json!({"state": "successful", "phase": "switch", "journal": {"both_run": at}}),
                Some("you: finalize; both copies run"),
            ),
            (
                json!({"state": "failed", "phase": "switch",
                    "journal": {"both_run": at, "target_shown": true}}),
                Some("you: switch or rollback"),
            ),
            (json!({"state": "aborted"}), None),
        ] {
            let told = waits_for(&record(fields.clone()), Some("N is full; place 2"), now);
            assert_eq!(told.as_deref(), want, "{fields}");
        }
        let long = json!({"state": "running", "created_timestamp": "2026-03-01T02:00:00.000Z", "journal": {"again": again}});
        assert_eq!(needs(&record(long), now), [Why::Again]);
    }
}
