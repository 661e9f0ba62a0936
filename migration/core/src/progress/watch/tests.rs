// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watch against the recorded ones.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;

use super::*;
use crate::intent::Before;
use crate::samples::record;

/// Plays what was stored before and during a recorded watch, a second at a time. Returns the lines.
fn played(before: &Value, meanwhile: &Value) -> Vec<Value> {
    let read = |value: &Value| Record::read(value).unwrap();
    let mut record = read(before);
    let mut latest = None;
    let mut watch = Watch::new();
    let mut lines = watch.step(Some(&record), None, Time::from_millis(0));
    for (at, request) in meanwhile.as_array().into_iter().flatten().enumerate() {
        let body = &request["body"];
        if request["path"].as_str().unwrap().ends_with("/store") {
            record = read(body);
        } else {
            let entry = record.progress_history.last();
            let of = entry.filter(|entry| body["phase"] == entry.phase.name());
            let of = of.and_then(|entry| entry.started_timestamp);
            latest = Some(Latest { of, event: body.clone() });
        }
        let now = Time::from_millis(1000 * (at as i64 + 1));
        lines.extend(watch.step(Some(&record), latest.as_ref(), now));
    }
    assert!(watch.is_over());
    lines
}

/// How long an entry runs depends on the time of the recording.
fn timeless(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        if line["state"] == "running" || line["state"] == "failed" {
            line.as_object_mut().unwrap().shift_remove("duration_ms");
        }
    }
    lines
}

#[test] // R19
fn the_lines_are_the_recorded_ones_without_those_of_another_phase() {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let (mut before, mut checked) = (Value::Null, 0);
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if line["group"] != "watch" {
            continue;
        }
        if line["world"]["do"] == "record" {
            before = line["world"]["record"].clone();
        }
        let Some(stream) = line["response"]["stream"].as_array() else { continue };
        if line["id"] == "m-watch-08" {
            continue; // what 07 left in the process's memory, and the end
        }
        let is_left_over = |it: &Value| {
            it["transfer_bytes_second"] == 20 && line["id"] != "m-watch-07" // of 07's sync
        };
        let want: Vec<Value> = stream.iter().map(|it| it["line"].clone()).collect();
        let want: Vec<Value> = want.into_iter().filter(|it| !is_left_over(it)).collect();
        let got = played(&before, &line["request"]["meanwhile"]);
        assert_eq!(timeless(got), timeless(want), "{}", line["id"]);
        checked += 1;
    }
    assert_eq!(checked, 7);
}

fn running(entries: &[(&str, &str, i64)]) -> Record {
    let history: Vec<Value> = entries
        .iter()
        .map(|(phase, state, at)| {
            let at = Time::from_millis(*at);
            json!({"type": "progress", "phase": phase, "state": state, "started_timestamp": at})
        })
        .collect();
    let phase = entries.last().map_or("begin", |it| it.0);
    record(json!({"state": "running", "phase": phase, "progress_history": history}))
}

#[test] // R19
fn an_event_of_an_earlier_sync_is_not_sent() {
    let record = running(&[("sync", "successful", 1), ("sync", "running", 2)]);
    let old = Latest { of: Some(Time::from_millis(1)), event: json!({"n": 1}) };
    let new = Latest { of: Some(Time::from_millis(2)), event: json!({"n": 2}) };
    let mut watch = Watch::new();
    let now = Time::from_millis(5);
    assert_eq!(watch.step(Some(&record), Some(&old), now).len(), 1); // the entry that runs
    assert_eq!(watch.step(Some(&record), Some(&old), now), Vec::<Value>::new());
    assert_eq!(watch.step(Some(&record), Some(&new), now), vec![new.event.clone()]);
    assert_eq!(watch.step(Some(&record), Some(&new), now), Vec::<Value>::new());
    let later = now.plus(AGAIN);
    let lives = watch.step(Some(&record), Some(&new), later);
    assert_eq!((lives.len(), &lives[0]["phase"]), (1, &json!("sync")), "it lives, at no rate");
    assert_eq!(watch.step(Some(&record), Some(&new), later.plus(1000)), Vec::<Value>::new());
}

