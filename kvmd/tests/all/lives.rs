// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R1–R4: directories, restarts, clearings, and one life after another on one path.

use std::time::Duration;

use kvmd::marker::Clears;
use serde_json::json;

use crate::common::qemu::{OFF, POWERDOWN, QUIT, Qemu};
use crate::common::{Node, said};

// R1
#[tokio::test]
async fn a_recreated_directory_loses_no_socket() {
    let mut node = Node::new();
    let top = node.dir.path().join("run");
    std::fs::remove_dir_all(&top).unwrap();
    node.start().await;
    // Each parent is made later, and the socket is there before anybody can watch.
    let qemu = made(&node, "vm1");
    node.watching("vm1").await;
    assert_eq!(end(&mut node, qemu, "vm1").await, "guest/poweroff");
    // A parent is renamed away and made anew.
    std::fs::rename(&top, node.dir.path().join("old")).unwrap();
    let qemu = made(&node, "vm2");
    node.watching("vm2").await;
    assert_eq!(end(&mut node, qemu, "vm2").await, "guest/poweroff");
    // Removed and made anew, several times.
    for n in 0..10 {
        std::fs::remove_dir_all(&top).unwrap();
        let name = format!("again{n}");
        let qemu = made(&node, &name);
        node.watching(&name).await;
        assert_eq!(end(&mut node, qemu, &name).await, "guest/poweroff");
    }
    // Another directory is put in its place in one step.
    let other = node.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let qemu = Qemu::start(&other.join("vm3.kvmd")).unwrap();
    std::fs::rename(node.control(), node.dir.path().join("before")).unwrap();
    std::fs::rename(&other, node.control()).unwrap();
    node.watching("vm3").await;
    assert_eq!(qemu.clients(), 1);
}

fn made(node: &Node, name: &str) -> Qemu {
    std::fs::create_dir_all(node.control()).unwrap();
    Qemu::start(&node.socket(name)).unwrap()
}

async fn end(node: &mut Node, qemu: Qemu, name: &str) -> String {
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict(name).await;
    assert_eq!(verdict["marker"], "written");
    said(&verdict)
}

// R1
#[tokio::test]
async fn a_rescan_finds_what_no_change_showed() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "30ms"});
    node.start().await;
    // A socket without a listener is no end of it: it listens later, and no event says so.
    let socket = node.socket("vm1");
    let stale = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(stale);
    node.until("it was given up", || node.ledger().snapshot().instances.is_empty()).await;
    let _qemu = Qemu::start(&socket).unwrap();
    node.watching("vm1").await;
}

// R2
#[tokio::test]
async fn a_request_survives_a_restart() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(POWERDOWN).await;
    node.heard("vm1", "POWERDOWN").await;
    node.stop().await;
    node.start().await;
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("host/powerdown", false));
    let evidence = verdict["evidence"].to_string();
    assert!(evidence.contains("not watched for a while"), "{evidence}");
}

// R2
#[tokio::test]
async fn a_restart_makes_one_poweroff_unsure() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(r#"{"event": "STOP"}"#).await;
    qemu.say(r#"{"event": "RESUME"}"#).await;
    node.heard("vm1", "RESUME").await;
    node.stop().await;
    node.start().await;
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["confidence"], "low");
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!(
        (said(&verdict).as_str(), &verdict["confidence"]),
        ("guest/poweroff", &json!("high"))
    );
}

// R2
#[tokio::test]
async fn an_end_while_off_leaves_nothing() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "30ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(POWERDOWN).await;
    node.heard("vm1", "POWERDOWN").await;
    node.stop().await;
    qemu.end().await;
    node.start().await;
    let kept = node.run_dir().join("histories/vm1.json");
    node.until("the history was dropped", || !kept.exists()).await;
    assert_eq!(node.verdicts(), 0);
}

