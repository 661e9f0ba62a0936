// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Faults that need real processes: resources that the system takes away, and hostile clients. The
//! numbers in the names are the rows of RELIABILITY.md.

mod abuse;
mod clock;
mod rig;

use std::time::Duration;

use rig::{LATE, Rig, signal};
use rustix::process::Signal;
use sdc_clients::Jitter;
use sdc_clients::vminfod::{WatchEvent, watch};
use simnode::{Verbs, Wait};
use testbed::lab::world::until;
use testbed::process;

async fn comes_to_be(rig: &Rig, uuid: &str, state: &str) {
    until("the state is shown", LATE, || async { Ok(rig.state(uuid).await == state) })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_while_sysevent_is_stopped_changes_are_found_all_the_same() {
    let rig = Rig::start(12, "", "").await;
    let children = rig.children();
    assert_eq!(children.len(), 2, "one sysevent per channel");
    children.iter().for_each(|pid| signal(*pid, Signal::STOP));
    let verbs = Verbs::new(&rig.node, Wait::none());
    let uuid = rig.pick("stopped").await;
    for state in ["running", "stopped", "running"] {
        match state {
            "running" => verbs.boot(&uuid).await.unwrap(),
            _ => verbs.halt(&uuid, 0).await.unwrap(),
        }
        comes_to_be(&rig, &uuid, state).await;
    }
    until("two sysevents run at last", LATE, || async {
        // Those that were replaced meanwhile are gone.
        let left: Vec<u32> = rig.children();
        left.iter().filter(|pid| children.contains(pid)).for_each(|pid| signal(*pid, Signal::CONT));
        Ok(left.len() == 2)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_24_without_file_descriptors_it_goes_on_and_no_listener_is_lost() {
    let rig = Rig::start(12, "ulimit -n 96;", "").await;
    let mut watcher = watch(&rig.hub(), Jitter::from_seed(1));
    let first = tokio::time::timeout(LATE, watcher.next()).await.unwrap();
    assert!(matches!(first, WatchEvent::Synced(_)));
    let before = rig.rss();
    // The backlog takes what the daemon cannot; who finds no place there either gives up, all at once.
    let opening = || tokio::time::timeout(Duration::from_secs(1), rig.connect());
    let opened = futures_util::future::join_all((0..300).map(|_| opening())).await;
    let idle: Vec<_> = opened.into_iter().flatten().collect();
    println!("{} connections at 96 descriptors, {} in use", idle.len(), rig.fds());
    // Counted while some come and go.
    assert!(rig.fds() <= 100);
    drop(idle);
    rig.answers().await;
    let uuid = rig.pick("stopped").await;
    Verbs::new(&rig.node, Wait::none()).boot(&uuid).await.unwrap();
    let seen = async {
        loop {
            match watcher.next().await {
                WatchEvent::Lost(err) => panic!("the listener was lost: {err}"),
                WatchEvent::Modified { vm, .. } if vm["uuid"] == uuid.as_str() => break,
                _ => {}
            }
        }
    };
    tokio::time::timeout(LATE, seen).await.expect("the event comes");
    println!("memory grew by {} MiB (at most 64)", rig.rss().saturating_sub(before));
    assert!(rig.rss() <= before + 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_25_a_full_disk_under_the_log_stops_nothing() {
    let rig = Rig::start(12, "", ">/dev/full 2>/dev/full").await;
    let uuid = rig.pick("stopped").await;
    let verbs = Verbs::new(&rig.node, Wait::none());
    verbs.boot(&uuid).await.unwrap();
    comes_to_be(&rig, &uuid, "running").await;
    verbs.halt(&uuid, 0).await.unwrap();
    comes_to_be(&rig, &uuid, "stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_26_without_watches_files_are_looked_at_by_the_sweep() {
    let limit = "/proc/sys/user/max_inotify_watches";
    let tried = ["-Ur", "sh", "-c", &format!("echo 3 > {limit}")];
    let may = process::run("/usr/bin/unshare".as_ref(), &tried, LATE).await;
    if !may.is_ok_and(|done| done.code == Some(0)) {
        eprintln!("SKIPPED: no user namespace, so no limit of watches of its own");
        return;
    }
    let rig = Rig::start(4, &format!("exec unshare -Ur sh -c 'echo 3 > {limit};"), "'").await;
    let uuid = rig.pick("running").await;
    let vm = rig.hub().vm(&uuid, false).await.unwrap();
    let file = rig.node.zone_xml(vm["zonename"].as_str().unwrap());
    let xml = std::fs::read_to_string(&file).unwrap();
    let alias = xml.split("name=\"alias\"").nth(1).and_then(|rest| rest.split('"').nth(3)).unwrap();
    std::fs::write(&file, xml.replace(alias, "YnktaGFuZA==")).unwrap();
    until("the sweep finds it", LATE, || async {
        Ok(rig.hub().vm(&uuid, false).await.is_ok_and(|vm| vm["alias"] == "by-hand"))
    })
    .await
    .unwrap();
    let http = sdc_clients::Http::new(&format!("http://127.0.0.1:{}", rig.port), "t").unwrap();
    let call = sdc_clients::http::Call::get(&["status"]).query("full", "true");
    let status = http.execute(call).await.unwrap();
    let told = serde_json::to_string(&status.object().unwrap()).unwrap();
    assert!(told.contains("not_yet_watching"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_28_killed_at_any_moment_it_comes_back_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let program = std::path::PathBuf::from(env!("CARGO_BIN_EXE_testbed"));
    let options = testbed::lab::WorldOptions::new(dir.path().join("cn"), program);
    let mut world = testbed::lab::World::create(options).await.unwrap();
    world.start_vminfod().await.unwrap();
    let whole = world.hub().unwrap().vms(true).await.unwrap().vms;
    for round in 0..6 {
        let hub = world.hub().unwrap();
        let work = tokio::spawn(async move { hub.vms(true).await.is_ok() });
        // Somewhere in the middle of a refresh: a different place each time.
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        world.end_vminfod(true).await.unwrap();
        let _cut = work.await;
        world.start_vminfod().await.unwrap();
        assert_eq!(world.hub().unwrap().vms(true).await.unwrap().vms, whole, "round {round}");
    }
    world.stop().await.unwrap();
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let table = std::fs::read_to_string(root.join("RELIABILITY.md")).unwrap();
    let from_the_first = table.lines().skip_while(|line| !line.starts_with("| 1 |"));
    let rows: Vec<&str> = from_the_first.take_while(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), 66, "one row per fault");
    let mut sources = String::new();
    for part in ["vm-model", "sdc-clients", "daemon", "vminfod", "net-agent", "kvmd", "tests"] {
        gather(&root.join(part), &mut sources);
    }
    for (n, row) in rows.iter().enumerate() {
        assert!(row.starts_with(&format!("| {} |", n + 1)), "{row}");
        let tests = row.split('|').nth(3).unwrap();
        for name in tests.split('`').skip(1).step_by(2) {
            assert!(sources.contains(&format!("fn {name}(")), "row {}: no test {name}", n + 1);
        }
    }
}

fn gather(dir: &std::path::Path, sources: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}
