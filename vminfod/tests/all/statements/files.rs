// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 75–80: files that change, move, disappear and return.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use vminfod::config::Config;

use crate::common::scene::{A, B, MARK, attr, change, config_of, followed, marked, told};
use crate::common::{FakeNode, xml};

#[tokio::test(flavor = "multi_thread")] // S75
async fn notices_a_new_file_at_once() {
    let (node, _served, mut events) = marked().await;
    let file = format!("/zones/{A}/config/tags.json");
    let mut best = Duration::MAX;
    for n in 0..5 {
        std::fs::remove_file(node.path(&file)).unwrap();
        let began = Instant::now();
        node.tags(A, &json!({"n": n}));
        events.until(|event| event["vm"]["tags"]["n"] == n).await;
        best = best.min(began.elapsed());
    }
    // No sweep and no refresh can have found it; the best of five, since the machine may be busy.
    assert!(best < Duration::from_secs(2), "{best:?}");

    // One that was never there, in a directory that was never there.
    node.set_zone(B, "installed", None);
    node.write_now(&format!("/etc/zones/{B}.xml"), &xml(B, "two"));
    node.zone_event(B, "installed", -1).await;
    events.until(|event| event["type"] == "create").await;
    node.tags(B, &json!({"late": true}));
    events.change_of("tags.late").await;
}

#[tokio::test(flavor = "multi_thread")] // S76
async fn renaming_over_a_configuration_is_no_delete() {
    let node = FakeNode::one();
    node.add_zone(MARK, "running", Some(7), "mark");
    let config = Config { sweep: Duration::from_millis(50), ..node.quiet() };
    let served = node.serve_as(config).await;
    served.idle().await;
    let mut events = served.events().await;
    let file = node.path(&format!("/etc/zones/{A}.xml"));
    for n in 0..3 {
        // As mv does between file systems: the old one goes, the new one is written bit by bit.
        std::fs::remove_file(&file).unwrap();
        let text = config_of(A, "joyent", &attr("hostname", &format!("h{n}")));
        std::fs::write(&file, text.split_at(40).0).unwrap();
        std::fs::write(&file, &text).unwrap();
        events.change_of("hostname").await;
    }
    // Whatever could still think that it was deleted has had its looks by now.
    served.sweeps(4).await;
    let all = events.settled(&node, &served).await;
    assert!(all.iter().all(|event| event["type"] == "modify"), "{all:#?}");
    assert_eq!(served.vm(A).await["hostname"], "h2");
}

#[tokio::test(flavor = "multi_thread")] // S77
async fn removed_configuration_deletes_the_vm_and_its_watches() {
    let node = FakeNode::one();
    node.add_zone(B, "installed", None, "two");
    let config = Config { sweep: Duration::from_millis(50), ..node.quiet() };
    let served = node.serve_as(config).await;
    let mut events = served.events().await;
    let watched = |status: &Value, uuid: &str| {
        let lists = ["watching", "not_yet_watching"].map(|key| status["fswatcher"][key].clone());
        let paths = lists.iter().flat_map(|list| list.as_array().unwrap());
        paths.filter(|path| path.as_str().unwrap().contains(uuid)).count()
    };
    served.status_until(|status| watched(status, B) == 5).await;
    node.drop_zone(B);
    std::fs::remove_file(node.path(&format!("/etc/zones/{B}.xml"))).unwrap();
    let gone = events.until(|event| event["type"] == "delete").await;
    assert_eq!(gone["uuid"], B);
    let status = served.status_until(|status| watched(status, B) == 0).await;
    assert_eq!(watched(&status, A), 5);
}

