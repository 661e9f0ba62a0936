// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The record against the recordings of the deployed service.

#![allow(clippy::unwrap_used)]

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::time::Time;

/// The lines of a recording.
fn lines(name: &str) -> Vec<Value> {
    let text = recordings::text(name).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Collects every object in a value that has the keys of a record.
fn records(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            if ["source_server_uuid", "vm_uuid", "phase", "num_sync_phases"]
                .iter()
                .all(|key| fields.contains_key(*key))
            {
                found.push(value.clone());
            }
            fields.values().for_each(|value| records(value, found));
        }
        Value::Array(rows) => rows.iter().for_each(|row| records(row, found)),
        _ => {}
    }
}

#[test] // M1
fn every_recorded_record_is_written_as_it_was_read() {
    let mut found = Vec::new();
    for name in ["vmapi-transcripts.jsonl", "migrate-jobs.jsonl", "vmapi-peer-calls.jsonl"] {
        lines(name).iter().for_each(|line| records(line, &mut found));
    }
    let mut bad = Vec::new();
    for value in &found {
        match Record::read(value) {
            Ok(record) => {
                let (written, read) = (record.to_json().to_string(), value.to_string());
                assert_eq!(written, read);
            }
            Err(error) => bad.push(error.to_string()),
        }
    }
    let invalid = |fields: &str| format!("Invalid migration record: {fields}");
    bad.sort();
    // What recorded requests stored on purpose; the last two of them the deployed service took.
    assert_eq!(
        bad,
        [
            invalid("invalid field \"automatic\",invalid field \"num_sync_phases\""),
            invalid("invalid field \"id\""),
            invalid("invalid field \"progress_history\""),
            invalid("invalid field \"state\""),
            invalid("invalid field \"state\""),
            invalid("invalid field \"vm_uuid\""),
            invalid("missing field \"id\""),
        ]
    );
    assert!(found.len() - bad.len() > 140, "{}", found.len());
}

fn record(fields: Value) -> Value {
    let mut record = json!({
        "action": "begin", "automatic": false, "created_timestamp": "2026-02-01T10:00:00.000Z",
        "id": "09576635-e0bb-49d3-a242-a23a69c2c932", "num_sync_phases": 0, "phase": "begin",
        "progress_history": [], "source_server_uuid": "96c6fbfa-9615-4135-b135-0199b3500ce4",
        "state": "paused", "vm_uuid": "0aa41ab0-2046-4d53-a82c-b9876136d4f1",
    });
    record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    record
}

#[test] // M1
fn unknown_fields_nulls_and_the_order_of_keys_are_kept() {
    let read = record(
        json!({"zeta": [1, null], "error": null, "alpha": 1.50, "target_server_uuid": null}),
    );
    let mut record = Record::read(&read).unwrap();
    assert_eq!(record.to_json().to_string(), read.to_string());
    record.error = Some("x".into());
    record.last_sync_size = Some(7);
    let mut want = read;
    want["error"] = json!("x");
    want["last_sync_size"] = json!(7);
    assert_eq!(record.to_json().to_string(), want.to_string());
    // The one difference that a known field may have: a time gets the form that JavaScript writes.
    let other = Record::read(&super::tests::record(
        json!({"finished_timestamp": "2026-02-01T11:00:00+01:00"}),
    ));
    assert_eq!(other.unwrap().to_json()["finished_timestamp"], json!("2026-02-01T10:00:00.000Z"));
}

#[test] // M2
fn a_bad_record_is_an_error_that_names_every_faulty_field() {
    for (fields, want) in [
        (json!({"id": null}), "missing field \"id\""),
        (json!({"id": "nope"}), "invalid field \"id\""),
        (json!({"vm_uuid": "x", "state": 7}), "invalid field \"vm_uuid\",invalid field \"state\""),
        (json!({"state": "flying"}), "invalid field \"state\""),
        (json!({"phase": "Begin"}), "invalid field \"phase\""),
        (json!({"num_sync_phases": -1}), "invalid field \"num_sync_phases\""),
        (json!({"progress_history": "x"}), "invalid field \"progress_history\""),
        (json!({"progress_history": [7]}), "invalid field \"progress_history[0]\""),
        (
            json!({"progress_history": [{"type": "progress", "phase": "sync", "state": "up"}]}),
            "invalid field \"progress_history[0].state\"",
        ),
        (json!({"created_timestamp": "now"}), "invalid field \"created_timestamp\""),
        (json!({"owner_uuid": 1}), "invalid field \"owner_uuid\""),
        (json!({"journal": []}), ""),
        (json!({"journal": {"revision": "x"}}), "invalid field \"journal\""),
        (json!({"reserved_nics": [{"ip": "10.0.0.1"}]}), "invalid field \"reserved_nics\""),
    ] {
        let error = Record::read(&record(fields.clone())).map_err(|error| error.to_string());
        match error {
            Ok(_) => assert_eq!(want, "", "{fields}"),
            Err(error) => assert_eq!(error, format!("Invalid migration record: {want}")),
        }
    }
    for value in [json!(null), json!([]), json!("x"), json!({})] {
        assert!(Record::read(&value).is_err(), "{value}");
    }
}

