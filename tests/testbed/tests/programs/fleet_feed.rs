// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A small feed on real servers; `testbed fleet-feed` is the large one.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use testbed::fleet_feed::{Options, feed};
use testbed::process::{self, Child};

use super::common::{LATE, line_with, program};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn the_feed_shows_every_node_whatever_is_killed() {
    if let Some(why) = rig::nats::why_not() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_testbed")));
    let options = Options { nodes: 10, vms: 5, seconds: 20, seed: Some(1), program };
    let passed = feed(&options).await.unwrap_or_else(|why| panic!("{why:#}"));
    assert!(
        passed.changes.events > 100 && passed.deaths.killed.iter().sum::<usize>() > 3,
        "{passed}"
    );
}

/// The rows, as `time source what`.
fn rows(text: &str) -> Vec<[String; 3]> {
    let rows: Vec<Value> = serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"));
    let of = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| ["time", "source", "what"].map(|key| of(row, key))).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn one_vms_story_is_told_over_its_nodes_whoever_is_silent() {
    if let Some(why) = rig::nats::why_not() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("cn");
    let place = node.to_string_lossy();
    let args = ["lab", "--script", "none", "--nodes", "2", "--with", "fleet", "--dir", &place];
    let mut lab = Child::spawn("lab", &program(), &args).unwrap();
    let command = line_with(&mut lab, "sdc-migrate migrate ").await;
    let vm = command.trim().rsplit(' ').next().unwrap();
    let typed = async |line: &str| {
        let script = format!("export PATH={place}/bin:$PATH\n{line}");
        process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap()
    };
    let done = typed(&format!("{command} && vmadm stop {vm}; {place}2/bin/vmadm stop {vm}")).await;
    assert!(done.stdout.contains("Migration was successful"), "{}{}", done.stdout, done.stderr);
    // The feed is a moment behind.
    let stopped = format!("sdc-fleet story {vm} -p -o what,details | grep -q '^modify:stopped'");
    let done = typed(&format!("until {stopped}; do :; done\nsdc-fleet story {vm} -j")).await;
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let all = rows(&done.stdout);
    let at = |source: &str, what: &str| {
        let is_it = |row: &[String; 3]| row[1] == source && row[2].starts_with(what);
        all.iter().position(is_it).unwrap_or_else(|| panic!("{source} {what}: {all:#?}"))
    };
    let order = [
        at("vminfod", "create"),
        at("migration-service", "migrate begins"),
        at("migration-service", "switch successful"),
        at("migration-service", "migrate successful"),
    ];
    assert!(order.is_sorted(), "{order:?} of {all:#?}");
    at("vm-agent", "wrote VMAPI's record");
    // Programs and services that are away are named, and hide nothing.
    let done = typed(&format!("rm {place}2/bin/vm-agent\nsdc-fleet story {vm} -j")).await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("vm-agent: command not found"), "{}", done.stderr);
    assert!(rows(&done.stdout).len() > order[3], "{}", done.stdout);
    let away = "sdc-fleet --server nats://127.0.0.1:1";
    let done = typed(&format!("{away} story {vm} -j")).await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("the feed does not answer: "), "{}", done.stderr);
    let without: Vec<_> = rows(&done.stdout);
    assert!(without.iter().all(|row| row[1] != "vminfod"), "{without:?}");
    assert!(without.iter().any(|row| row[2] == "switch successful"), "{without:?}");
    let done = typed(&format!("sdc-fleet story {vm} -j --url http://127.0.0.1:1")).await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("migration-service does not answer: "), "{}", done.stderr);
    assert!(rows(&done.stdout).iter().any(|row| row[1] == "vminfod"));
    lab.signal(Signal::INT);
    let status = tokio::time::timeout(LATE, lab.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(0));
}
