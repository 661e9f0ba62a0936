// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 92–97: changes without events, failures and hangs, on a paused clock: the loop
//! runs in process and its minutes take milliseconds.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vm_model::stale::ZoneFile;

use crate::common::scene::{A, B, C, config_of, told};
use crate::common::world::World;
use crate::common::{FakeNode, xml};

const MINUTE: Duration = Duration::from_secs(60);

fn three() -> FakeNode {
    let node = FakeNode::new();
    for (uuid, zoneid) in [(A, 5), (B, 6), (C, 7)] {
        node.add_zone(uuid, "running", Some(zoneid), "vm");
    }
    node
}

/// The production settings: sweeps, refreshes and deadlines as they are deployed.
async fn world(node: &FakeNode) -> World {
    World::start(node, node.config()).await
}

fn quota(gib: u64) -> impl Fn(&Value) -> bool {
    move |vm| vm["quota"] == gib
}

fn zone_state(state: &str) -> impl Fn(&Value) -> bool {
    move |vm| vm["zone_state"] == state
}

#[tokio::test(start_paused = true)] // S92
async fn refresh_repairs_a_lost_event() {
    let node = three();
    let world = world(&node).await;
    for gib in 1..=3_u64 {
        node.set_quota(A, gib);
        let took = world.until(A, 5 * MINUTE + Duration::from_secs(1), quota(gib)).await;
        assert!(took > Duration::from_secs(1), "no event told of it");
    }
    // Zones and files are looked at more often.
    node.set_zone(B, "installed", None);
    world.until(B, Duration::from_secs(12), |vm| vm["state"] == "stopped").await;
    node.tags(B, &json!({"lost": true}));
    world.until(B, Duration::from_secs(12), |vm| vm["tags"]["lost"] == true).await;
}

#[tokio::test(start_paused = true)] // S93
async fn refresh_without_findings_emits_nothing() {
    let node = three();
    let world = world(&node).await;
    world.later(60 * MINUTE).await;
    assert_eq!(world.seq(), 0);
    let view = world.status.view();
    assert!(view.counters.refreshes >= 12, "{:?}", view.counters);
    assert!(view.refresh_log.is_empty() && view.refresh_errors.is_empty());
}

#[tokio::test(start_paused = true)] // S94
async fn change_during_a_refresh_survives_it() {
    let node = three();
    let mut world = world(&node).await;
    // The refresh has its zones and waits for its datasets while everything changes.
    node.with(|state| state.held.push("kstat"));
    let asks = world.asks.clone();
    let refreshing = tokio::spawn(async move { asks.fresh(None).await });
    world.later(Duration::from_millis(100)).await;
    assert!(world.status.view().refresh.is_some());
    node.set_zone(A, "installed", None);
    world.zone_event(A, "uninitialized", 5);
    node.set_quota(B, 1);
    world.zfs_event(&format!("zones/{B}"), "set");
    node.tags(C, &json!({"during": true}));
    world.file_event(C, ZoneFile::Config);
    world.until(B, MINUTE, quota(1)).await;
    node.release();
    refreshing.await.unwrap().unwrap();
    world.later(Duration::from_secs(5)).await;
    let states = || [A, B, C].map(|uuid| world.vm(uuid));
    let after = states();
    assert_eq!(after[0]["state"], "stopped");
    assert_eq!((&after[1]["quota"], &after[2]["tags"]), (&json!(1), &json!({"during": true})));
    // Nothing falls back to what it was before, at this refresh or any later one.
    world.later(20 * MINUTE).await;
    assert_eq!(states(), after);
    let lines: Vec<String> = world.events().iter().flat_map(told).collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("quota")).count(), 1, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("zone_state")).count(), 1, "{lines:#?}");
}