#[tokio::test(flavor = "multi_thread")] // S78
async fn each_rename_over_a_file_is_one_change() {
    let (node, served, mut events) = marked().await;
    let file = format!("/zones/{A}/config/metadata.json");
    // The deployed watcher went deaf for one file after some renames.
    for n in 0..50 {
        node.write(&file, &format!(r#"{{"customer_metadata":{{"k":{n}}}}}"#));
        let event = events.soon().await;
        assert_eq!(event["vm"]["customer_metadata"], json!({"k": n}));
        let lines = told(&event);
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
    assert!(events.settled(&node, &served).await.is_empty(), "one event each");
}

#[tokio::test(flavor = "multi_thread")] // S79
async fn watches_a_remounted_file_system_again() {
    let (node, _served, mut events) = marked().await;
    let (mounted, aside) = (node.path(&format!("/zones/{A}")), node.path("/zones/aside"));
    for n in 0..3 {
        // What is below the mount point shows, as after an unmount: no files at all.
        std::fs::rename(&mounted, &aside).unwrap();
        std::fs::create_dir(&mounted).unwrap();
        node.tags(MARK, &json!({"away": n}));
        events.until(|event| event["vm"]["tags"]["away"] == n).await;
        std::fs::remove_dir(&mounted).unwrap();
        std::fs::rename(&aside, &mounted).unwrap();
        node.tags(A, &json!({"back": n}));
        events.until(|event| event["vm"]["tags"]["back"] == n).await;
    }
}

#[tokio::test(flavor = "multi_thread")] // S80, B16
async fn sysinfo_change_reaches_every_object() {
    let (node, served, mut events) = marked().await;
    let sysinfo =
        json!({"UUID": "564d2f1c-0a70-4a2b-9a7e-7b1c0f3c2a11", "Datacenter Name": "moved"});
    node.write("/tmp/.sysinfo.json", &sysinfo.to_string());
    let mut left = vec![A, MARK];
    while !left.is_empty() {
        let event = events.change_of("datacenter_name").await;
        assert_eq!(told(&event), ["datacenter_name changed \"sim\" -> \"moved\""]);
        left.retain(|uuid| event["uuid"] != *uuid);
    }
    for vm in served.json("/vms").await.as_array().unwrap() {
        assert_eq!(vm["datacenter_name"], "moved");
    }
}

/// The VM is a zone of the pool `tank`.
fn add_elsewhere(node: &FakeNode, uuid: &str) {
    node.write(&format!("/etc/zones/{uuid}.xml"), &xml(uuid, "far"));
    node.write(&format!("/tank/{uuid}/config/tags.json"), "{}");
    node.set_line(format!("-:{uuid}:installed:/tank/{uuid}:{uuid}:joyent:excl:6"));
    node.set_dataset(&format!("tank/{uuid}"), json!({"mountpoint": format!("/tank/{uuid}")}));
}

#[tokio::test(flavor = "multi_thread")] // B12
async fn watches_files_of_a_vm_on_another_pool() {
    let node = FakeNode::new();
    add_elsewhere(&node, A);
    let (served, mut events) = node.serve_followed().await;
    node.write(&format!("/tank/{A}/config/tags.json"), r#"{"a":1}"#);
    events.change_of("tags.a").await;
    node.write_now(&format!("/tank/{A}/lastexited"), "1767261600.000000000 0\n");
    events.change_of("exit_status").await;
    // The same names in the usual pool belong to no VM.
    node.tags(A, &json!({"of": "another"}));
    assert_eq!(served.json(&format!("/vms/{A}?sync=true")).await["tags"], json!({"a": 1}));
}

#[tokio::test(flavor = "multi_thread")] // B12
async fn watches_a_vm_that_moves_to_another_pool() {
    let (node, _served, mut events) = followed().await;
    add_elsewhere(&node, A);
    node.zone_event(A, "installed", -1).await;
    events.change_of("zonepath").await;
    // The watcher gets the list after the commit: its look finds what is written before.
    node.write(&format!("/tank/{A}/config/tags.json"), r#"{"there":1}"#);
    events.change_of("tags.there").await;
}

#[tokio::test(flavor = "multi_thread")] // B14
async fn restored_configuration_restores_its_vm() {
    let (node, _served, mut events) = marked().await;
    node.drop_zone(A);
    let text = std::fs::read_to_string(node.path(&format!("/etc/zones/{A}.xml"))).unwrap();
    std::fs::remove_file(node.path(&format!("/etc/zones/{A}.xml"))).unwrap();
    events.until(|event| event["type"] == "delete").await;
    // Only the files tell: no event of the zone, no refresh.
    node.set_zone(A, "installed", None);
    node.write(&format!("/etc/zones/{A}.xml"), &text);
    node.index(&[A]);
    let event = events.until(|event| event["type"] == "create").await;
    assert_eq!(event["uuid"], A);
}

#[tokio::test(flavor = "multi_thread")] // B22
async fn sweep_covers_a_path_with_blanks() {
    let node = FakeNode::new();
    let path = "/zones/a place with blanks";
    node.write(&format!("/etc/zones/{A}.xml"), &xml(A, "odd"));
    node.write(&format!("{path}/config/tags.json"), "{}");
    node.set_line(format!("-:{A}:installed:{path}:{A}:joyent:excl:6"));
    node.set_dataset("zones/odd", json!({"mountpoint": path}));
    // The helper ends a path at a blank.
    let sweep = Duration::from_millis(100);
    let served = node.serve_as(Config { sweep, ..node.quiet() }).await;
    served.idle().await;
    let mut events = served.events().await;
    node.write(&format!("{path}/config/tags.json"), r#"{"a":1}"#);
    let event = events.soon().await;
    assert!(change(&event, "tags.a").is_some(), "{event:#}");
}