// R3
#[tokio::test]
async fn a_cleared_marker_is_not_written() {
    let mut node = Node::running().await;
    let clears = Clears::below(&node.run_dir());
    // Cleared between the event and the end.
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    node.heard("vm1", "SHUTDOWN").await;
    clears.clear("vm1", &node.marker("vm1")).unwrap();
    qemu.end().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!(
        (said(&verdict).as_str(), &verdict["marker"]),
        ("guest/poweroff", &json!("cleared"))
    );
    assert!(!node.is_marked("vm1"));
    // The next life is another matter.
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "written");
}

// R3
#[tokio::test]
async fn an_instance_that_outlives_a_clearing_is_marked() {
    let mut node = Node::new();
    node.settings = json!({"clear_window": "20ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    let clears = Clears::below(&node.run_dir());
    let before = clears.latest("vm1");
    clears.clear("vm1", &node.marker("vm1")).unwrap();
    clears.note("vm1");
    let window = Duration::from_millis(20);
    node.until("the window is over", || clears.allow("vm1", &before, window)).await;
    // The daemon's own note may be younger than this test's, but hardly by so much.
    let margin = tokio::time::Instant::now() + Duration::from_secs(1);
    node.until("its note is as old", || tokio::time::Instant::now() > margin).await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "written");
}

// R3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clearing_during_the_end_leaves_no_marker() {
    let node = Node::running().await;
    let mut all = Vec::new();
    for n in 0..60 {
        let name = format!("vm{n}");
        let qemu = Qemu::start(&node.socket(&name)).unwrap();
        node.watching(&name).await;
        all.push((name, qemu));
    }
    let clears = Clears::below(&node.run_dir());
    let mut both = tokio::task::JoinSet::new();
    for (name, qemu) in all {
        let (clears, marker) = (clears.clone(), node.marker(&name));
        both.spawn_blocking(move || clears.clear(&name, &marker).unwrap());
        both.spawn(async move {
            qemu.say(OFF).await;
            qemu.end().await;
        });
    }
    while let Some(done) = both.join_next().await {
        done.unwrap();
    }
    node.until("all verdicts", || node.verdicts() == 60).await;
    let marked = (0..60).filter(|n| node.is_marked(&format!("vm{n}"))).count();
    assert_eq!(marked, 0);
}

// R4
#[tokio::test]
async fn an_old_end_leaves_the_new_marker_alone() {
    let mut node = Node::running().await;
    for existed in [false, true] {
        let old = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        old.say(OFF).await;
        node.heard("vm1", "SHUTDOWN").await;
        // Its successor serves the name before the old connection has ended.
        let new = Qemu::start(&node.socket("vm1")).unwrap();
        if existed {
            std::fs::write(node.marker("vm1"), "").unwrap();
        }
        old.kill().await;
        let verdict = node.verdict("vm1").await;
        assert_eq!(
            (said(&verdict).as_str(), &verdict["marker"]),
            ("guest/poweroff", &json!("superseded"))
        );
        assert_eq!(node.is_marked("vm1"), existed);
        // … and is the one that is watched now.
        node.watching("vm1").await;
        new.say(QUIT).await;
        new.end().await;
        let verdict = node.verdict("vm1").await;
        assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("host/quit", false));
    }
}

// R4
#[tokio::test]
async fn the_younger_of_two_on_one_path_has_the_name() {
    let mut node = Node::running().await;
    let first = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    let generation = node.ledger().snapshot().instances["vm1"].generation;
    // The second unlinks and binds while the first lives.
    let second = Qemu::start(&node.socket("vm1")).unwrap();
    node.until("the second has the name", || {
        let snapshot = node.ledger().snapshot();
        snapshot.instances.get("vm1").is_some_and(|it| it.generation > generation)
    })
    .await;
    node.watching("vm1").await;
    // The first ends cleanly and takes the second's file with it.
    first.say(OFF).await;
    first.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "superseded");
    node.until("it is told as unreachable", || {
        node.ledger().snapshot().instances.get("vm1").is_some_and(|it| !it.reachable)
    })
    .await;
    // The second's life is heard to its end all the same.
    second.say(OFF).await;
    second.kill().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!((&verdict["marker"], node.is_marked("vm1")), (&json!("written"), true));
}