#[tokio::test(start_paused = true)] // S95, B3, B4
async fn failed_vm_is_read_again_until_it_succeeds() {
    let node = three();
    let mut world = world(&node).await;
    let file = format!("/etc/zones/{A}.xml");
    // A known VM fails in its reading, and a new one in its first.
    node.write(&file, "<zone");
    world.file_event(A, ZoneFile::Xml);
    let new = "11111111-9c54-4e5c-8f4e-0d5f7a1a9b03";
    node.set_zone(new, "installed", None);
    node.write(&format!("/etc/zones/{new}.xml"), "<zone");
    world.zone_event(new, "installed", -1);
    world.later(Duration::from_secs(30)).await;
    let view = world.status.view();
    let failed: BTreeSet<&str> = view.errors.keys().map(String::as_str).collect();
    assert_eq!(failed, [A, new].into());
    assert_eq!(world.vm(A)["alias"], "vm", "the last good object stays");
    assert!(world.events().is_empty());
    // Readable again, without an event.
    node.write(&file, &xml(A, "healed"));
    node.write(&format!("/etc/zones/{new}.xml"), &xml(new, "born"));
    world.until(A, 2 * MINUTE, |vm| vm["alias"] == "healed").await;
    world.until(new, 2 * MINUTE, |vm| vm["alias"] == "born").await;
    world.later(Duration::from_secs(1)).await;
    assert!(world.status.view().errors.is_empty());
}

#[tokio::test(start_paused = true)]
async fn zone_made_anew_while_its_configuration_is_away_is_read_whole() {
    let node = three();
    let world = world(&node).await;
    std::fs::remove_file(node.path(&format!("/etc/zones/{A}.xml"))).unwrap();
    world.file_event(A, ZoneFile::Xml);
    world.later(Duration::from_millis(100)).await;
    assert!(world.status.view().errors.contains_key(A));
    // No event of the zone itself, and no sweep for some seconds.
    node.set_line(format!("-:{A}:installed:/zones/{A}:{A}:lx:excl:99"));
    node.write_now(&format!("/etc/zones/{A}.xml"), &config_of(A, "lx", ""));
    world.file_event(A, ZoneFile::Xml);
    world.until(A, Duration::from_secs(1), |vm| vm["brand"] == "lx").await;
    let vm = world.vm(A);
    assert_eq!((&vm["state"], &vm["zonedid"]), (&json!("stopped"), &json!(99)));
}

#[tokio::test(start_paused = true)] // S96, B2
async fn hung_child_stops_nothing_else() {
    let node = three();
    let world = world(&node).await;
    for tool in ["zfs", "zoneadm"] {
        node.with(|state| state.hanging_on.push((tool, A.to_owned())));
    }
    for _ in 0..20 {
        world.zfs_event(&format!("zones/{A}"), "set");
        world.zone_event(A, "running", 5);
    }
    for turn in 1..=5_u64 {
        node.set_quota(B, turn);
        world.zfs_event(&format!("zones/{B}"), "set");
        assert!(world.until(B, MINUTE, quota(turn)).await < Duration::from_secs(1));
        let state = if turn % 2 == 1 { "installed" } else { "running" };
        node.set_zone(C, state, None);
        world.zone_event(C, state, 7);
        assert!(world.until(C, MINUTE, zone_state(state)).await < Duration::from_secs(1));
    }
    // The children were killed at their deadlines, the VM is listed, and is well when they are.
    world.later(MINUTE).await;
    assert!(world.status.view().errors.contains_key(A), "{:?}", world.status.view().errors.keys());
    node.with(|state| state.hanging_on.clear());
    node.set_quota(A, 3);
    world.until(A, 5 * MINUTE, quota(3)).await;
    world.later(2 * MINUTE).await;
    assert!(world.status.view().errors.is_empty(), "{:?}", world.status.view().errors.keys());
}

