// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop on a node in process: lost events, failing sources, reboots and fresh readings.

use std::time::Duration;

use crate::common::{A, B, FakeNode, changes, xml};
use serde_json::{Value, json};
use vminfod::config::Config;
use vminfod::node::commands::Tool;

#[tokio::test(flavor = "multi_thread")]
async fn emits_create_modify_and_delete() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    assert_eq!(events.ready["type"], "ready");
    let listed: Value = serde_json::from_str(events.ready["vms"].as_str().unwrap()).unwrap();
    assert_eq!(listed, served.json("/vms").await);

    node.add_zone(B, "configured", None, "two");
    node.zone_event(B, "configured", -1).await;
    let created = events.soon().await;
    assert_eq!((&created["type"], &created["zonename"]), (&json!("create"), &json!(B)));
    // Its datasets are asked for without an event of theirs.
    let whole = events.soon().await;
    assert!(changes(&whole).contains(&"quota 10".to_owned()), "{whole}");
    assert_eq!(served.json(&format!("/vms/{B}")).await, whole["vm"]);

    node.write(&format!("/etc/zones/{A}.xml"), &xml(A, "renamed"));
    assert!(changes(&events.soon().await).contains(&"alias \"renamed\"".to_owned()));
    node.set_dataset(&format!("zones/{A}"), json!({"quota": "21474836480"}));
    node.zfs_event(&format!("zones/{A}"), "inherit").await;
    assert_eq!(changes(&events.soon().await), ["quota 20"]);
    node.write(
        "/tmp/.sysinfo.json",
        r#"{"UUID":"564d2f1c-0a70-4a2b-9a7e-7b1c0f3c2a11","Datacenter Name":"moved"}"#,
    );
    assert_eq!(changes(&events.soon().await), ["datacenter_name \"moved\""]);
    assert_eq!(changes(&events.soon().await), ["datacenter_name \"moved\""]);

    node.drop_zone(B);
    std::fs::remove_file(node.path(&format!("/etc/zones/{B}.xml"))).unwrap();
    node.zone_event(B, "", -1).await;
    let deleted = events.soon().await;
    assert_eq!((&deleted["type"], deleted.get("vm")), (&json!("delete"), None));
    assert_eq!(served.get(&format!("/vms/{B}")).await, (404, format!("VM Not Found: {B}")));
    served.shutdown.trigger();
    assert!(events.next().await.is_none(), "the stream ends in order");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_opens_when_each_zone_of_the_index_has_a_row() {
    let node = FakeNode::new();
    let index =
        format!("global:installed:/:\n{A}:running:/zones/{A}:{A}\n{B}:running:/zones/{B}:{B}\n");
    node.write("/etc/zones/index", &index);
    node.set_line("0:global:running:/::liveimg:shared:0".into());
    let serving = tokio::spawn({
        let node = node.clone();
        async move { node.serve().await }
    });
    // Two listings without them; then one of the two; then both, with a column that nobody knows.
    let listings =
        || node.with(|state| state.log.iter().filter(|(tool, _)| *tool == Tool::Zoneadm).count());
    while listings() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!serving.is_finished());
    node.add_zone(A, "running", Some(5), "one");
    let before = listings();
    while listings() == before {
        tokio::task::yield_now().await;
    }
    assert!(!serving.is_finished());
    node.add_zone(B, "running", Some(6), "two");
    node.set_line(format!("6:{B}:running:/zones/{B}:{B}:joyent:excl:6:new"));
    let served = serving.await.unwrap();
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_every_reboot() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    // All of it happens before anything can be read.
    node.set_zone(A, "running", Some(6));
    for (state, id) in [
        ("shutting_down", 5),
        ("uninitialized", 5),
        ("initialized", 6),
        ("ready", 6),
        ("running", 6),
    ] {
        node.zone_event(A, state, id).await;
    }
    let away = events.soon().await;
    assert!(changes(&away).contains(&"zone_state \"shutting_down\"".to_owned()), "{away}");
    let back = events.soon().await;
    assert!(changes(&back).contains(&"zone_state \"running\"".to_owned()), "{back}");
    assert_eq!(back["vm"]["zoneid"], 6);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_again_when_zoneadm_lags_behind_the_kernel() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    let loads = || async { served.json("/status").await["counters"]["loads"].as_u64().unwrap() };
    let before = loads().await;
    node.zone_event(A, "shutting_down", 5).await;
    while loads().await == before {
        tokio::task::yield_now().await;
    }
    node.set_zone(A, "shutting_down", Some(5));
    let event = events.soon().await;
    assert_eq!(changes(&event)[0], "zone_state \"shutting_down\"");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_finds_and_counts_lost_events() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve_as(Config { sweep: Duration::from_millis(100), ..node.config() }).await;
    let mut events = served.events().await;
    node.set_zone(A, "installed", None);
    assert!(changes(&events.soon().await).contains(&"zone_state \"installed\"".to_owned()));
    node.add_zone(B, "installed", None, "two");
    assert_eq!(events.soon().await["type"], "create");
    let counters = served.json("/status").await["counters"].clone();
    assert!(counters["unannounced"].as_u64().unwrap() >= 1, "{counters}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failing_vm_is_reported_and_recovers_alone() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    node.add_zone(B, "installed", None, "two");
    node.write(&format!("/etc/zones/{A}.xml"), "<zone");
    let served = node.serve().await;
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 1);
    assert!(served.json("/status").await["errors"][A]["message"].is_string());
    let mut events = served.events().await;
    node.write(&format!("/etc/zones/{A}.xml"), &xml(A, "healed"));
    assert_eq!(events.soon().await["vm"]["alias"], "healed");

    // Broken again: the last good object stays, and the other one goes on.
    node.write(&format!("/etc/zones/{A}.xml"), "<zone");
    let (status, body) = served.get(&format!("/vms/{A}?sync=true")).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("zone XML") || body.contains("xml"), "{body}");
    assert_eq!(served.json(&format!("/vms/{A}")).await["alias"], "healed");
    node.write(&format!("/zones/{B}/config/tags.json"), r#"{"a":1}"#);
    assert!(changes(&events.soon().await).contains(&"tags.a 1".to_owned()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_or_failed_listing_deletes_nothing() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    node.write("/etc/zones/index", &format!("{A}:installed:/zones/{A}:{A}\n"));
    let served = node.serve().await;
    node.drop_zone(A);
    node.zone_event(A, "", -1).await;
    let (status, body) = served.get(&format!("/vms/{A}?sync=true")).await;
    assert_eq!(status, 503, "{body}");
    node.with(|state| state.failing.insert("zoneadm", "zoneadm: out of memory".to_owned()));
    assert_eq!(served.get("/vms?sync=true").await.0, 503);
    assert_eq!(served.get(&format!("/vms/{A}")).await.0, 200);
    // Both agree at last.
    node.with(|state| state.failing.clear());
    node.write("/etc/zones/index", "");
    assert_eq!(served.get(&format!("/vms/{A}?sync=true")).await.0, 404);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_reading_shows_an_unannounced_change() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    node.set_dataset(&format!("zones/{A}"), json!({"quota": "1073741824"}));
    node.set_zone(A, "installed", None);
    let vm = served.json(&format!("/vms/{A}?sync=true")).await;
    assert_eq!((&vm["quota"], &vm["state"]), (&json!(1), &json!("stopped")));
    node.add_zone(B, "installed", None, "two");
    assert_eq!(served.json("/vms?sync=true").await.as_array().unwrap().len(), 2);
    node.drop_zone(B);
    assert_eq!(served.json("/vms?sync=true").await.as_array().unwrap().len(), 1);
    assert_eq!(served.get("/vms/unknown?sync=true").await.0, 404);
    let sysinfo = served.json("/sysinfo").await;
    assert_eq!(sysinfo["sysinfo"]["Datacenter Name"], "sim");
    assert!(sysinfo["age_ms"].is_u64());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_zfs_delays_nothing_else() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    node.with(|state| state.hanging.push("zfs"));
    for n in 0..20 {
        node.zfs_event(&format!("zones/{A}@s{n}"), "snapshot").await;
    }
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"still":true}"#);
    assert!(changes(&events.soon().await).contains(&"tags.still true".to_owned()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_from_a_source_closes_no_stream() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    node.raw("zones", b"\xff\xfe nonsense\n").await;
    // Found by the refresh that the fresh child causes.
    node.set_zone(A, "installed", None);
    assert!(changes(&events.soon().await).contains(&"state \"stopped\"".to_owned()));
    assert_eq!(served.json("/status").await["sources"]["zone events"], "running");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_files_are_not_read_and_counted() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let refresh = (Duration::from_millis(50), Duration::from_millis(60));
    let served = node.serve_as(Config { refresh, ..node.config() }).await;
    // Young files are read again and again first.
    let counted = async {
        loop {
            let status = served.json("/status").await;
            let confirmed = status["counters"]["filesConfirmed"].as_u64().unwrap();
            if confirmed > 0 {
                break confirmed;
            }
            tokio::task::yield_now().await;
        }
    };
    let confirmed = tokio::time::timeout(Duration::from_secs(60), counted).await.unwrap();
    assert_eq!(confirmed % 4, 0, "the zone has four files that can be confirmed");
    served.stop().await;
}
