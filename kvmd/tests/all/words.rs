// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R5–R13: what comes before the end, in which pieces, from whom, and what else goes on meanwhile.

use kvmd::ledger::State;
use serde_json::json;

use crate::common::qemu::{Manner, OFF, QUIT, Qemu};
use crate::common::{Node, said};

// R5
#[tokio::test]
async fn everything_is_read_before_judging() {
    let mut node = Node::running().await;
    for n in 0..50 {
        let name = format!("vm{n}");
        let qemu = Qemu::start(&node.socket(&name)).unwrap();
        node.watching(&name).await;
        // Event and end in one breath.
        qemu.say(OFF).await;
        qemu.end().await;
        assert_eq!(said(&node.verdict(&name).await), "guest/poweroff");
    }
}

// R5
#[tokio::test]
async fn a_reset_is_an_end() {
    let mut node = Node::running().await;
    // It never reads what we sent, so its end resets the connection.
    let qemu = Qemu::with_manner(&node.socket("vm1"), Manner::Deaf).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.kill().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("guest/poweroff", true));
}

// R6
#[tokio::test]
async fn lines_may_be_split_joined_or_too_long() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    let line = r#"{"event": "VNC_CONNECTED", "data": {"name": "é😀"}}"#;
    let heap = format!("{line}\r\n{{\"event\": \"POWERDOWN\"}}\n\r\n");
    for byte in heap.as_bytes() {
        qemu.say_bytes(&[*byte]).await;
    }
    let endless = vec![b'x'; 3 << 20];
    qemu.say_bytes(&endless).await;
    qemu.say_bytes(b"\n").await;
    qemu.say_bytes(format!("{OFF}\r\n{{\"event\": \"STOP\"}}\r\nhalf a line").as_bytes()).await;
    qemu.end().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!(said(&verdict), "host/powerdown");
    let counts = node.ledger().snapshot().counts;
    assert_eq!(counts.bad_lines, 2, "the endless one and the half one");
}

// R7
#[tokio::test]
async fn a_guests_strings_decide_nothing() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    for name in ["SHUTDOWN", "\\\"event\\\": \\\"SHUTDOWN\\\"", "\\u0000STOP"] {
        let line = format!(
            r#"{{"event": "VNC_CONNECTED", "data": {{"client": {{"name": "{name}", "event": "SHUTDOWN"}}}}}}"#
        );
        qemu.say(&line).await;
    }
    qemu.kill().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("unknown/abrupt", false));
}

// R8
#[tokio::test]
async fn a_monitor_without_greeting_is_shown_as_queued() {
    let mut node = Node::new();
    node.settings = json!({"greeting_timeout": "30ms"});
    node.start().await;
    let qemu = Qemu::with_manner(&node.socket("vm1"), Manner::Silent).unwrap();
    node.state("vm1", State::Queued).await;
    assert_eq!(node.verdicts(), 0);
    qemu.kill().await;
    let verdict = node.verdict("vm1").await;
    assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("unknown/unwatched", false));
}

// R8
#[tokio::test]
async fn a_queued_monitor_is_watched_later() {
    let mut node = Node::new();
    node.settings = json!({"greeting_timeout": "30ms"});
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    let other = tokio::net::UnixStream::connect(node.socket("vm1")).await.unwrap();
    node.until_greeted(&other).await;
    node.start().await;
    node.state("vm1", State::Queued).await;
    drop(other);
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(said(&node.verdict("vm1").await), "guest/poweroff");
}

// R9
#[tokio::test]
async fn a_second_daemon_does_not_run() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    let config = node.config_file();
    let again = node.kvmd(&["start", "--config", &config]).await;
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("runs already"));
    let again = node.kvmd(&["start", "--background", "--config", &config]).await;
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    let second = node.kvmd(&["serve", "--config", &config]).await;
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert_eq!(qemu.clients(), 1);
    node.stop().await;
    // The lock went with the daemon.
    node.start().await;
}

// R10
#[tokio::test]
async fn orphaned_files_are_removed() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "30ms", "control": {"marker_age": "1ms"}});
    node.start().await;
    std::fs::write(node.marker("deleted"), "").unwrap();
    node.until("the old marker went", || !node.is_marked("deleted")).await;
    // A marker beside a socket is somebody's.
    let _qemu = Qemu::start(&node.socket("vm1")).unwrap();
    std::fs::write(node.marker("vm1"), "").unwrap();
    std::fs::write(node.marker("deleted"), "").unwrap();
    node.until("the old marker went", || !node.is_marked("deleted")).await;
    assert!(node.is_marked("vm1"));
}

// R11
#[tokio::test]
async fn a_migrations_source_is_not_the_users() {
    let stop = r#"{"event": "STOP"}"#;
    let completed = r#"{"event": "MIGRATION", "data": {"status": "completed"}}"#;
    let bare = r#"{"event": "SHUTDOWN"}"#;
    for rule in ["ganeti", "reason"] {
        let mut node = Node::new();
        node.settings = json!({"rule": rule});
        node.start().await;
        for lines in
            [&[stop, QUIT][..], &[stop, completed, QUIT], &[stop, bare], &[stop, completed]]
        {
            let qemu = Qemu::start(&node.socket("vm1")).unwrap();
            node.watching("vm1").await;
            for line in lines {
                qemu.say(line).await;
            }
            qemu.end().await;
            let verdict = node.verdict("vm1").await;
            assert_eq!((&verdict["initiator"], &verdict["user"]), (&json!("host"), &json!(false)));
            assert!(!node.is_marked("vm1"), "{rule} {lines:?}");
        }
    }
}

// R12
#[tokio::test]
async fn no_wall_clock_decides() {
    let mut node = Node::running().await;
    let stamped = |name: &str, seconds: i64, data: &str| {
        format!(
            r#"{{"timestamp": {{"seconds": {seconds}, "microseconds": 0}}, "event": "{name}"{data}}}"#
        )
    };
    let off = r#", "data": {"guest": true, "reason": "guest-shutdown"}"#;
    // Years lie between the two by their stamps, forwards and backwards; a moment in truth.
    for (asked, ended) in [(1, 4_000_000_000), (4_000_000_000, 1), (i64::MAX, i64::MIN)] {
        let qemu = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        qemu.say(&stamped("POWERDOWN", asked, "")).await;
        qemu.say(&stamped("SHUTDOWN", ended, off)).await;
        qemu.end().await;
        assert_eq!(said(&node.verdict("vm1").await), "host/powerdown");
    }
}
