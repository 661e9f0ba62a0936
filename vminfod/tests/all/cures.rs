// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the deployed daemon gets wrong and this one does not, seen from outside: a sweep never
//! comes in these tests, so that nothing but the cure itself can make them pass.

use std::time::Duration;

use crate::common::{A, B, FakeNode, Served, changes, xml};
use serde_json::json;
use vminfod::config::Config;
use vminfod::node::commands::Tool;

/// Without sweeps and refreshes.
async fn serve(node: &FakeNode) -> Served {
    let never = Duration::from_secs(24 * 3600);
    node.serve_as(Config { sweep: never, refresh: (never, never), ..node.config() }).await
}

/// A zone of the pool `tank`.
fn add_elsewhere(node: &FakeNode, uuid: &str) {
    node.add_zone(uuid, "installed", None, "elsewhere");
    node.write(&format!("/tank/{uuid}/config/tags.json"), "{}");
    let line = format!("-:{uuid}:installed:/tank/{uuid}:{uuid}:joyent:excl:6");
    node.with(|state| {
        state.zoneadm.retain(|line| !line.contains(uuid));
        state.zoneadm.push(line);
    });
    node.set_dataset(&format!("tank/{uuid}"), json!({"mountpoint": format!("/tank/{uuid}")}));
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_files_in_another_pool() {
    let node = FakeNode::new();
    add_elsewhere(&node, A);
    let served = serve(&node).await;
    let mut events = served.events().await;
    node.write(&format!("/tank/{A}/config/tags.json"), r#"{"seen":true}"#);
    assert!(changes(&events.soon().await).contains(&"tags.seen true".to_owned()));
    node.write(&format!("/tank/{A}/lastexited"), "1449000000.5 256\n");
    let exit = changes(&events.soon().await);
    assert!(exit.contains(&"exit_status 1".to_owned()), "{exit:?}");
    // The same names in the usual pool belong to no VM.
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"of":"another"}"#);
    assert_eq!(events.within(Duration::from_millis(300)).await, None);
    assert_eq!(served.json(&format!("/vms/{A}")).await["tags"], json!({"seen": true}));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_a_vm_that_moves_to_another_pool() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "moves");
    let served = serve(&node).await;
    let mut events = served.events().await;
    add_elsewhere(&node, A);
    node.zone_event(A, "installed", -1).await;
    let mut seen = Vec::new();
    while !seen.contains(&format!("zonepath \"/tank/{A}\"")) {
        seen.extend(changes(&events.soon().await));
    }
    // The watcher gets the list after the commit: its look finds what is written before.
    node.write(&format!("/tank/{A}/config/tags.json"), r#"{"there":1}"#);
    while !seen.contains(&"tags.there 1".to_owned()) {
        seen.extend(changes(&events.soon().await));
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sysinfo_change_reaches_every_object_and_listener_at_once() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    node.add_zone(B, "installed", None, "two");
    let served = serve(&node).await;
    let mut events = served.events().await;
    let uuid = "1d2b7a55-0000-4a2b-9a7e-7b1c0f3c2a11";
    let sysinfo = json!({"UUID": uuid, "Datacenter Name": "sim", "Live Image": "20260101T000000Z"});
    node.write("/tmp/.sysinfo.json", &sysinfo.to_string());
    let mut told = Vec::new();
    for _ in 0..2 {
        let event = events.soon().await;
        let expected = [
            format!("server_uuid \"{uuid}\""),
            "platform_buildstamp \"20260101T000000Z\"".to_owned(),
        ];
        assert_eq!(changes(&event), expected);
        told.push(event["zonename"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, [A, B]);
    for vm in served.json("/vms").await.as_array().unwrap() {
        assert_eq!(vm["server_uuid"], uuid);
    }
    served.stop().await;
}

/// A zone `web` whose VM has the uuid.
fn add_named(node: &FakeNode, uuid: &str, alias: &str) {
    node.write("/etc/zones/web.xml", &xml("web", alias));
    node.write("/zones/web/config/tags.json", "{}");
    let line = format!("7:web:running:/zones/web:{uuid}:joyent:excl:6");
    node.with(|state| {
        state.zoneadm.retain(|line| !line.contains(":web:"));
        state.zoneadm.push(line);
    });
    node.set_dataset("zones/web", json!({"mountpoint": "/zones/web", "quota": "1073741824"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_with_another_name_is_refreshed_changed_and_removed() {
    let node = FakeNode::new();
    add_named(&node, A, "one");
    let served = serve(&node).await;
    let mut events = served.events().await;
    assert_eq!(served.json("/vms/web").await["uuid"], A);

    // A refresh finds it again without an event; then it finds an unannounced change.
    assert_eq!(served.json("/vms?sync=true").await.as_array().unwrap().len(), 1);
    node.set_dataset("zones/web", json!({"quota": "2147483648"}));
    served.json("/vms?sync=true").await;
    assert_eq!(changes(&events.soon().await), ["quota 2"]);
    // So does each kind of event.
    node.write("/etc/zones/web.xml", &xml("web", "renamed"));
    assert!(changes(&events.soon().await).contains(&"alias \"renamed\"".to_owned()));
    node.write("/zones/web/config/tags.json", r#"{"a":1}"#);
    assert!(changes(&events.soon().await).contains(&"tags.a 1".to_owned()));

    // It goes, and another zone with the same uuid has nothing of it.
    node.with(|state| state.zoneadm.retain(|line| !line.contains(":web:")));
    std::fs::remove_file(node.path("/etc/zones/web.xml")).unwrap();
    node.zone_event("web", "", -1).await;
    let deleted = events.soon().await;
    assert_eq!(
        (&deleted["type"], &deleted["zonename"], &deleted["uuid"]),
        (&json!("delete"), &json!("web"), &json!(A))
    );
    node.add_zone(A, "installed", None, "again");
    node.zone_event(A, "installed", -1).await;
    let created = events.soon().await;
    assert_eq!((&created["type"], &created["zonename"]), (&json!("create"), &json!(A)));
    assert_eq!((&created["vm"]["tags"], created["vm"].get("quota")), (&json!({}), None));
    assert_eq!(served.get("/vms/web").await.0, 404);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refresh_keeps_snapshots_of_delegated_datasets() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    let data = format!("zones/{A}/data");
    node.set_dataset(&data, json!({"zoned": "on"}));
    let served = serve(&node).await;
    let mut events = served.events().await;
    let held = format!("{data}@indestructible");
    node.set_dataset(&held, json!({"type": "snapshot", "userrefs": "1"}));
    node.zfs_event(&held, "hold").await;
    assert_eq!(changes(&events.soon().await), ["indestructible_delegated true"]);

    // The node's listing is too shallow to show it.
    for _ in 0..3 {
        let vms = served.json("/vms?sync=true").await;
        assert_eq!(vms[0]["indestructible_delegated"], true);
    }
    assert_eq!(events.within(Duration::from_millis(200)).await, None, "it came and went");
    let deep = |(tool, args): &(Tool, Vec<String>)| {
        *tool == Tool::Zfs && args.last().is_some_and(|arg| *arg == data)
    };
    assert!(node.with(|state| state.log.iter().any(deep)), "a refresh asks for it again");

    // What happened unseen is found by that question.
    node.with(|state| state.zfs.retain(|row| row["name"] != json!(held)));
    served.json("/vms?sync=true").await;
    let gone = events.soon().await;
    assert_eq!(gone["changes"][0]["prettyPath"], "indestructible_delegated");
    assert_eq!(gone["vm"].get("indestructible_delegated"), None);
    served.stop().await;
}
