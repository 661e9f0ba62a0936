// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `get` and `list` print.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

const SCREEN: Screen = Screen { is_terminal: true, colour: false };
const ANSI: Style = Style { ansi: true, screen: SCREEN };
const PLAIN: Style = Style { ansi: false, screen: SCREEN };

fn now() -> Time {
    Time::parse("2026-03-01T10:00:00.000Z").unwrap()
}

/// The recorded migration that failed once, then synced (m-migrate-life-32), with another creation time.
fn recorded() -> Migration {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let line = text.lines().find(|line| line.contains("\"m-migrate-life-32\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let mut body = line["response"]["body"].clone();
    body["created_timestamp"] = json!("2026-03-01T00:00:30.000Z");
    serde_json::from_value(body).unwrap()
}

#[test]
fn get_is_the_shipped_one() {
    let want = "\
State        : paused
Source server: 96c6fbfa-9615-4135-b135-0199b3500ce4
Target server: 6cbd5b1a-34e3-4365-a31f-48bc755e87cf
Created      : 2026-03-01T00:00:30.000Z
Automatic    : false
Total runtime: 3m
Phases       :
  PHASE       AGE RUNTIME   MESSAGE
✔ begin        9h 1m        begining
x sync         9h 1m        boom
✔ sync         9h 1m        syncing

Migration paused
";
    let mut migration = recorded();
    migration.error = None;
    assert_eq!(get(&migration, &Hosts::default(), now(), ANSI), want);
    let want = "\
Phases       :
PHASE               AGE RUNTIME   MESSAGE
begin [successful]     9h 1m        begining
sync [failed]        9h 1m        boom
sync [successful]     9h 1m        syncing

Migration error: boom
";
    migration.error = Some("boom".to_owned());
    let text = get(&migration, &Hosts::default(), now(), PLAIN);
    assert_eq!(&text[text.find("Phases").unwrap()..], want);
}

#[test]
fn get_says_how_it_ended_and_what_it_waits_for() {
    for (state, error, last) in [
        ("successful", None, "Migration finished successfully\n"),
        ("successful", Some("old"), "Migration finished successfully\n"),
        ("failed", Some("no\nroom"), "Migration error: no\\u000aroom\n"),
        ("failed", None, "Migration error: \n"),
        ("running", None, "Migration running\n"),
    ] {
        let migration = json!({"vm_uuid": "u", "state": state, "error": error});
        let migration: Migration = serde_json::from_value(migration).unwrap();
        let text = get(&migration, &Hosts::default(), now(), PLAIN);
        assert!(text.ends_with(&format!("\n\n{last}")), "{text}");
        assert!(text.contains("Target server: (none)\n"));
    }
    let migration = json!({"state": "queued", "scheduled_timestamp": "T", "waits_for": "node N"});
    let text = get(&serde_json::from_value(migration).unwrap(), &Hosts::default(), now(), PLAIN);
    assert!(text.contains("Scheduled for: T\nWaits for    : node N\nPhases"), "{text}");
}

fn some() -> Vec<Migration> {
    let paused = json!({
        "vm_uuid": "0aa41ab0-2046-4d53-a82c-b9876136d4f1", "phase": "sync", "state": "paused",
        "created_timestamp": "2026-02-27T10:00:00.000Z", "duration_ms": 65_000,
        "source_server_uuid": "96c6fbfa-9615-4135-b135-0199b3500ce4",
    });
    let failed = json!({
        "vm_uuid": "1aa41ab0-2046-4d53-a82c-b9876136d4f1", "phase": "begin", "state": "failed",
        "created_timestamp": "2026-03-01T09:59:00.000Z", "duration_ms": 5000, "error": "no\nroom",
        "source_server_uuid": "96c6fbfa-9615-4135-b135-0199b3500ce4",
        "target_server_uuid": "6cbd5b1a-34e3-4365-a31f-48bc755e87cf",
    });
    serde_json::from_value(json!([paused, failed])).unwrap()
}

#[test]
fn list_is_the_shipped_one() {
    let shape = Shape::default();
    let want = "\
UUID                                    PHASE      STATE    AGE RUNTIME
0aa41ab0-2046-4d53-a82c-b9876136d4f1     sync     paused     2d      1m
1aa41ab0-2046-4d53-a82c-b9876136d4f1    begin     failed     1m      5s
";
    assert_eq!(
        list(&some(), &shape, now(), ANSI),
        want.replace("                \n", "               \n")
    );
    let long = Shape { long: true, no_header: true };
    let want = "0aa41ab0-2046-4d53-a82c-b9876136d4f1     sync     paused     2d      1m \
        96c6fbfa-9615-4135-b135-0199b3500ce4 (none)                               \n";
    assert_eq!(list(&some()[..1], &long, now(), ANSI), want);
    let text = list(&some()[1..], &long, now(), ANSI);
    assert!(text.ends_with(" 6cbd5b1a-34e3-4365-a31f-48bc755e87cf no\\u000aroom\n"), "{text}");
    let colours = Style { screen: Screen { colour: true, ..SCREEN }, ..ANSI };
    assert!(list(&some(), &shape, now(), colours).contains("\u{1b}[31m    failed\u{1b}[0m"));
    let colours = Style { ansi: false, ..colours };
    assert!(!list(&some(), &shape, now(), colours).contains('\u{1b}'));
}

#[test]
fn the_table_has_the_columns_that_are_asked_for() {
    let layout = Layout {
        parsable: true,
        columns: Some("uuid,state,age,target_cn".to_owned()),
        sort: Some("age".to_owned()),
        ..Layout::default()
    };
    let want = "1aa41ab0-2046-4d53-a82c-b9876136d4f1:failed:1m:6cbd5b1a-34e3-4365-a31f-48bc755e87cf\n\
        0aa41ab0-2046-4d53-a82c-b9876136d4f1:paused:2d:\n";
    assert_eq!(table(&some(), &Names::default(), &layout, now(), PLAIN).unwrap(), want);
    let wrong = Layout { columns: Some("nope".to_owned()), ..Layout::default() };
    assert!(table(&some(), &Names::default(), &wrong, now(), PLAIN).is_err());
}