/// The records that the last recorded store of each VM left, with what GET showed afterwards.
fn shown() -> Vec<(Value, Value, bool)> {
    let mut stored: std::collections::BTreeMap<String, Value> = Default::default();
    let mut pairs = Vec::new();
    for line in lines("vmapi-transcripts.jsonl") {
        let path = line["request"]["path"].as_str().unwrap_or_default().to_owned();
        let body = &line["request"]["body"];
        if path.ends_with("/store") && line["response"]["status"] == 200 {
            stored.insert(body["vm_uuid"].as_str().unwrap_or_default().to_owned(), body.clone());
        }
        let vm = path.strip_prefix("/migrations/").unwrap_or_default();
        if line["request"]["method"] == "GET"
            && line["response"]["status"] == 200
            && let Some(record) = stored.get(vm)
        {
            let raw = line["request"]["query"] == "format=raw";
            pairs.push((record.clone(), line["response"]["body"].clone(), raw));
        }
        let is_other = line["world"]["do"] == "record" || path.starts_with("/vms/");
        if is_other || line["request"]["method"] == "DELETE" {
            stored.clear(); // other records than the ones known here may follow
        }
    }
    pairs
}

/// Puts 0 for what depends on the time of the recording.
fn timeless(mut value: Value, running: bool) -> Value {
    let zero = |value: &mut Value| {
        if value.as_i64().is_some_and(|it| it > 1_000_000_000) {
            *value = json!(0);
        }
    };
    if let Some(duration) = value.get_mut("duration_ms").filter(|_| running) {
        zero(duration);
    }
    for entry in value["progress_history"].as_array_mut().unwrap() {
        zero(&mut entry["duration_ms"]);
    }
    value
}

#[test] // M3
fn the_public_and_the_raw_form_are_the_recorded_ones() {
    let now = Time::parse("2026-11-22T16:20:50.000Z").unwrap();
    let pairs = shown();
    let (mut public, mut raw) = (0, 0);
    for (stored, shown, is_raw) in pairs {
        let is_other = stored["created_timestamp"] != shown["created_timestamp"];
        if is_other || stored["state"] == 7 || stored["progress_history"] == "x" {
            continue; // the other record of a VM that has two; records that are refused by us
        }
        let record = Record::read(&stored).unwrap();
        if is_raw {
            let mut form = record.raw(now);
            let mut shown = shown;
            for object in [&mut form, &mut shown] {
                // Set by the storage, at the end of what was sent.
                object.as_object_mut().unwrap().shift_remove("data_version");
            }
            assert_eq!(timeless(form, true).to_string(), timeless(shown, true).to_string());
            raw += 1;
        } else {
            assert_eq!(
                timeless(record.public(now), false).to_string(),
                timeless(shown, false).to_string()
            );
            public += 1;
        }
    }
    assert!(public >= 8 && raw >= 4, "{public} {raw}");
}

#[test] // M4
fn the_newest_record_of_a_vm_is_found_at_every_moment() {
    let read = |fields: Value| Record::read(&record(fields)).unwrap();
    let vm = read(json!({})).vm_uuid;
    for phase in Phase::ALL {
        for state in State::ALL {
            let one = read(json!({"phase": phase, "state": state}));
            let found = newest([&one], vm);
            assert_eq!(found.is_some(), state != State::Aborted, "{phase:?} {state:?}");
        }
    }
    let old = read(json!({"created_timestamp": "2026-01-01T00:00:00.000Z"}));
    let new = read(json!({}));
    assert_eq!(newest([&new, &old], vm).unwrap().created_timestamp, new.created_timestamp);
    assert!(newest([&new], uuid::Uuid::nil()).is_none());
}

#[test] // M5
fn lists_are_filtered_as_recorded() {
    let mut world: Vec<Record> = Vec::new();
    let mut checked = 0;
    for line in lines("vmapi-transcripts.jsonl").iter().filter(|line| line["group"] == "migrations")
    {
        let request = &line["request"];
        let path = request["path"].as_str().unwrap_or_default();
        if path.ends_with("/store") && line["response"]["status"] == 200 {
            world.extend(Record::read(&request["body"]));
        }
        let query = request["query"].as_str().unwrap_or_default();
        if path != "/migrations" || query.contains("raw") || line["response"]["status"] != 200 {
            continue;
        }
        if line["id"].as_str().unwrap() > "m-migrations-40" {
            continue; // records that are refused by us
        }
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let filter = Filter {
            owner_uuid: value("owner_uuid"),
            vm_uuid: value("vm_uuid"),
            source_server_uuid: value("source_server_uuid"),
            target_server_uuid: value("target_server_uuid"),
            state: value("state"),
            id: value("id"),
            created_timestamp: value("created_timestamp"),
            data_version: value("data_version"),
        };
        let mut listed: Vec<&Record> =
            world.iter().filter(|record| filter.admits(record)).collect();
        listed.sort_by_key(|record| std::cmp::Reverse(record.created_timestamp));
        let listed: Vec<String> = listed.iter().map(|record| record.vm_uuid.to_string()).collect();
        let shown = line["response"]["body"].as_array().unwrap();
        let shown: Vec<&str> = shown.iter().map(|it| it["vm_uuid"].as_str().unwrap()).collect();
        assert_eq!(listed, shown, "{query}");
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
    let aborted = Record::read(&record(json!({"state": "aborted"}))).unwrap();
    assert!(!Filter::default().admits(&aborted));
    assert!(Filter { state: Some("aborted".into()), ..Filter::default() }.admits(&aborted));
}
