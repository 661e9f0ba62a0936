// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `/vms` cannot show as it is, it names: statements 112–117.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vminfod::config::Config;

use crate::common::scene::{A, B, C};
use crate::common::world::World;
use crate::common::{FakeNode, Served, xml};

/// The header of an answer; empty if there is none.
async fn named(served: &Served, path: &str) -> String {
    let response = reqwest::get(format!("{}{path}", served.url)).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let header = response.headers().get("vminfod-incomplete");
    header.map(|names| names.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// Waits until a plain answer names these zones.
async fn until_named(served: &Served, names: &str) {
    let end = Instant::now() + Duration::from_secs(40);
    while named(served, "/vms").await != names {
        let shown = served.json("/status").await;
        assert!(Instant::now() < end, "not {names:?}: {shown:#}");
        served.get("/vms?sync=zones").await;
    }
}

#[tokio::test(flavor = "multi_thread")] // S112
async fn zone_that_cannot_be_read_is_named() {
    let node = FakeNode::one();
    node.add_zone(B, "running", Some(6), "two");
    node.index(&[A, B]);
    node.write(&format!("/etc/zones/{B}.xml"), "<zone");
    let served = node.serve_quiet().await;
    for path in ["/vms", "/vms?sync=true", "/vms?sync=zones"] {
        assert_eq!(named(&served, path).await, B, "{path}: never read");
    }
    assert_eq!(served.json("/status").await["incomplete"], json!([B]));
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 1);
    node.write(&format!("/etc/zones/{B}.xml"), &xml(B, "two"));
    assert_eq!(named(&served, "/vms?sync=zones").await, "");
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
    // Its object of before is shown, and named.
    node.write(&format!("/etc/zones/{B}.xml"), "<zone");
    assert_eq!(named(&served, "/vms?sync=zones").await, B);
    until_named(&served, B).await;
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")] // S113
async fn incomplete_list_of_zones_is_everything() {
    let node = FakeNode::new();
    std::fs::remove_file(node.path("/etc/zones/index")).unwrap();
    let served = node.serve_quiet().await;
    // No zone, and no index that says so.
    for path in ["/vms", "/vms?sync=true", "/vms?sync=zones"] {
        assert_eq!(named(&served, path).await, "*", "{path}");
    }
    node.index(&[]);
    assert_eq!(named(&served, "/vms?sync=zones").await, "");
    assert_eq!(named(&served, "/vms").await, "");
    drop(served);
    // Too many names for a header; /status has them all.
    for n in 0..200 {
        let uuid = format!("{n:08x}-8812-4060-8b15-fff23517df24");
        node.add_zone(&uuid, "installed", None, "many");
        node.write(&format!("/etc/zones/{uuid}.xml"), "<zone");
    }
    let served = node.serve_quiet().await;
    assert_eq!(named(&served, "/vms").await, "*");
    let status = served.json("/status").await;
    assert_eq!(status["incomplete"].as_array().unwrap().len(), 200);
    // The list itself fails.
    node.with(|state| state.failing.insert("zoneadm", "no".to_owned()));
    assert_eq!(served.get("/vms?sync=zones").await.0, 503);
}

#[tokio::test(flavor = "multi_thread")] // S114
async fn view_of_the_zones_needs_no_zfs_and_no_kstat() {
    let node = FakeNode::new();
    for zone in [A, B, C] {
        node.add_zone(zone, "running", Some(5), "one");
    }
    let served = node.serve_deaf(node.quiet()).await;
    served.idle().await;
    node.with(|state| {
        state.failing = ["zfs", "kstat"].map(|tool| (tool, "no".to_owned())).into();
        state.log.clear();
    });
    // Nothing announces any of this.
    node.write(&format!("/etc/zones/{A}.xml"), &xml(A, "renamed"));
    node.remove(C);
    assert_eq!(named(&served, "/vms?sync=zones").await, "");
    let vms = served.json("/vms").await;
    let aliases: Vec<&Value> = vms.as_array().unwrap().iter().map(|vm| &vm["alias"]).collect();
    assert_eq!(aliases, ["renamed", "one"]);
    let tools: Vec<_> = node.with(|state| state.log.iter().map(|(tool, _)| tool.name()).collect());
    assert!(tools.iter().all(|tool| *tool == "zoneadm"), "{tools:?}");
}

#[tokio::test(flavor = "multi_thread")] // S115
async fn failing_zfs_holds_back_no_other_part_of_a_vm() {
    let node = FakeNode::one();
    node.index(&[A]);
    let served = node.serve_quiet().await;
    served.idle().await;
    node.with(|state| state.failing.insert("zfs", "pool I/O is suspended".to_owned()));
    node.set_zone(A, "installed", None);
    assert_eq!(served.get(&format!("/vms/{A}?sync=true")).await.0, 503);
    assert_eq!(served.vm(A).await["state"], "stopped");
    assert_eq!(named(&served, "/vms").await, A);
    // A new VM is shown without its datasets, and named.
    node.add_zone(B, "running", Some(6), "two");
    node.index(&[A, B]);
    assert_eq!(named(&served, "/vms?sync=zones").await, "");
    assert_eq!(served.vm(B).await["zpool"], Value::Null);
    assert_eq!(named(&served, "/vms").await, format!("{A},{B}"));
    // It is asked for again.
    node.with(|state| state.failing.clear());
    until_named(&served, "").await;
    assert_eq!(served.vm(B).await["zpool"], "zones");
}

#[tokio::test(flavor = "multi_thread")] // S115
async fn dataset_that_came_after_the_zone_without_an_event_is_found() {
    let node = FakeNode::new();
    let served = node.serve_quiet().await;
    node.add_zone(A, "configured", None, "one");
    let row = node.with(|state| state.zfs.pop().unwrap());
    node.zone_event(A, "configured", -1).await;
    let mut events = served.events().await;
    assert_eq!(served.json(&format!("/vms/{A}?sync=true")).await["state"], "configured");
    served.idle().await;
    node.with(|state| state.zfs.push(row));
    node.set_zone(A, "running", Some(5));
    node.zone_event(A, "running", 5).await;
    events.until(|event| event["vm"]["zpool"] == "zones").await;
}

#[tokio::test(start_paused = true)] // S116
async fn datasets_are_listed_each_minute_while_nothing_announces_them() {
    let node = FakeNode::one();
    let config = Config { sweep: Config::default().sweep, ..node.quiet() };
    let world = World::start(&node, config).await;
    world.later(Duration::from_secs(200)).await;
    assert_eq!(node.listings(), 3, "snapshots, datasets, where these are mounted");
    world.status.edit(|view| view.sources.insert("zfs events", false));
    node.set_quota(A, 7);
    world.until(A, Duration::from_secs(90), |vm| vm["quota"] == 7).await;
    world.status.edit(|view| view.sources.insert("zfs events", true));
    let before = node.listings();
    world.later(Duration::from_secs(600)).await;
    assert_eq!(node.listings(), before);
    // A source that runs and says nothing.
    for gib in 8..10 {
        node.set_quota(A, gib);
        world.asks.fresh(None).await.unwrap();
        world.later(Duration::from_secs(1)).await;
        assert_eq!(world.vm(A)["quota"], gib);
    }
    node.set_quota(A, 10);
    let took = world.until(A, Duration::from_secs(90), |vm| vm["quota"] == 10).await;
    assert!(took > Duration::from_secs(50), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")] // S117
async fn vm_whose_snapshots_were_never_listed_is_named() {
    let node = FakeNode::one();
    node.index(&[A]);
    // The listing of the node, and that of one VM.
    let hanging = ["name,creation,userrefs,written", "filesystem,snapshot,volume"];
    node.with(|state| state.hanging_on = hanging.map(|text| ("zfs", text.to_owned())).to_vec());
    let mut config =
        Config { retry: (Duration::from_millis(10), Duration::from_millis(20)), ..node.quiet() };
    config.deadlines.zfs_snapshots = Duration::from_millis(50);
    config.deadlines.zfs_one = Duration::from_millis(50);
    let served = node.serve_as(config).await;
    assert_eq!(named(&served, "/vms").await, A);
    assert_eq!(named(&served, "/vms?sync=true").await, A);
    assert_eq!(named(&served, "/vms?sync=zones").await, "");
    // Where the listing of the node fails, it is VM by VM.
    node.set_dataset(&format!("zones/{A}@vmsnap-first"), json!({"type": "snapshot"}));
    node.with(|state| state.hanging_on.truncate(1));
    until_named(&served, "").await;
    let vm = served.vm(A).await;
    assert_eq!(vm["snapshots"][0]["name"], "first", "{vm:#}");
}

#[tokio::test(flavor = "multi_thread")] // S118, F73
async fn unknown_names_are_looked_up_in_one_list() {
    let node = FakeNode::one();
    let served = node.serve_quiet().await;
    served.idle().await;
    node.with(|state| {
        state.log.clear();
        state.held = vec!["zoneadm"];
    });
    let client = reqwest::Client::new();
    let ask = |name: String| {
        let request = client.get(format!("{}/vms/{name}?sync=true", served.url));
        tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
    };
    let asked: Vec<_> = (0..300).map(|n| ask(format!("nobody-{n}"))).collect();
    let known = ask(A.to_owned());
    // The first list and the reading of the real VM, beside each other.
    let runs = || node.with(|state| state.log.clone());
    while runs().len() < 2 {
        tokio::task::yield_now().await;
    }
    // A zone that is made now is in the next list.
    node.add_zone(B, "installed", None, "two");
    let new = ask(B.to_owned());
    node.release();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), 404);
    }
    assert_eq!((known.await.unwrap(), new.await.unwrap()), (200, 200));
    let named =
        runs().iter().filter(|(_, args)| args[0] == "-z" && args[1] != A && args[1] != B).count();
    assert_eq!(named, 0);
    assert!(runs().len() < 40, "{:?}", runs().len());
}
