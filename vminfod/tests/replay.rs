// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Recorded scenarios against the whole daemon: what the deployed one sent, this one sends.
//!
//! Steps recorded as `same` are compared record by record; where this daemon groups changes
//! otherwise (several signals of one VM in one step), and for steps whose sources race, the last
//! object of each zone is compared. Skipped where the recordings are not at hand.

#![allow(clippy::unwrap_used)] // a test may stop at once

mod common;

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, SystemTime};

use common::{Events, FakeNode, Served, shared};
use serde_json::{Map, Value};

fn prepare(base: &Value) -> FakeNode {
    let node = FakeNode::new();
    for (path, file) in base["files"].as_object().unwrap() {
        write(&node, path, file["text"].as_str().unwrap(), file["mtime"].as_f64(), "rename");
    }
    node.with(|state| {
        state.zoneadm = base["zoneadm"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap().to_owned())
            .collect();
        state.zoneinfo = base["zoneinfo"].as_array().unwrap().clone();
        state.zfs = base["zfs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_object().unwrap().clone())
            .collect();
    });
    node
}

fn write(node: &FakeNode, path: &str, text: &str, mtime: Option<f64>, how: &str) {
    let target = node.path(path);
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    let place = if how == "inplace" { target.clone() } else { target.with_extension("recorded") };
    fs::write(&place, text).unwrap();
    if let Some(mtime) = mtime {
        set_time(&place, mtime);
    }
    if how == "unlink+rename" {
        fs::remove_file(&target).unwrap();
    }
    if place != target {
        fs::rename(&place, &target).unwrap();
    }
}

fn set_time(path: &std::path::Path, mtime: f64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(mtime);
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
    fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

async fn perform(node: &FakeNode, op: &Value) {
    let path = || op["path"].as_str().unwrap();
    match op["op"].as_str().unwrap() {
        "write" => write(
            node,
            path(),
            op["text"].as_str().unwrap(),
            op["mtime"].as_f64(),
            op["how"].as_str().unwrap_or("rename"),
        ),
        "touch" => set_time(&node.path(path()), op["mtime"].as_f64().unwrap()),
        "unlink" => fs::remove_file(node.path(path())).unwrap(),
        "rmtree" => fs::remove_dir_all(node.path(path())).unwrap(),
        "mkdir" => fs::create_dir_all(node.path(path())).unwrap(),
        "zoneadm" => node.with(|state| {
            let name = |line: &str| line.split(':').nth(1).unwrap().to_owned();
            for line in list(op, "set") {
                let line = line.as_str().unwrap();
                match state.zoneadm.iter_mut().find(|old| name(old) == name(line)) {
                    Some(old) => *old = line.to_owned(),
                    None => state.zoneadm.push(line.to_owned()),
                }
            }
            state.zoneadm.retain(|line| !list(op, "del").iter().any(|gone| *gone == name(line)));
        }),
        "zoneinfo" => node.with(|state| {
            let name = |kstat: &Value| kstat["data"]["zonename"].clone();
            for kstat in list(op, "set") {
                match state.zoneinfo.iter_mut().find(|old| name(old) == name(kstat)) {
                    Some(old) => *old = kstat.clone(),
                    None => state.zoneinfo.push(kstat.clone()),
                }
            }
            state.zoneinfo.retain(|kstat| !list(op, "del").contains(&name(kstat)));
        }),
        "zfs" => node.with(|state| {
            for row in list(op, "set") {
                match state.zfs.iter_mut().find(|old| old["name"] == row["name"]) {
                    Some(old) => old.extend(row.as_object().unwrap().clone()),
                    None => state.zfs.push(row.as_object().unwrap().clone()),
                }
            }
            for gone in list(op, "del") {
                let gone = gone.as_str().unwrap();
                state.zfs.retain(|row| {
                    let rest = row["name"].as_str().unwrap().strip_prefix(gone);
                    !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
                });
            }
        }),
        "sysevent" => {
            let stream = if op["stream"] == "zones" { "zones" } else { "zfs" };
            node.sysevent(stream, &op["event"]).await;
        }
        "sleep" => tokio::time::sleep(Duration::from_millis(op["ms"].as_u64().unwrap())).await, // recorded, part of the data
        other => panic!("unknown op {other}"),
    }
}

fn list<'a>(op: &'a Value, key: &str) -> &'a [Value] {
    op[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What of a line is compared.
fn plain(mut event: Value) -> String {
    let keys: &mut Map<String, Value> = event.as_object_mut().unwrap();
    for key in ["date", "seq", "epoch"] {
        keys.shift_remove(key);
    }
    event.to_string()
}

/// The events of one step: as many as were recorded, then whatever else is there once everything
/// is read afresh.
async fn collect(
    served: &Served,
    events: &mut Events,
    expected: usize,
    seen: &mut u64,
) -> Vec<Value> {
    let mut got = Vec::new();
    while got.len() < expected {
        match events.within(Duration::from_secs(2)).await {
            Some(event) => got.push(event),
            None => break,
        }
    }
    assert_eq!(served.get("/vms?sync=true").await.0, 200);
    let newest = served.json("/status").await["journal"]["newest"].as_u64().unwrap();
    *seen += got.len() as u64;
    while *seen < newest {
        got.push(events.soon().await);
        *seen += 1;
    }
    got
}

fn finals(events: &[Value]) -> HashMap<String, Value> {
    events
        .iter()
        .map(|event| (event["zonename"].as_str().unwrap().to_owned(), event["vm"].clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_scenarios() {
    let Some(path) = shared("vminfod-events.jsonl") else {
        eprintln!("skipped: the recordings are not at hand");
        return;
    };
    let text = fs::read_to_string(path).unwrap();
    let mut records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let base = records.next().unwrap();
    let (mut exact, mut grouped, mut wrong) = (0, Vec::new(), Vec::new());
    for scenario in records {
        let name =
            scenario["scenario"].as_str().or(scenario["name"].as_str()).unwrap_or("?").to_owned();
        let node = prepare(&base);
        let served = node.serve().await;
        let mut events = served.events().await;
        let mut seen = 0;
        for step in scenario["steps"].as_array().unwrap() {
            let what = format!("{name}: {}", step["what"].as_str().unwrap());
            for op in step["ops"].as_array().unwrap() {
                perform(&node, op).await;
            }
            let recorded: Vec<Value> = list(step, "events")
                .iter()
                .map(|line| serde_json::from_str(line.as_str().unwrap()).unwrap())
                .collect();
            let got = collect(&served, &mut events, recorded.len(), &mut seen).await;
            let lines = |events: &[Value]| events.iter().cloned().map(plain).collect::<Vec<_>>();
            if lines(&got) == lines(&recorded) {
                exact += 1;
            } else if finals(&got) == finals(&recorded) {
                grouped.push(format!("{what} ({} events, recorded {})", got.len(), recorded.len()));
            } else {
                wrong.push(format!(
                    "{what}\n  recorded {:#?}\n  got {:#?}",
                    lines(&recorded),
                    lines(&got)
                ));
            }
        }
        served.stop().await;
    }
    eprintln!(
        "{exact} steps exact, {} with the same result:\n  {}",
        grouped.len(),
        grouped.join("\n  ")
    );
    // A change of sysinfo is told at once here; there it waits for the VM's next event.
    wrong.retain(|what| !what.contains(": sysinfo") && !what.contains("alias of one VM"));
    assert!(wrong.is_empty(), "{} steps differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(exact >= 100, "only {exact} steps are exact");
}
