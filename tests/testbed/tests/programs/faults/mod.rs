// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Faults that need real processes: resources that the system takes away (`abuse` has the hostile
//! clients). The numbers beside the tests are the rows of RELIABILITY.md.

mod clock;
mod rig;
mod starved;

use std::time::Duration;

use ::rig::port::Port;
use rig::Rig;
use rustix::process::Signal;
use sdc_clients::vminfod::WatchEvent;
use serde_json::json;
use simnode::{Verbs, Wait};
use testbed::process::{self, Child};
use tokio::net::TcpStream;

use super::common::{LATE, Lab, edit_alias, program, said, see, signal, status, synced, until};
use super::house::source;

#[tokio::test(flavor = "multi_thread")] // F6
async fn while_sysevent_is_stopped_changes_are_found_all_the_same() {
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
        rig.shows(&uuid, "state", state).await;
    }
    until("two sysevents run at last", async || {
        // Those that were replaced meanwhile are gone.
        let left: Vec<u32> = rig.children();
        left.iter().filter(|pid| children.contains(pid)).for_each(|pid| signal(*pid, Signal::CONT));
        left.len() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")] // F24
async fn without_file_descriptors_it_goes_on_and_no_listener_is_lost() {
    let rig = Rig::start(12, "ulimit -n 96;", "").await;
    let mut watcher = synced(&rig.hub()).await;
    let before = rig.held().rss;
    // The backlog takes what the daemon cannot; who finds no place there either gives up, all at once.
    let opening = || tokio::time::timeout(Duration::from_secs(1), rig.connect());
    let opened = futures_util::future::join_all((0..300).map(|_| opening())).await;
    let idle: Vec<_> = opened.into_iter().flatten().collect();
    println!("{} connections at 96 descriptors, {} in use", idle.len(), rig.held().fds);
    // Counted while some come and go.
    assert!(rig.held().fds <= 100);
    drop(idle);
    // Children need descriptors too: it has them when it has noticed that the connections are closed.
    until("a refresh succeeds again", async || rig.hub().vms(true).await.is_ok()).await;
    let uuid = rig.pick("stopped").await;
    Verbs::new(&rig.node, Wait::none()).boot(&uuid).await.unwrap();
    see(&mut watcher, |event| match event {
        WatchEvent::Lost(err) => panic!("the listener was lost: {err}"),
        WatchEvent::Modified { vm, .. } => (vm["uuid"] == uuid.as_str()).then_some(()),
        _ => None,
    })
    .await;
    let grown = rig.held().rss.saturating_sub(before) >> 20;
    println!("memory grew by {grown} MiB (at most 64)");
    assert!(grown <= 64);
}

#[tokio::test(flavor = "multi_thread")] // F25
async fn a_full_disk_under_the_log_stops_nothing() {
    let rig = Rig::start(12, "", ">/dev/full 2>/dev/full").await;
    let uuid = rig.pick("stopped").await;
    let verbs = Verbs::new(&rig.node, Wait::none());
    verbs.boot(&uuid).await.unwrap();
    rig.shows(&uuid, "state", "running").await;
    verbs.halt(&uuid, 0).await.unwrap();
    rig.shows(&uuid, "state", "stopped").await;
}

#[tokio::test(flavor = "multi_thread")] // F25
async fn an_agents_first_start_without_room_waits_for_it() {
    let may = process::run("/usr/bin/unshare".as_ref(), &["-Urm", "true"], LATE).await;
    if !may.is_ok_and(|done| done.code == Some(0)) {
        eprintln!("SKIPPED: no user namespace, so no disk of its own");
        return;
    }
    // Neither a byte nor a name has room.
    for (room, fill) in [
        ("size=4k", "head -c 4096 /dev/zero > fill"),
        ("nr_inodes=8", "touch 1 2 3 4 5 6 7 2> /dev/null"),
    ] {
        let (dir, port) = (tempfile::tempdir().unwrap(), Port::local().unwrap());
        let (disk, file) = (dir.path().join("disk"), dir.path().join("net-agent.json"));
        std::fs::create_dir(&disk).unwrap();
        let config = json!({
            "napi": {"url": "http://127.0.0.1:9"}, "vmapi": {"url": "none"},
            "vminfod": {"url": "http://127.0.0.1:9", "trust_tcp": true},
            "cn_uuid": "564d0b8e-6099-7648-351e-877faf6c56f6", "state_dir": disk.join("state"),
            "status": {"listen": port.address().to_string()},
        });
        std::fs::write(&file, config.to_string()).unwrap();
        let (at, program, file) = (disk.display(), program(), file.display());
        let script = format!(
            "cd {at} && mount -t tmpfs -o {room} tmpfs {at} && cd {at} && {fill}; \
             exec {} @net-agent serve --config {file}",
            program.display()
        );
        let args = ["-Urm", "/bin/sh", "-c", &script];
        let mut agent = Child::spawn("net-agent", "/usr/bin/unshare".as_ref(), &args).unwrap();
        let pid = agent.id().unwrap();
        said(&mut agent, "waiting for room on the disk").await;
        agent.ignore();
        for file in std::fs::read_dir(format!("/proc/{pid}/root{at}")).unwrap().flatten() {
            if file.file_type().unwrap().is_file() {
                std::fs::remove_file(file.path()).unwrap();
            }
        }
        until("it answers", async || TcpStream::connect(port.address()).await.is_ok()).await;
        agent.stop(LATE).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")] // F26
async fn without_watches_files_are_looked_at_by_the_sweep() {
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
    edit_alias(&file);
    rig.shows(&uuid, "alias", "by-hand").await;
    let told = status(&rig.url()).await.to_string();
    assert!(told.contains("not_yet_watching"), "{told}");
}

#[tokio::test(flavor = "multi_thread")] // F28
async fn killed_at_any_moment_it_comes_back_to_the_same() {
    let mut lab = Lab::start(|_| ()).await;
    let whole = lab.vms().await;
    for round in 0..6 {
        let hub = lab.client();
        let work = tokio::spawn(async move { hub.vms(true).await.is_ok() });
        // Somewhere in the middle of a refresh: a different place each time.
        tokio::time::sleep(Duration::from_millis(7 * round)).await;
        lab.end("vminfod", true).await.unwrap();
        let _cut = work.await;
        lab.start_vminfod().await.unwrap();
        assert_eq!(lab.vms().await, whole, "round {round}");
    }
    lab.stop().await;
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = source::root();
    let table = std::fs::read_to_string(root.join("RELIABILITY.md")).unwrap();
    let from_the_first = table.lines().skip_while(|line| !line.starts_with("| 1 |"));
    let rows: Vec<&str> = from_the_first.take_while(|line| line.starts_with("| ")).collect();
    let number = |row: &str| row.split('|').nth(1).unwrap().trim().parse::<usize>().unwrap();
    assert!(rows.is_sorted_by_key(|row| number(row)) && number(rows[65]) == 66, "a row per fault");
    let files = source::files(&root, ".", "rs");
    let read = |path: String| std::fs::read_to_string(root.join(path)).unwrap();
    let sources: String = files.into_iter().map(read).collect();
    for row in rows {
        let tests = row.split('|').nth(3).unwrap();
        for name in tests.split('`').skip(1).step_by(2) {
            assert!(
                sources.contains(&format!("fn {name}(")),
                "row {}: no test {name}",
                number(row)
            );
        }
    }
}
