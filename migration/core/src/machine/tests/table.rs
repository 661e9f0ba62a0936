// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of actions by phase and state, and the recorded one.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::machine::*;
use crate::record::{Phase, Record, State};
use crate::samples::record;

/// Returns the status and the message of a reply.
fn reply(admitted: Result<Admitted, Refusal>) -> (u64, String, String) {
    match admitted {
        Ok(Admitted::Finalize | Admitted::Estimate | Admitted::AbortAtOnce) => {
            (200, "".into(), "".into())
        }
        Ok(_) => (202, "".into(), "".into()),
        Err(refusal) => (refusal.status().into(), refusal.code().into(), refusal.to_string()),
    }
}

#[test] // M6
fn every_recorded_call_of_the_table_gets_the_recorded_reply() {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let mut now = None;
    let mut checked = 0;
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if line["group"] != "migrate-table" {
            continue;
        }
        let world = &line["world"];
        if world["do"] == "record" {
            now = Some(record(json!({
                "phase": world["phase"], "state": world["state"],
                "num_sync_phases": world["num_sync_phases"],
            })));
        }
        let Some(query) = line["request"]["query"].as_str() else { continue };
        let name = query.split("migration_action=").nth(1).unwrap().split('&').next().unwrap();
        let call = Call {
            is_subtask: query.contains("is_migration_subtask=true"),
            ..Call::new(Action::parse(name).unwrap())
        };
        let body = &line["response"]["body"];
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let want = (line["response"]["status"].as_u64().unwrap(), text("code"), text("message"));
        assert_eq!(reply(admit(now.as_ref(), call)), want, "{}", line["id"]);
        checked += 1;
    }
    assert_eq!(checked, 78);
}

/// Rows: phase, state, the actions that are taken.
const TABLE: [(&str, &str, &str); 35] = [
    ("begin", "queued", "schedule abort"),
    ("begin", "running", "schedule"),
    ("begin", "paused", "sync switch abort schedule rescue"),
    ("begin", "scheduled", "sync switch abort schedule rescue"),
    ("begin", "failed", "begin estimate switch abort schedule rescue"),
    ("begin", "successful", "rescue"),
    ("begin", "aborted", "begin estimate schedule"),
    ("sync", "queued", "pause abort schedule"),
    ("sync", "running", "pause schedule"),
    ("sync", "paused", "sync switch abort schedule rescue"),
    ("sync", "scheduled", "sync switch abort schedule rescue"),
    ("sync", "failed", "sync switch abort schedule rescue"),
    ("sync", "successful", "rescue"),
    ("sync", "aborted", "begin estimate schedule"),
    ("switch", "queued", "abort"),
    ("switch", "running", ""),
    ("switch", "paused", "abort rescue"),
    ("switch", "scheduled", "abort rescue"),
    ("switch", "failed", "abort rescue"),
    ("switch", "successful", "rollback finalize rescue"),
    ("switch", "aborted", "begin estimate schedule"),
    ("abort", "queued", "abort"),
    ("abort", "running", ""),
    ("abort", "paused", "abort rescue"),
    ("abort", "scheduled", "abort rescue"),
    ("abort", "failed", "abort rescue"),
    ("abort", "successful", "rescue"),
    ("abort", "aborted", "begin estimate schedule"),
    ("rollback", "queued", "abort rollback"),
    ("rollback", "running", ""),
    ("rollback", "paused", "abort rollback rescue"),
    ("rollback", "scheduled", "abort rollback rescue"),
    ("rollback", "failed", "abort rollback rescue"),
    ("rollback", "successful", "rollback rescue"),
    ("rollback", "aborted", "begin estimate schedule"),
];

fn taken(record: &Record, is_subtask: bool) -> String {
    let calls = Action::ALL.map(|action| Call { is_subtask, ..Call::new(action) });
    let names: Vec<&str> = calls
        .into_iter()
        .filter(|call| admit(Some(record), *call).is_ok())
        .map(|call| call.action.name())
        .collect();
    names.join(" ")
}

