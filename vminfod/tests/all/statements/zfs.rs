// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 66–73: the effects of ZFS events.

use serde_json::json;

use crate::common::scene::{A, B, C, MARK, assert_told, change, marked, told};
use crate::common::{FakeNode, line_of, zfs_history};

/// Commands that [`Events::settled`] runs for its own VM.
fn own(args: &[String]) -> bool {
    args.last().is_some_and(|name| name.contains(MARK))
}

/// Names that `zfs list` was asked for since that many commands.
fn listed(node: &FakeNode, since: usize) -> Vec<String> {
    node.with(|state| {
        let runs =
            state.log.iter().skip(since).filter(|(tool, args)| tool.name() == "zfs" && !own(args));
        runs.map(|(_, args)| args.last().unwrap().clone()).collect()
    })
}

fn commands(node: &FakeNode) -> usize {
    node.with(|state| state.log.len())
}

#[tokio::test(flavor = "multi_thread")] // S66
async fn ignores_events_of_a_whole_pool() {
    let (node, served, mut events) = marked().await;
    let before = commands(&node);
    for data in [
        json!({"pool_name": "zones", "history_internal_name": "scan setup", "history_internal_str": "func=1"}),
        json!({"history_dsname": 5, "history_internal_name": "set"}),
        json!({"history_dsname": format!("zones/{A}")}),
    ] {
        let event = json!({"class": "EC_zfs", "subclass": "ESC_ZFS_history_event", "data": data});
        node.sysevent("zfs", &event).await;
    }
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(listed(&node, before), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")] // S67
async fn rollback_reads_datasets_and_files_again() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    node.add_zone(MARK, "running", Some(7), "mark");
    // No file is watched here: only the event announces the change.
    let served = node.serve_deaf(node.quiet()).await;
    served.idle().await;
    let mut events = served.events().await;
    let name = format!("zones/{A}");
    node.set_quota(A, 20);
    node.tags(A, &json!({"of": "the snapshot"}));
    node.write(&format!("/{name}/lastexited"), "1767261600.000000000 0\n");
    let before = commands(&node);
    node.zfs_event(&format!("{name}/%rollback"), "destroy").await;
    node.zfs_event("zones/none", "destroy").await;
    served.idle().await;
    assert_eq!(listed(&node, before), [""; 0], "nothing is done about the temporary clone");
    node.zfs_event(&format!("{name}/%rollback"), "clone swap").await;
    let mut left = vec!["quota", "tags.of", "exit_status", "exit_timestamp"];
    let mut lines = Vec::new();
    while !left.is_empty() {
        let event = events.soon().await;
        left.retain(|path| change(&event, path).is_none());
        lines.extend(told(&event));
    }
    assert_told(&lines, &["quota changed 10 -> 20", "tags.of added - -> \"the snapshot\""]);
}

#[tokio::test(flavor = "multi_thread")] // S68
async fn rollback_outside_vms_stops_nothing() {
    let (node, served, mut events) = marked().await;
    for name in [format!("zones/{C}"), "zones/none".to_owned(), "zones".to_owned()] {
        node.zfs_event(&format!("{name}/%rollback"), "clone swap").await;
        node.zfs_event(&format!("{name}/%rollback"), "destroy").await;
    }
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(served.get("/ping").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")] // S69
async fn ignores_a_receive_but_not_its_end() {
    let (node, served, mut events) = marked().await;
    let name = format!("zones/{A}");
    node.set_quota(A, 1);
    let before = commands(&node);
    node.zfs_event(&name, "receive").await;
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(listed(&node, before), [""; 0]);
    node.zfs_event(&name, "finish receiving").await;
    assert_eq!(told(&events.change_of("quota").await), ["quota changed 10 -> 1"]);
}

#[tokio::test(flavor = "multi_thread")] // S70, B7
async fn inherit_and_unknown_actions_are_read() {
    let (node, _served, mut events) = marked().await;
    let name = format!("zones/{A}");
    for (gib, action) in (1..).zip(["inherit", "promote", "upgrade", "what?", ""]) {
        node.set_quota(A, gib);
        node.zfs_event(&name, action).await;
        let event = events.change_of("quota").await;
        assert_eq!(event["vm"]["quota"], gib, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S71
async fn datasets_made_inside_a_zone_are_not_read() {
    let (node, served, mut events) = marked().await;
    let before = commands(&node);
    for n in 0..200 {
        node.zfs_event(&format!("zones/{A}/data/db{n}"), "create").await;
        node.zfs_event(&format!("zones/{A}/data/db{n}@s"), "snapshot").await;
        node.zfs_event(&format!("zones/{A}/data/db{n}/deep"), "set").await;
    }
    assert!(events.settled(&node, &served).await.is_empty());
    assert_eq!(listed(&node, before), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")] // S72
async fn volumes_beside_and_below_the_vm_change_it() {
    let node = FakeNode::new();
    let devices = ["-disk0", "/disk1"].map(|path| {
        let volume = json!({"type": "volume", "volsize": "1073741824", "volblocksize": "8192"});
        node.set_dataset(&format!("zones/{A}{path}"), volume);
        format!("<device match=\"/dev/zvol/rdsk/zones/{A}{path}\"><net-attr name=\"model\" value=\"virtio\"/></device>")
    });
    node.add_vm(A, "bhyve", &devices.concat());
    let (_served, mut events) = node.serve_followed().await;
    for path in ["-disk0", "/disk1"] {
        let name = format!("zones/{A}{path}");
        node.set_dataset(&name, json!({"volsize": "2147483648"}));
        node.zfs_event(&name, "set").await;
        let event = events.change_of("disks.*.size").await;
        let one = change(&event, "disks.*.size").unwrap();
        assert_eq!((&one["oldValue"], &one["newValue"]), (&json!(1024), &json!(2048)));
        assert!(one["ident"].as_str().unwrap().ends_with(path), "{one}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S73
async fn follows_a_pool_that_no_vm_uses_yet() {
    let (node, served, mut events) = marked().await;
    let name = format!("tank/{B}");
    node.set_dataset(&name, json!({"quota": "3221225472", "mountpoint": format!("/{name}")}));
    node.zfs_event(&name, "create").await;
    events.settled(&node, &served).await;
    node.write(&format!("/etc/zones/{B}.xml"), &crate::common::xml(B, "two"));
    node.set_line(format!("-:{B}:installed:/tank/{B}:{B}:joyent:excl:6"));
    node.zone_event(B, "installed", -1).await;
    let created = events.until(|event| event["type"] == "create").await;
    assert_eq!((&created["vm"]["zpool"], &created["vm"]["quota"]), (&json!("tank"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")] // B8
async fn rename_updates_both_names() {
    let (node, _served, mut events) = marked().await;
    let (name, old) = (format!("zones/{A}"), format!("zones/{A}-old"));
    node.drop_datasets(&name);
    node.set_dataset(&old, json!({"mountpoint": "none"}));
    node.zfs_event_saying(&name, "rename", &format!("-> {old}")).await;
    let event = events.change_of("zpool").await;
    assert_told(&told(&event), &["zpool removed \"zones\" -> -"]);
    // The other dataset takes its place: no event carries its new name.
    node.set_dataset(&name, json!({"quota": "5368709120", "mountpoint": format!("/{name}")}));
    node.zfs_event_saying("zones/fresh", "rename", &format!("-> {name}")).await;
    let event = events.change_of("zpool").await;
    assert_eq!(event["vm"]["quota"], 5);
}

#[tokio::test(flavor = "multi_thread")] // B9
async fn refresh_keeps_snapshots_of_delegated_datasets() {
    let node = FakeNode::one();
    node.set_dataset(&format!("zones/{A}/data"), json!({"zoned": "on"}));
    let (served, mut events) = node.serve_followed().await;
    let held = format!("zones/{A}/data@indestructible");
    node.set_dataset(&held, json!({"type": "snapshot", "userrefs": "1"}));
    node.zfs_event(&held, "hold").await;
    let event = events.change_of("indestructible_delegated").await;
    assert_eq!(event["vm"]["indestructible_delegated"], true);
    for _ in 0..3 {
        // A listing of the node is too shallow to show it.
        assert_eq!(served.get("/vms?sync=true").await.0, 200);
        served.idle().await;
        let vm = served.vm(A).await;
        assert_eq!(vm["indestructible_delegated"], true);
    }
    assert_eq!(served.json("/status").await["journal"]["newest"], events.seq, "no flapping");
    // What happened unseen is found: the refresh asks for that dataset apart.
    node.drop_datasets(&held);
    assert_eq!(served.get("/vms?sync=true").await.0, 200);
    let gone = events.change_of("indestructible_delegated").await;
    assert_eq!(gone["vm"].get("indestructible_delegated"), None);
}

#[tokio::test(flavor = "multi_thread")] // B24
async fn new_vm_has_its_dataset_data_without_another_event() {
    let (node, _served, mut events) = marked().await;
    // Its dataset's events were lost: only the zone is announced.
    node.add_zone(B, "installed", None, "two");
    node.zone_event(B, "installed", -1).await;
    let event = events.until(|event| event["vm"]["quota"] == 10).await;
    assert_eq!((&event["uuid"], &event["vm"]["zpool"]), (&json!(B), &json!("zones")));
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_of_receives_stops_nothing() {
    let (node, _served, mut events) = marked().await;
    let before = commands(&node);
    for n in 0..500 {
        node.zfs_event(&format!("zones/{A}/%recv"), "receive").await;
        node.zfs_event("zones/%recv", "create").await;
        node.zfs_event(&format!("zones/{A}@%temp{n}"), "snapshot").await;
    }
    node.set_quota(A, 1);
    node.zfs_event(&format!("zones/{A}"), "finish receiving").await;
    events.change_of("quota").await;
    let names = listed(&node, before);
    assert!(names.iter().all(|name| !name.contains('%')), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_of_a_snapshot_storm_grows_with_the_vms() {
    let node = FakeNode::one();
    node.add_zone(B, "running", Some(6), "two");
    node.add_zone(MARK, "running", Some(7), "mark");
    let (_served, mut events) = node.serve_followed().await;
    let before = commands(&node);
    // As in a real storm, the events of a whole second are there at once.
    let mut storm = String::new();
    for n in 0..1000 {
        for uuid in [A, B] {
            let name = format!("zones/{uuid}@vmsnap-s{n}");
            node.set_dataset(&name, json!({"type": "snapshot"}));
            storm.push_str(&line_of(&zfs_history(&name, "snapshot", "")));
        }
    }
    node.raw("zfs", storm.as_bytes()).await;
    let whole = |event: &serde_json::Value| {
        event["vm"]["snapshots"].as_array().is_some_and(|all| all.len() == 1000)
    };
    let mut left = vec![A, B];
    while !left.is_empty() {
        let event = events.until(whole).await;
        left.retain(|uuid| event["uuid"] != *uuid);
    }
    let runs = listed(&node, before).len();
    assert!(runs <= 40, "{runs} listings for two VMs");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_snapshots_do_not_delay_the_start() {
    let node = FakeNode::one();
    for n in 0..20_000 {
        let row = json!({"name": format!("zones/{A}@auto-{n}"), "type": "snapshot", "creation": "1767261600"});
        node.with(|state| state.zfs.push(row.as_object().unwrap().clone()));
    }
    let began = tokio::time::Instant::now();
    let served = node.serve_quiet().await;
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(served.vm(A).await["uuid"], A);
}
