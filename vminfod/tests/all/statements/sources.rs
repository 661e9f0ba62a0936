// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 62–65, 81: the zone channel and the children that report events.

use daemon::command::Program;
use serde_json::{Value, json};

use crate::common::FakeNode;
use crate::common::scene::{A, B, C, attr, marked, told};

#[tokio::test(flavor = "multi_thread")] // S62
async fn exactly_two_children_follow_the_kernel() {
    let (node, _served, _events) = marked().await;
    let mut runs: Vec<String> = node.with(|state| {
        let followed = state.log.iter().filter(|(tool, _)| tool.name() == "sysevent");
        followed.map(|(_, args)| args.join(" ")).collect()
    });
    runs.sort();
    assert_eq!(runs, ["-rj -c com.sun:zones:status", "-rj EC_zfs ESC_ZFS_history_event"]);
}

#[tokio::test(flavor = "multi_thread")] // S63, B6
async fn ignores_zone_events_without_data() {
    let (node, served, mut events) = marked().await;
    let data = json!({"zonename": A, "newstate": "installed", "zoneid": 5});
    for event in [
        // The notice library asks whether a daemon listens.
        json!({"class": "status", "subclass": "ping"}),
        json!({"class": "status", "subclass": "change", "data": null}),
        json!({"class": "status", "subclass": "change", "data": {}}),
        json!({"class": "status", "subclass": "change", "data": {"zonename": ""}}),
        json!({"class": "other", "subclass": "change", "data": data}),
        json!({"class": "init", "subclass": "exit", "data": data}),
        json!({"vendor": "none"}),
    ] {
        node.sysevent("zones", &event).await;
    }
    assert!(events.settled(&node, &served).await.is_empty());
    // The VM of the marks is read again, and nothing else is.
    let asked = |(_, args): &(Program, Vec<String>)| args.iter().any(|arg| arg == A);
    assert!(!node.with(|state| state.log.iter().any(asked)));

    node.set_zone(A, "installed", None);
    node.sysevent("zones", &json!({"class": "status", "subclass": "whatever", "data": data})).await;
    let event = events.change_of("zone_state").await;
    assert_eq!(event["vm"]["state"], "stopped");
}

#[tokio::test(flavor = "multi_thread")] // S64
async fn removal_of_an_unknown_zone_is_no_event() {
    let (node, served, mut events) = marked().await;
    for name in [B, "web", "global", "x"] {
        node.zone_event(name, "", -1).await;
    }
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
}

/// What the kernel and the tools say of a zone's life with so many reboots.
fn life(first: i64, reboots: i64) -> Vec<(&'static str, i64)> {
    let made = ["configured", "configured", "incomplete", "installed"];
    let boot = ["initialized", "ready", "ready", "running"];
    let halt = ["shutting_down", "shutting_down", "uninitialized"];
    let mut all = made.map(|state| (state, -1)).to_vec();
    for zoneid in first..=first + reboots {
        all.extend(boot.iter().chain(&halt).map(|state| (*state, zoneid)));
    }
    all.extend([("incomplete", -1), ("", -1)]);
    all
}

#[tokio::test(flavor = "multi_thread")] // S65, B20
async fn burst_of_250_reboots_ends_in_the_right_states() {
    let (node, served, mut events) = marked().await;
    let zones: Vec<String> =
        (0..10).map(|n| format!("{n:08x}-8812-4060-8b15-fff23517df24")).collect();
    let lives: Vec<_> = (0..10).map(|n| life(100 + 30 * n, 25)).collect();
    let minima =
        [("configured", 2), ("incomplete", 2), ("installed", 1), ("running", 26), ("ready", 27)];
    for (state, least) in minima {
        assert!(lives[0].iter().filter(|(said, _)| *said == state).count() >= least, "{state}");
    }
    let mut sent = 0;
    for step in 0..lives[0].len() {
        for (zone, (state, zoneid)) in zones.iter().zip(lives.iter().map(|life| life[step])) {
            match state {
                "configured" => node.add_zone(zone, "configured", None, "burst"),
                "incomplete" | "installed" => node.set_zone(zone, state, None),
                "" => node.remove(zone),
                "uninitialized" => node.set_zone(zone, "down", Some(zoneid)),
                "initialized" => node.set_zone(zone, "ready", Some(zoneid)),
                said => node.set_zone(zone, said, Some(zoneid)),
            }
            node.zone_event(zone, state, zoneid).await;
            sent += 1;
        }
        tokio::task::yield_now().await;
    }
    // The mark is behind all of them in the same pipe: seen means that every line was consumed.
    let all = events.settled(&node, &served).await;
    assert!(sent >= 1380, "{sent}");
    for zone in &zones {
        assert_eq!(served.get(&format!("/vms/{zone}")).await.0, 404, "{zone} is gone");
        // Never two in the wrong order: a create first, modifies of a known VM, a delete last.
        let mut known = false;
        for event in all.iter().filter(|event| event["zonename"] == zone.as_str()) {
            match event["type"].as_str().unwrap() {
                "create" => assert!(!std::mem::replace(&mut known, true), "{event}"),
                "delete" => assert!(std::mem::replace(&mut known, false), "{event}"),
                _ => assert!(known, "{event}"),
            }
        }
        assert!(!known, "{zone} ends with its delete");
    }
}