#[test] // R19
fn watchers_are_independent_and_end_in_each_state() {
    let one = running(&[("begin", "running", 1)]);
    let (mut early, mut late) = (Watch::new(), Watch::new());
    let now = Time::from_millis(9);
    assert_eq!(early.step(Some(&one), None, now).len(), 1);
    let two = running(&[("begin", "successful", 1), ("sync", "running", 2)]);
    assert_eq!(early.step(Some(&two), None, now).len(), 1);
    assert_eq!(late.step(Some(&two), None, now).len(), 1);
    for (state, is_end) in [
        ("queued", false),
        ("running", false),
        ("paused", true),
        ("scheduled", true),
        ("failed", true),
        ("successful", true),
        ("aborted", true),
    ] {
        let record = record(json!({"state": state, "error": "x"}));
        let mut watch = Watch::new();
        let lines = watch.step(Some(&record), None, now);
        let want = json!({"type": "end", "phase": "begin", "state": state, "message": "x"});
        assert_eq!(lines, if is_end { vec![want] } else { Vec::new() });
        assert_eq!(watch.is_over(), is_end);
    }
}

#[test] // R19
fn a_record_that_goes_while_it_is_watched_ends_the_watch() {
    for (phase, state) in
        [("rollback", "successful"), ("abort", "successful"), ("switch", "unknown")]
    {
        let record = running(&[(phase, "running", 1)]);
        let mut watch = Watch::new();
        watch.step(Some(&record), None, Time::from_millis(0));
        let end = json!({"type": "end", "phase": phase, "state": state});
        assert_eq!(watch.step(None, None, Time::from_millis(1)), [end]);
        assert_eq!(watch.step(None, None, Time::from_millis(2)), Vec::<Value>::new());
    }
    assert_eq!(Watch::new().step(None, None, Time::from_millis(0))[0]["state"], json!("unknown"));
    let mut rescued = running(&[("sync", "running", 1)]);
    rescued.intent.rescue = Some(Before::Failed);
    let mut watch = Watch::new();
    watch.step(Some(&rescued), None, Time::from_millis(0));
    let end = json!({"type": "end", "phase": "rescue", "state": "successful"});
    assert_eq!(watch.step(None, None, Time::from_millis(1)), [end]);
}

#[test] // R19, M143
fn a_step_that_is_tried_again_is_said_and_no_bytes_are_until_it_goes_on() {
    let mut record = running(&[("sync", "running", 2)]);
    let latest = Latest { of: Some(Time::from_millis(2)), event: json!({"n": 1}) };
    let (mut watch, now) = (Watch::new(), Time::from_millis(5));
    let told = watch.step(Some(&record), Some(&latest), now);
    assert_eq!((told.len(), &told[1]), (2, &latest.event));
    let (since, next) = (now, now.plus(4000));
    let why = "migration-agent on the source's node does not answer".to_owned();
    record.intent.again = Some(Again { why, since, failed: 1, most: 10, next });
    let told = watch.step(Some(&record), Some(&latest), now);
    let want = "migration-agent on the source's node does not answer (attempt 1 of 10 failed; since 0 s, the next in 4 s)";
    assert_eq!((told.len(), &told[0]["message"]), (1, &json!(want)));
    assert_eq!(watch.step(Some(&record), Some(&latest), now.plus(1000)), Vec::<Value>::new());
    let told = watch.step(Some(&record), Some(&latest), now.plus(AGAIN));
    assert!(
        told[0]["message"].as_str().unwrap().starts_with("migration-agent on the source's node"),
        "{told:?}"
    );
    // A watcher that begins now gets the same.
    let told = Watch::new().step(Some(&record), Some(&latest), now);
    assert!(
        told.last().unwrap()["message"]
            .as_str()
            .unwrap()
            .starts_with("migration-agent on the source's node"),
        "{told:?}"
    );
    record.intent.again = None;
    let told = watch.step(Some(&record), Some(&latest), now.plus(AGAIN));
    assert_eq!((told.len(), &told[0]["message"]), (1, &Value::Null), "it goes on");
}

#[test] // M234
fn what_a_sync_was_done_without_is_told_once_before_its_end() {
    let entry = |state: &str, detail: Option<&str>| {
        json!({"type": "progress", "phase": "sync", "state": state, "started_timestamp": "2026-03-01T00:00:00.000Z",
               "current_progress": 1, "total_progress": 100, "errorDetail": detail})
    };
    let at = |state: &str, entries: Value| {
        record(json!({"phase": "sync", "state": state, "progress_history": entries}))
    };
    let mut watch = Watch::new();
    let now = Time::from_millis(0);
    let types = |lines: Vec<Value>| -> Vec<String> {
        lines.iter().map(|line| format!("{} {}", line["type"], line["message"])).collect()
    };
    let running = at("running", json!([entry("running", Some("x is not carried"))]));
    assert_eq!(types(watch.step(Some(&running), None, now)).len(), 1);
    let ended = at("paused", json!([entry("successful", Some("x is not carried"))]));
    let lines = types(watch.step(Some(&ended), None, now));
    assert_eq!(lines, ["\"warning\" \"Warning: x is not carried\"", "\"end\" null"]);
}