#[tokio::test(start_paused = true)] // B2
async fn recovers_after_zfs_hung_for_an_hour() {
    let node = three();
    let world = world(&node).await;
    node.with(|state| state.hanging.push("zfs"));
    world.zfs_event(&format!("zones/{A}"), "set");
    for n in 0..60 {
        world.later(MINUTE).await;
        node.tags(B, &json!({"n": n}));
        world.file_event(B, ZoneFile::Config);
        let took = world.until(B, MINUTE, |vm| vm["tags"]["n"] == n).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    assert!(!world.status.view().refresh_errors.is_empty(), "the refreshes failed meanwhile");
    node.with(|state| state.hanging.clear());
    node.set_quota(A, 3);
    world.until(A, 6 * MINUTE, quota(3)).await;
}

#[tokio::test(start_paused = true)]
async fn slow_disks_do_not_delay_the_states_vmadm_waits_for() {
    let node = three();
    let mut world = world(&node).await;
    // Every listing takes its time: longer than vmadm's patience of a minute.
    node.with(|state| state.held.push("zfs"));
    let new = "22222222-9c54-4e5c-8f4e-0d5f7a1a9b03";
    node.add_zone(new, "configured", None, "new");
    world.zfs_event(&format!("zones/{new}"), "create");
    for (state, zoneid) in
        [("configured", None), ("incomplete", None), ("installed", None), ("running", Some(40))]
    {
        node.set_zone(new, state, zoneid);
        world.zone_event(new, state, -1);
        let took = world.until(new, MINUTE, zone_state(state)).await;
        assert!(took < Duration::from_secs(2), "{state}: {took:?}");
    }
    assert_eq!(world.events()[0]["type"], "create");
    world.later(20 * Duration::from_secs(1)).await;
    node.release();
    world.until(new, MINUTE, quota(10)).await;
}

#[tokio::test(start_paused = true)] // S117, F71
async fn port_waits_at_most_four_minutes_for_the_snapshots() {
    let node = three();
    node.set_dataset(&format!("zones/{A}@vmsnap-s"), json!({"type": "snapshot"}));
    node.with(|state| state.hanging_on.push(("zfs", "name,creation,userrefs,written".to_owned())));
    // After how many seconds the listing is killed, and the port opens.
    for (killed, opened) in [(200, 200), (239, 239), (241, 240), (900, 240)] {
        let mut config = node.config();
        config.deadlines.zfs_snapshots = Duration::from_secs(killed);
        let began = Instant::now();
        let world = World::start(&node, config).await;
        assert_eq!(began.elapsed().as_secs(), opened, "killed after {killed} s");
        assert_eq!(world.published.snapshot().vms.len(), 3);
        let names = |world: &World| world.status.view().incomplete();
        assert!([A, B, C].iter().all(|zone| names(&world).has(zone)), "{:?}", names(&world));
        // Then those of each VM are listed.
        let soon = Duration::from_secs(killed - opened + 1);
        world.until(A, soon, |vm| vm["snapshots"][0]["name"] == "s").await;
        world.later(Duration::from_secs(1)).await;
        assert!(names(&world).is_nothing(), "{:?}", names(&world));
    }
}

#[tokio::test(flavor = "multi_thread")] // S97
async fn unreadable_configuration_stops_neither_start_nor_refresh() {
    let node = three();
    let odd = [
        ("<zone".to_owned(), "half a text"),
        (String::new(), "nothing"),
        (config_of(B, "joyent", "<attr name=\"alias\"/>"), "an attr without a value"),
    ];
    for (text, what) in odd {
        node.write(&format!("/etc/zones/{B}.xml"), &text);
        let served = node.serve_quiet().await;
        assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2, "{what}");
        let status = served.json("/status").await;
        assert!(status["errors"][B]["message"].is_string(), "{what}: {status}");
        // Only a refresh can find this; a request for fresh VMs reports that one failed.
        node.set_zone(A, "installed", None);
        let (_, answer) = served.get("/vms?sync=true").await;
        assert_eq!(served.vm(A).await["state"], "stopped", "{what}: {answer}");
        node.set_zone(A, "running", Some(5));
    }
    node.write(&format!("/etc/zones/{B}.xml"), &xml(B, "whole"));
    let served = node.serve_quiet().await;
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 3);
}
