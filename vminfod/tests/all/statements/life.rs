// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 82–91: a VM from its configuration to its end, by events alone.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::scene::{A, B, assert_told, attr, change, followed, marked, told};
use crate::common::{Events, FakeNode};

/// A zone as zonecfg leaves it: configured, without anything on disk.
fn zonecfg(node: &FakeNode, uuid: &str, items: &str) {
    node.configure(uuid, "joyent", items);
    node.set_zone(uuid, "configured", None);
}

/// What zoneadm install leaves.
async fn install(node: &FakeNode, uuid: &str) {
    let dataset = format!("zones/{uuid}");
    let columns = json!({"quota": "10737418240", "mountpoint": format!("/{dataset}")});
    node.set_dataset(&dataset, columns);
    node.zfs_event(&dataset, "create").await;
    node.set_zone(uuid, "installed", None);
    node.zone_event(uuid, "installed", -1).await;
}

async fn boot(node: &FakeNode, uuid: &str, zoneid: i64) {
    node.kstat(uuid, Some((4711, 0, 1_767_261_600)));
    node.set_zone(uuid, "running", Some(zoneid));
    for state in ["initialized", "ready", "running"] {
        node.zone_event(uuid, state, zoneid).await;
    }
}

/// As zoneadmd does it: `lastexited` is written in place between the last two states.
async fn halt(node: &FakeNode, uuid: &str, zoneid: i64) {
    for state in ["shutting_down", "uninitialized"] {
        node.set_zone(uuid, if state == "uninitialized" { "down" } else { state }, Some(zoneid));
        node.zone_event(uuid, state, zoneid).await;
    }
    node.kstat(uuid, None);
    node.write_now(&format!("/zones/{uuid}/lastexited"), "1767270000.000000000 256\n");
    node.set_zone(uuid, "installed", None);
    node.zone_event(uuid, "free", zoneid).await;
}

#[tokio::test(flavor = "multi_thread")] // S82, S83
async fn new_zone_is_created_once_without_a_refresh() {
    let (node, served, mut events) = marked().await;
    let refreshes = served.counter("refreshes").await;
    zonecfg(&node, B, &attr("hostname", "new"));
    for _ in 0..5 {
        node.zone_event(B, "configured", -1).await;
    }
    let created = events.until(|event| event["type"] == "create").await;
    assert_eq!((&created["uuid"], &created["vm"]["zone_state"]), (&json!(B), &json!("configured")));
    assert_eq!(created["vm"]["hostname"], "new");
    let more = events.settled(&node, &served).await;
    assert!(more.iter().all(|event| event["type"] == "modify"), "{more:#?}");
    assert_eq!(served.counter("refreshes").await, refreshes);
}

#[tokio::test(flavor = "multi_thread")] // S84
async fn uninstalled_zone_loses_its_datasets_and_stays_configured() {
    let (node, served, mut events) = marked().await;
    zonecfg(&node, B, "");
    node.zone_event(B, "configured", -1).await;
    install(&node, B).await;
    let full = |vm: &Value| vm["zone_state"] == "installed" && vm.get("zpool").is_some();
    events.until(|event| full(&event["vm"])).await;
    node.drop_datasets(&format!("zones/{B}"));
    node.zfs_event(&format!("zones/{B}"), "destroy").await;
    node.set_zone(B, "configured", None);
    node.zone_event(B, "configured", -1).await;
    let all = events.settled(&node, &served).await;
    let wanted = [
        "zone_state changed \"installed\" -> \"configured\"",
        &format!("zfs_filesystem removed \"zones/{B}\" -> -"),
        "zpool removed \"zones\" -> -",
    ];
    assert_told(&all.iter().flat_map(told).collect::<Vec<_>>(), &wanted);
    assert!(all.iter().all(|event| event["type"] == "modify"), "no delete: {all:#?}");
}

#[tokio::test(flavor = "multi_thread")] // S85
async fn boot_shows_running_and_clears_the_exit() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    node.write(&format!("/zones/{A}/lastexited"), "1767261600.000000000 0\n");
    let (_served, mut events) = node.serve_followed().await;
    boot(&node, A, 17).await;
    let event = events.change_of("state").await;
    let wanted = [
        "zone_state changed \"installed\" -> \"running\"",
        "state changed \"stopped\" -> \"running\"",
        "zoneid changed null -> 17",
        "exit_status removed 0 -> -",
        "pid added - -> 4711",
        "boot_timestamp added - -> \"2026-01-01T10:00:00.000Z\"",
    ];
    assert_told(&told(&event), &wanted);
    assert!(change(&event, "exit_timestamp").is_some_and(|one| one["action"] == "removed"));
}

