// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R1–R4: directories, restarts, clearings, and one life after another on one path.

use std::time::Duration;

use kvmd::marker::Clears;
use serde_json::json;

use crate::common::qemu::{OFF, POWERDOWN, QUIT, Qemu};
use crate::common::{Node, said};

#[tokio::test]
async fn r01_a_directory_that_comes_goes_and_comes_again_loses_no_socket() {
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
    let qemu = Qemu::start(&other.join("vm3.kvmd"));
    std::fs::rename(node.control(), node.dir.path().join("before")).unwrap();
    std::fs::rename(&other, node.control()).unwrap();
    node.watching("vm3").await;
    assert_eq!(qemu.clients(), 1);
}

fn made(node: &Node, name: &str) -> Qemu {
    std::fs::create_dir_all(node.control()).unwrap();
    Qemu::start(&node.socket(name))
}

async fn end(node: &mut Node, qemu: Qemu, name: &str) -> String {
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict(name).await;
    assert_eq!(verdict["marker"], "written");
    said(&verdict)
}

#[tokio::test]
async fn r01_what_no_event_told_is_found_by_a_rescan() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "30ms"});
    node.start().await;
    // A socket without a listener is no end of it: it listens later, and no event says so.
    let socket = node.socket("vm1");
    let stale = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(stale);
    node.until("it was given up", || node.ledger().snapshot().instances.is_empty()).await;
    let _qemu = Qemu::start(&socket);
    node.watching("vm1").await;
}

#[tokio::test]
async fn r02_a_request_before_a_restart_of_the_daemon_is_remembered() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1"));
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

#[tokio::test]
async fn r02_a_restart_in_the_middle_makes_a_poweroff_unsure_and_the_next_life_is_sure_again() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1"));
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
    let qemu = Qemu::start(&node.socket("vm1"));
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!(
        (said(&verdict).as_str(), &verdict["confidence"]),
        ("guest/poweroff", &json!("high"))
    );
}

#[tokio::test]
async fn r02_an_end_while_the_daemon_is_off_leaves_no_verdict_and_no_history() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "30ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1"));
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

#[tokio::test]
async fn r03_no_marker_is_written_after_the_admin_path_cleared_it() {
    let mut node = Node::running().await;
    let clears = Clears::below(&node.run_dir());
    // Cleared between the event and the end.
    let qemu = Qemu::start(&node.socket("vm1"));
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
    let qemu = Qemu::start(&node.socket("vm1"));
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "written");
}

#[tokio::test]
async fn r03_an_instance_that_lived_on_after_a_clearing_may_be_marked() {
    let mut node = Node::new();
    node.settings = json!({"clear_window": "20ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1"));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r03_clearing_and_ending_at_the_same_moment_never_leaves_a_marker() {
    let node = Node::running().await;
    let mut all = Vec::new();
    for n in 0..60 {
        let name = format!("vm{n}");
        let qemu = Qemu::start(&node.socket(&name));
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

#[tokio::test]
async fn r04_the_end_of_an_old_life_never_touches_the_marker_of_the_new_one() {
    let mut node = Node::running().await;
    for existed in [false, true] {
        let old = Qemu::start(&node.socket("vm1"));
        node.watching("vm1").await;
        old.say(OFF).await;
        node.heard("vm1", "SHUTDOWN").await;
        // Its successor serves the name before the old connection has ended.
        let new = Qemu::start(&node.socket("vm1"));
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

#[tokio::test]
async fn r04_two_on_one_path_are_told_apart_and_the_younger_has_the_name() {
    let mut node = Node::running().await;
    let first = Qemu::start(&node.socket("vm1"));
    node.watching("vm1").await;
    let generation = node.ledger().snapshot().instances["vm1"].generation;
    // The second unlinks and binds while the first lives.
    let second = Qemu::start(&node.socket("vm1"));
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
