// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's programs as processes, with a listing of snapshots that takes far too long.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Paths, Program, Spawned};
use sdc_clients::vminfod::Vminfod;
use serde_json::{Value, json};
use tokio::time::Instant;
use vminfod::config::{Config, Watch};

use crate::common::FakeNode;
use crate::common::scene::{A, B, LATE, followed};

/// Lists one dataset; the snapshots of the node take as long as the file `slow` says.
const ZFS: &str = r#"case "$*" in
*name,creation,userrefs,written*) exec sleep "$(cat "${0%/*}/slow")";;
*name,mountpoint*) exec printf '%s\t/%s\n' "${10}" "${10}";;
esac
cat "${0%/*}/zfs.list""#;

fn script(node: &FakeNode, name: &str, text: &str) -> std::path::PathBuf {
    node.write(&format!("/bin/{name}"), &format!("#!/bin/sh\n{text}\n"));
    let path = node.path(&format!("/bin/{name}"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")] // S114, S117, F71
async fn listing_of_snapshots_that_never_ends_delays_no_view_of_the_zones() {
    let node = FakeNode::one();
    node.index(&[A]);
    let rows = node.with(|state| state.zoneadm.join("\n"));
    let dataset =
        format!("lz4\t1500000000\t0\tzones/{A}\t1\t2\t3\t4\t5\tfilesystem\t-\t7\t8\t9\t10\toff\n");
    node.write("/bin/zfs.list", &dataset);
    node.write("/bin/slow", "0");
    let events = r#"echo '{"date":"d","type":"ready"}'; exec sleep 1000"#;
    let commands = [
        (Program::Zoneadm, &*format!("cat <<END\n{rows}\nEND")),
        (Program::Zfs, ZFS),
        (Program::Kstat, "echo '[]'"),
        (Program::Sysevent, events),
        (Program::Fswatcher, events),
    ];
    let commands = commands.into_iter().fold(Paths::default(), |paths, (program, text)| {
        paths.with(program, script(&node, program.name(), text))
    });
    for (slow, deadline) in [("40", Duration::from_millis(300)), ("1", Duration::from_secs(60))] {
        node.write("/bin/slow", slow);
        let mut config = Config { watch: Watch::Sweep, ..node.quiet() };
        // The first one is killed as 15 minutes would kill one of 20; the second one is waited for.
        config.deadlines.zfs_snapshots = deadline;
        let began = Instant::now();
        let commands = Arc::new(Spawned::new(commands.clone()));
        let served = node.serve_through(config, commands).await;
        assert!(began.elapsed() < Duration::from_secs(30), "{slow}: {:?}", began.elapsed());
        let client = Vminfod::new(&served.url, "test/1").unwrap();
        // A refresh begins the listing once more; no request waits for it.
        node.write("/bin/slow", "40");
        let views = async { (client.vms(true).await.unwrap(), client.zones().await.unwrap()) };
        let views = tokio::time::timeout(Duration::from_secs(25), views);
        let (all, zones) = views.await.expect("a view waits for the snapshots");
        assert_eq!((all.vms.len(), zones.vms.len()), (1, 1));
        assert!(zones.incomplete.is_nothing());
    }
}

#[tokio::test(flavor = "multi_thread")] // S135
async fn a_change_does_not_wait_for_the_datasets_that_a_request_waits_for() {
    let (node, served, mut events) = followed().await;
    node.with(|state| state.held.push("zfs"));
    let url = format!("{}/vms/{A}?sync=true", served.url);
    let asked = tokio::spawn(async move { reqwest::get(url).await.unwrap().text().await.unwrap() });
    let is_listed = |why: &Value| {
        let is_stale = |source: &str| why["sources"][source]["stale"] == true;
        is_stale("zfs") && !is_stale("zoneadm")
    };
    served.until(&format!("/why/{A}"), is_listed).await;
    node.set_quota(A, 77);
    node.set_zone(A, "installed", None);
    node.zone_event(A, "installed", 5).await;
    events.until(|event| event["vm"]["state"] == "stopped").await;
    assert!(!asked.is_finished());
    node.release();
    let vm: Value = serde_json::from_str(&asked.await.unwrap()).unwrap();
    assert_eq!((&vm["quota"], &vm["state"]), (&json!(77), &json!("stopped")));
}

#[tokio::test(flavor = "multi_thread")] // S138, F153
async fn tenants_with_slow_datasets_delay_no_neighbour() {
    let node = FakeNode::one();
    let tenants: Vec<String> = (0..8).map(|n| format!("5d8f1a2b-55f3-4a1b-a2ab-{n:012}")).collect();
    for tenant in &tenants {
        node.add_zone(tenant, "running", Some(7), "slow");
        node.set_dataset(&format!("zones/{tenant}/data"), json!({"zoned": "on"}));
    }
    node.add_zone(B, "running", Some(8), "neighbour");
    let mut config = node.quiet();
    config.deadlines.zfs_one = Duration::from_secs(20);
    let served = node.serve_as(config).await;
    served.idle().await;
    let mut events = served.events().await;
    node.with(|state| {
        state.hanging_on = tenants.iter().map(|tenant| ("zfs", tenant.clone())).collect();
    });
    for tenant in &tenants {
        for name in [format!("zones/{tenant}"), format!("zones/{tenant}/data")] {
            node.zfs_event_saying(&name, "set", "quota=1").await;
        }
    }
    let client = Vminfod::new(&served.url, "test/1").unwrap();
    for gib in [20, 21, 22] {
        let began = Instant::now();
        node.set_quota(B, gib);
        node.zfs_event_saying(&format!("zones/{B}"), "set", "quota=1").await;
        events.until(|event| event["uuid"] == B && event["vm"]["quota"] == gib).await;
        assert!(began.elapsed() < Duration::from_secs(1), "quota after {:?}", began.elapsed());
        let began = Instant::now();
        client.vm(B, true).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "sync after {:?}", began.elapsed());
    }
    // A halt, as vm-agent reads it.
    node.set_zone(B, "installed", None);
    node.zone_event(B, "installed", 8).await;
    events.until(|event| event["uuid"] == B && event["vm"]["state"] == "stopped").await;
    let began = Instant::now();
    assert_eq!(client.vm(B, true).await.unwrap()["state"], "stopped");
    assert!(began.elapsed() < Duration::from_secs(2), "halt after {:?}", began.elapsed());
    let status = served.json("/status").await;
    let slow = status["zfs"]["slow"].as_object().unwrap();
    let is_named = |tenant: &String| slow.keys().any(|name| name.contains(&**tenant));
    assert!(tenants.iter().filter(|tenant| is_named(tenant)).count() >= 4, "{slow:?}");
    assert!(!slow.keys().any(|name| name.contains(B)), "{slow:?}");
    node.with(|state| state.hanging_on.clear());
    let is_fast = |status: &Value| status["zfs"]["slow"].as_object().unwrap().is_empty();
    tokio::time::timeout(LATE, served.status_until(is_fast)).await.unwrap();
}