#[tokio::test(flavor = "multi_thread")] // S86, B13
async fn first_halt_shows_the_exit_at_once() {
    let node = FakeNode::one();
    node.kstat(A, Some((4711, 0, 1_767_261_600)));
    let served = node.serve_quiet().await;
    assert!(!node.path(&format!("/zones/{A}/lastexited")).exists());
    let mut events = served.events().await;
    let began = tokio::time::Instant::now();
    halt(&node, A, 5).await;
    let mut left = vec![
        ("state", "newValue", "stopped"),
        ("exit_status", "action", "added"),
        ("exit_timestamp", "action", "added"),
    ];
    while !left.is_empty() {
        let event = events.soon().await;
        left.retain(|(path, key, value)| change(&event, path).is_none_or(|one| one[key] != *value));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let vm = served.vm(A).await;
    assert_eq!((&vm["exit_status"], &vm["zoneid"]), (&json!(1), &Value::Null));
}

/// A reboot: the state in each event, what zoneadm says then, and the zone's id.
const REBOOT: [(&str, &str, i64); 5] = [
    ("shutting_down", "shutting_down", 5),
    ("uninitialized", "down", 5),
    ("initialized", "ready", 6),
    ("ready", "ready", 6),
    ("running", "running", 6),
];

#[tokio::test(flavor = "multi_thread")] // S87
async fn fast_reboot_shows_both_states() {
    let (node, _served, mut events) = followed().await;
    // All is over before anything can be read.
    node.set_zone(A, "running", Some(6));
    for (said, _, zoneid) in REBOOT {
        node.zone_event(A, said, zoneid).await;
    }
    let state_in = |event: &Value| change(event, "zone_state").unwrap()["newValue"].clone();
    assert_ne!(state_in(&events.change_of("zone_state").await), "running");
    while state_in(&events.change_of("zone_state").await) != "running" {}
}

#[tokio::test(flavor = "multi_thread")] // S87
async fn slow_reboot_shows_each_state() {
    let (node, _served, mut events) = followed().await;
    for (said, state, zoneid) in REBOOT {
        node.set_zone(A, state, Some(zoneid));
        node.zone_event(A, said, zoneid).await;
        // Two events have the state `ready`, which changes once.
        if said != "ready" {
            events.until(|event| event["vm"]["zone_state"] == state).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")] // S88
async fn guest_reboot_shows_in_its_restarts() {
    let node = FakeNode::new();
    node.add_vm(A, "bhyve", "");
    node.kstat(A, Some((100, 0, 1_767_261_600)));
    let (_served, mut events) = node.serve_followed().await;
    node.kstat(A, Some((101, 1, 1_767_261_600)));
    let data =
        json!({"zonename": A, "restarts": 1, "zoneid": 5, "when": 1_767_261_600_000_000_000_u64});
    let event = json!({"class": "init", "subclass": "restart", "data": data});
    node.sysevent("zones", &event).await;
    let event = events.change_of("init_restarts").await;
    assert_eq!(told(&event), ["init_restarts changed 0 -> 1", "pid changed 100 -> 101"]);
}

#[tokio::test(flavor = "multi_thread")] // S89
async fn no_event_has_two_states() {
    let (node, _served, mut events) = marked().await;
    zonecfg(&node, B, &attr("provisioning", "true"));
    node.zone_event(B, "configured", -1).await;
    let mut all = Vec::new();
    let mut seen = async |events: &mut Events, state: &str| {
        let (before, event) = events.gather(|event| event["vm"]["state"] == state).await;
        all.extend(before);
        all.push(event);
    };
    install(&node, B).await;
    seen(&mut events, "provisioning").await;
    boot(&node, B, 20).await;
    seen(&mut events, "running").await;
    node.configure(B, "joyent", "");
    halt(&node, B, 20).await;
    seen(&mut events, "stopped").await;
    boot(&node, B, 21).await;
    seen(&mut events, "running").await;
    assert!(all.len() >= 4, "{all:#?}");
    for event in &all {
        let list = event["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let states = list.iter().filter(|one| one["path"] == json!(["state"]));
        assert!(states.clone().count() <= 1, "{event:#}");
        assert!(states.clone().all(|one| one["newValue"].is_string()), "{event:#}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S90
async fn last_modified_is_the_newest_of_five_files_in_whole_seconds() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    node.write(&format!("/zones/{A}/lastexited"), "1767261600.000000000 0\n");
    let zone = format!("/zones/{A}");
    let files = [
        format!("/etc/zones/{A}.xml"),
        format!("{zone}/lastexited"),
        format!("{zone}/config/metadata.json"),
        format!("{zone}/config/routes.json"),
        format!("{zone}/config/tags.json"),
    ];
    let served = node.serve_quiet().await;
    for newest in &files {
        for path in &files {
            node.set_modified(path, Duration::from_millis(1_700_000_000_250));
        }
        node.set_modified(newest, Duration::from_millis(1_700_000_100_987));
        let vm = served.json(&format!("/vms/{A}?sync=true")).await;
        assert_eq!(vm["last_modified"], "2023-11-14T22:15:00.000Z", "{newest}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S91
async fn vm_is_provisioning_while_the_marker_exists() {
    let (node, _served, mut events) = marked().await;
    zonecfg(&node, B, &attr("provisioning", "true"));
    node.zone_event(B, "configured", -1).await;
    install(&node, B).await;
    let installed = events.until(|event| event["vm"]["zone_state"] == "installed").await;
    assert_eq!(installed["vm"]["state"], "provisioning");
    node.configure(B, "joyent", "");
    let event = events.change_of("provisioning").await;
    let wanted =
        ["provisioning removed true -> -", "state changed \"provisioning\" -> \"stopped\""];
    assert_told(&told(&event), &wanted);
}
