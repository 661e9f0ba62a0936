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

#[tokio::test(flavor = "multi_thread")] // S77, S137
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
    let why = async || served.json(&format!("/why/{B}")).await["witnesses"].clone();
    assert_eq!(why().await["seen_to_go"], false);
    node.drop_zone(B);
    std::fs::remove_file(node.path(&format!("/etc/zones/{B}.xml"))).unwrap();
    let gone = events.until(|event| event["type"] == "delete").await;
    assert_eq!(gone["uuid"], B);
    let status = served.status_until(|status| watched(status, B) == 0).await;
    assert_eq!(watched(&status, A), 5);
    // Its dataset is left: named, and it holds nothing, since the zone was seen to go.
    let left = json!({"row": false, "index": false, "xml": false, "dataset": format!("zones/{B}"), "seen_to_go": true});
    assert_eq!(why().await, left);
    let key = format!("zones/{B} left");
    let named = |status: &Value| status["errors"][&key]["message"].as_str().map(str::to_owned);
    let says = named(&served.status_until(|status| named(status).is_some()).await).unwrap();
    assert!(says.ends_with(&format!("zfs rename zones/{B} zones/left-{B}")), "{says}");
    assert_eq!(served.json("/status").await["incomplete"], json!([]));
    node.drop_datasets(&format!("zones/{B}"));
    node.zfs_event_saying(&format!("zones/{B}"), "destroy", "").await;
    served.status_until(|status| named(status).is_none()).await;
    assert_eq!(why().await["dataset"], Value::Null);
}

/// Takes one witness of B away, and returns what gives it back.
fn take(node: &FakeNode, witness: &str) -> Box<dyn FnOnce(&FakeNode)> {
    let xml = format!("/etc/zones/{B}.xml");
    match witness {
        "row and line" | "row" => {
            node.drop_zone(B);
            node.index(if witness == "row" { &[A, B] } else { &[A] });
            Box::new(|node| {
                node.set_zone(B, "installed", None);
                node.index(&[A, B]);
            })
        }
        "row, and the index is empty" | "row, and there is no index" => {
            node.drop_zone(B);
            match witness.ends_with("empty") {
                true => node.write("/etc/zones/index", ""),
                false => std::fs::remove_file(node.path("/etc/zones/index")).unwrap(),
            }
            // The XML too: a folder that is empty for a moment.
            let text = std::fs::read_to_string(node.path(&xml)).unwrap();
            std::fs::remove_file(node.path(&xml)).unwrap();
            Box::new(move |node| {
                node.set_zone(B, "installed", None);
                node.write(&xml, &text);
                node.index(&[A, B]);
            })
        }
        _ => {
            let text = std::fs::read_to_string(node.path(&xml)).unwrap();
            std::fs::remove_file(node.path(&xml)).unwrap();
            Box::new(move |node| node.write(&xml, &text))
        }
    }
}

#[tokio::test(flavor = "multi_thread")] // S136
async fn what_one_witness_lacks_is_kept_and_named() {
    for (witness, source, says) in [
        ("row and line", "zone index", "but its XML is there"),
        ("row", "zoneadm", "the zone index lists it and its XML is there"),
        ("XML", "zone_xml", "no such file"),
        ("row, and the index is empty", "zone index", "it has no line"),
        ("row, and there is no index", "zone index", "it has no line"),
    ] {
        let node = FakeNode::one();
        node.add_zone(B, "installed", None, "two");
        node.index(&[A, B]);
        let config = Config { sweep: Duration::from_millis(50), ..node.quiet() };
        let served = node.serve_as(config).await;
        let events = served.events().await;
        let before = served.vm(B).await;
        let back = take(&node, witness);
        let named = |status: &Value| status["errors"][B]["source"] == source;
        let status = served.status_until(named).await;
        let error = &status["errors"][B]["message"];
        assert!(error.as_str().unwrap().contains(says), "{witness}: {error}");
        assert_eq!(status["incomplete"], json!([B]), "{witness}");
        served.sweeps(4).await;
        assert_eq!(served.vm(B).await, before, "{witness}");
        let (code, text) = served.get(&format!("/vms/{B}?sync=true")).await;
        assert!(code == 503 && text.contains(says), "{witness}: {code} {text}");
        let why = served.json(&format!("/why/{B}")).await;
        assert!(
            why["sources"].as_object().unwrap().values().any(|it| it["error"].is_string()),
            "{why}"
        );
        if witness == "row and line" {
            assert_eq!(
                why["witnesses"],
                json!({"row": false, "index": false, "xml": true, "dataset": format!("zones/{B}"), "seen_to_go": false})
            );
        }
        back(&node);
        served.status_until(|status| status["incomplete"] == json!([])).await;
        drop(events);
        assert_eq!(served.vm(B).await["state"], "stopped", "{witness}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S136
async fn one_stray_zone_holds_no_other() {
    let node = FakeNode::one();
    node.add_zone(B, "installed", None, "two");
    node.index(&[A, B]);
    let served = node.serve_quiet().await;
    // The XML alone is left of a VM that was seen; another was never seen.
    const STRAY: &str = "e2e2e2e2-0000-4000-8000-00000000000f";
    node.write(&format!("/etc/zones/{STRAY}.xml"), &xml(STRAY, "stray"));
    node.drop_zone(B);
    node.index(&[A]);
    // Whoever asks first finds it.
    for path in ["/vms?sync=true", "/vms?sync=zones", "/vms"] {
        let (code, text) = served.get(path).await;
        assert!(code == 200 && text.contains(B) && !text.contains(STRAY), "{path}: {code} {text}");
    }
    // The other VM changes and is told as always.
    node.set_quota(A, 1);
    assert_eq!(served.json(&format!("/vms/{A}?sync=true")).await["quota"], 1);
    assert_eq!(served.json("/status").await["incomplete"], json!([STRAY, B]));
}

#[tokio::test(flavor = "multi_thread")] // S136
async fn first_start_names_what_only_one_witness_has() {
    let node = FakeNode::one();
    node.add_zone(B, "installed", None, "two");
    node.index(&[A]);
    node.drop_zone(B);
    // Templates are no zones, and of another name a zone must have been seen.
    for name in ["SUNWdefault", "SUNWblank", "web", &B.to_uppercase()] {
        node.write(&format!("/etc/zones/{name}.xml"), "<zone/>");
    }
    let served = node.serve_as(Config { sweep: Duration::from_millis(50), ..node.quiet() }).await;
    assert_eq!(served.json("/status").await["incomplete"], json!([B]));
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 1);
    let (code, text) = served.get(&format!("/vms/{B}?sync=true")).await;
    assert!(code == 503 && text.contains("its XML is there"), "{code} {text}");
    for name in ["SUNWdefault", "web"] {
        assert_eq!(served.get(&format!("/vms/{name}?sync=true")).await.0, 404, "{name}");
    }
    assert_eq!(served.json(&format!("/why/{B}")).await["witnesses"]["xml"], true);
    // Its row is back; then it is gone as a whole.
    node.set_zone(B, "installed", None);
    node.index(&[A, B]);
    served.status_until(|status| status["incomplete"] == json!([])).await;
    let mut events = served.events().await;
    node.index(&[A]);
    node.remove(B);
    events.until(|event| event["type"] == "delete" && event["uuid"] == B).await;
    assert_eq!(served.get(&format!("/vms/{B}?sync=true")).await.0, 404);
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