fn sorted(names: &str) -> Vec<&str> {
    let mut names: Vec<&str> = names.split_whitespace().collect();
    names.sort_unstable();
    names
}

#[test] // M7
fn each_phase_and_state_takes_its_actions_and_refuses_the_others() {
    let mut cells = std::collections::BTreeSet::new();
    for (phase, state, want) in TABLE {
        let record = record(json!({"phase": phase, "state": state, "num_sync_phases": 1}));
        assert_eq!(sorted(&taken(&record, false)), sorted(want), "{phase}/{state}");
        cells.insert((record.phase, record.state));
    }
    assert_eq!(cells.len(), Phase::ALL.len() * State::ALL.len());
}

#[test] // M7
fn a_subtask_may_sync_and_switch_what_runs() {
    for (phase, want) in [
        ("begin", "sync switch schedule"),
        ("sync", "sync switch pause schedule"),
        ("switch", "sync"),
        ("rollback", ""),
        ("abort", ""),
    ] {
        let record = record(json!({"phase": phase, "state": "running", "num_sync_phases": 1}));
        assert_eq!(sorted(&taken(&record, true)), sorted(want), "{phase}");
    }
}

#[test] // M8
fn the_intent_opens_ways_that_records_of_the_deployed_service_do_not_have() {
    let failed = |intent: Value| {
        record(
            json!({"phase": "switch", "state": "failed", "num_sync_phases": 2, "journal": intent}),
        )
    };
    let shown = failed(json!({"revision": 9, "target_shown": true}));
    assert_eq!(taken(&shown, false), "switch rollback rescue");
    assert_eq!(admit(Some(&shown), Call::new(Action::Abort)), Err(Refusal::UseRollback));
    let stalled = failed(json!({"revision": 9, "power": {"running": true, "autoboot": true}}));
    assert_eq!(taken(&stalled, false), "switch abort rescue");
    let silent = failed(
        json!({"revision": 9, "undo": "migration-agent on the source's node does not answer"}),
    );
    assert_eq!(taken(&silent, false), "switch abort rescue");
    let forced = Call { is_forced: true, ..Call::new(Action::Abort) };
    let running = record(json!({"phase": "sync", "state": "running"}));
    assert_eq!(admit(Some(&running), forced), Ok(Admitted::PauseThenAbort));
    let past =
        record(json!({"phase": "switch", "state": "running", "journal": {"target_shown": true}}));
    assert_eq!(admit(Some(&past), forced), Err(Refusal::UseRollback));
}

#[test] // M9
fn calls_without_a_record_with_a_retry_or_without_a_target() {
    for action in Action::ALL {
        let want = match action {
            Action::Begin | Action::Schedule => Ok(Admitted::Start(Phase::Begin)),
            Action::Estimate => Ok(Admitted::Estimate),
            _ => Err(Refusal::NoRecord),
        };
        assert_eq!(admit(None, Call::new(action)), want, "{action:?}");
    }
    let entry =
        json!({"type": "progress", "phase": "begin", "state": "failed", "disallowRetry": true});
    let left = record(json!({"state": "failed", "progress_history": [entry]}));
    assert_eq!(admit(Some(&left), Call::new(Action::Begin)), Err(Refusal::Active));
    let early = record(json!({"state": "failed", "target_server_uuid": null}));
    assert_eq!(admit(Some(&early), Call::new(Action::Abort)), Ok(Admitted::AbortAtOnce));
    let scheduled = record(json!({"scheduled_timestamp": "2026-02-01T10:00:00.000Z"}));
    assert_eq!(admit(Some(&scheduled), Call::new(Action::Unschedule)), Ok(Admitted::Unschedule));
    let running = record(json!({"state": "running"}));
    let estimate = Call { is_forced: true, ..Call::new(Action::Estimate) };
    assert_eq!(admit(Some(&running), estimate), Ok(Admitted::Estimate));
    for name in ["", "Begin", "fly", "sync,begin"] {
        assert_eq!(Action::parse(name), None);
    }
}