#[tokio::test(flavor = "multi_thread")] // S81
async fn garbage_or_death_of_a_child_closes_no_stream() {
    let (node, served, mut events) = marked().await;
    let restarts = |status: &Value| status["counters"]["sourceRestarts"].as_u64().unwrap();
    for (n, stream) in (1..).zip(["zones", "zfs", "zones", "zfs"]) {
        if n <= 2 {
            node.raw(stream, b"\xff\xfe{ nonsense\n").await;
        } else {
            // The pipe closes: the child is gone.
            drop(node.with(|state| state.streams.remove(stream)));
        }
        served.status_until(|status| restarts(status) == n).await;
        // The refresh after the start of the new child finds what happened meanwhile.
        node.set_quota(A, n);
        let event = events.change_of("quota").await;
        assert_eq!(event["vm"]["quota"], n);
    }
    served
        .status_until(|s| {
            s["sources"]["zone events"] == "running" && s["sources"]["zfs events"] == "running"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")] // B11
async fn zone_with_another_name_stays_current() {
    let node = FakeNode::new();
    node.configure("web", "joyent", "");
    node.write("/zones/web/config/tags.json", "{}");
    node.set_line(format!("5:web:running:/zones/web:{B}:joyent:excl:6"));
    node.set_dataset("zones/web", json!({"quota": "1073741824", "mountpoint": "/zones/web"}));
    node.kstat(B, Some((10, 0, 1_767_261_600)));
    let served = node.serve_quiet().await;
    served.idle().await;
    let vm = served.json("/vms/web").await;
    assert_eq!((&vm["uuid"], &vm["quota"], &vm["pid"]), (&json!(B), &json!(1), &json!(10)));
    let mut events = served.events().await;

    node.write("/zones/web/config/tags.json", r#"{"a":1}"#);
    let event = events.change_of("tags.a").await;
    assert_eq!((&event["zonename"], &event["uuid"]), (&json!("web"), &json!(B)));
    node.set_quota("web", 2);
    node.zfs_event("zones/web", "set").await;
    assert_eq!(told(&events.change_of("quota").await), ["quota changed 1 -> 2"]);
    node.set_quota("web", 3);
    assert_eq!(served.get("/vms?sync=true").await.0, 200);
    assert_eq!(told(&events.change_of("quota").await), ["quota changed 2 -> 3"]);
    node.set_line(format!("-:web:installed:/zones/web:{B}:joyent:excl:6"));
    node.kstat(B, None);
    node.zone_event("web", "uninitialized", 5).await;
    assert_eq!(events.change_of("state").await["vm"]["state"], "stopped");
    node.configure("web", "joyent", &attr("hostname", "w"));
    assert_eq!(events.change_of("hostname").await["vm"]["hostname"], "w");

    node.drop_zone("web");
    std::fs::remove_file(node.path("/etc/zones/web.xml")).unwrap();
    node.zone_event("web", "", -1).await;
    let gone = events.until(|event| event["type"] == "delete").await;
    assert_eq!((&gone["zonename"], &gone["uuid"]), (&json!("web"), &json!(B)));
    // Another zone with the same uuid has nothing of it.
    node.add_zone(B, "installed", None, "again");
    node.zone_event(B, "installed", -1).await;
    let created = events.until(|event| event["type"] == "create").await;
    assert_eq!((&created["zonename"], &created["vm"]["tags"]), (&json!(B), &json!({})));
}

#[tokio::test(flavor = "multi_thread")] // B18
async fn zone_replaced_by_its_namesake_is_the_new_one() {
    let (node, served, mut events) = marked().await;
    node.add_vm(C, "joyent", &attr("hostname", "old"));
    node.zone_event(C, "installed", -1).await;
    events.until(|event| event["type"] == "create").await;
    // Deleted and made anew before anything can be read.
    node.remove(C);
    node.zone_event(C, "", -1).await;
    node.add_vm(C, "lx", &attr("hostname", "new"));
    node.zone_event(C, "configured", -1).await;
    // The zone is read while it is made: the last object is the one that counts.
    let whole = |vm: &Value| vm["hostname"] == "new" && vm["brand"] == "lx";
    let last = events.until(|event| whole(&event["vm"])).await;
    assert_eq!(last["zonename"], C);
    served.idle().await;
    assert!(whole(&served.vm(C).await));
}

#[tokio::test(flavor = "multi_thread")] // B25
async fn zone_without_a_uuid_stops_nothing() {
    let (node, served, mut events) = marked().await;
    node.configure("handmade", "joyent", "");
    node.set_line("-:handmade:configured:/zones/handmade::joyent:excl:9".to_owned());
    node.zone_event("handmade", "configured", -1).await;
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(served.get("/vms/handmade").await.0, 404);
    assert_eq!(served.get("/ping").await.0, 200);
}
