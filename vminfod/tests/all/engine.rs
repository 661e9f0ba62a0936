// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop on a node in process: when the port opens, listings that fail, and fresh readings.

use std::time::Duration;

use crate::common::scene::{eventually, one_vm};
use crate::common::{A, B, FakeNode};
use daemon::command::Program;
use serde_json::{Value, json};
use vminfod::config::Config;

#[tokio::test(flavor = "multi_thread")] // F67
async fn port_opens_when_each_zone_of_the_index_has_a_row() {
    let node = FakeNode::new();
    node.index(&[A, B]);
    node.set_line("0:global:running:/::liveimg:shared:0".into());
    let serving = tokio::spawn({
        let node = node.clone();
        async move { node.serve().await }
    });
    // Two listings without them; then one of the two; then both, with an unknown column.
    let listings = || {
        node.with(|state| state.log.iter().filter(|(tool, _)| *tool == Program::Zoneadm).count())
    };
    eventually("two listings", || listings() >= 2).await;
    assert!(!serving.is_finished());
    node.add_zone(A, "running", Some(5), "one");
    let before = listings();
    eventually("another listing", || listings() > before).await;
    assert!(!serving.is_finished());
    node.add_zone(B, "running", Some(6), "two");
    node.set_line(format!("6:{B}:running:/zones/{B}:{B}:joyent:excl:6:new"));
    let served = serving.await.unwrap();
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_or_failed_listing_deletes_nothing() {
    let node = FakeNode::one();
    node.index(&[A]);
    let served = node.serve().await;
    node.drop_zone(A);
    node.zone_event(A, "", -1).await;
    let (status, body) = served.get(&format!("/vms/{A}?sync=true")).await;
    assert_eq!(status, 503, "{body}");
    node.with(|state| state.failing.insert("zoneadm", "zoneadm: out of memory".to_owned()));
    assert_eq!(served.get("/vms?sync=true").await.0, 503);
    assert_eq!(served.get(&format!("/vms/{A}")).await.0, 200);
    // An index without a line says nothing, and one without this line is one witness.
    node.with(|state| state.failing.clear());
    for index in ["", "global:installed:/:\n"] {
        node.write("/etc/zones/index", index);
        assert_eq!(served.get(&format!("/vms/{A}?sync=true")).await.0, 503, "{index}");
    }
    // All agree at last.
    std::fs::remove_file(node.path(&format!("/etc/zones/{A}.xml"))).unwrap();
    assert_eq!(served.get(&format!("/vms/{A}?sync=true")).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_reading_shows_an_unannounced_change() {
    let (node, served) = one_vm().await;
    node.set_quota(A, 1);
    node.set_zone(A, "installed", None);
    let vm = served.json(&format!("/vms/{A}?sync=true")).await;
    assert_eq!((&vm["quota"], &vm["state"]), (&json!(1), &json!("stopped")));
    node.add_zone(B, "installed", None, "two");
    assert_eq!(served.json("/vms?sync=true").await.as_array().unwrap().len(), 2);
    node.remove(B);
    assert_eq!(served.json("/vms?sync=true").await.as_array().unwrap().len(), 1);
    assert_eq!(served.get("/vms/unknown?sync=true").await.0, 404);
    let sysinfo = served.json("/sysinfo").await;
    assert_eq!(sysinfo["sysinfo"]["Datacenter Name"], "sim");
    assert!(sysinfo["age_ms"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_files_are_not_read_and_counted() {
    let node = FakeNode::one();
    let refresh = (Duration::from_millis(50), Duration::from_millis(60));
    let served = node.serve_as(Config { refresh, ..node.config() }).await;
    // Young files are read again and again first.
    let confirmed = |status: &Value| status["counters"]["filesConfirmed"].as_u64().unwrap();
    let status = served.status_until(|status| confirmed(status) > 0).await;
    assert_eq!(confirmed(&status) % 4, 0, "the zone has four files that can be confirmed");
}
