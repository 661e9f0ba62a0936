// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The contract, K1–K12 of docs/contract/kvmd.md §1: one test at least for each, named by its number.

use crate::common::qemu::{OFF, POWERDOWN, QUIT, Qemu, STOP, TERM};
use crate::common::{Node, said};
use kvmd::qmp::NEGOTIATE;
use serde_json::json;

// K1
#[tokio::test]
async fn one_daemon_observes_all_instances() {
    let mut node = Node::running().await;
    let names: Vec<String> = (0..30).map(|n| format!("vm{n}")).collect();
    let mut all = Vec::new();
    for name in &names {
        all.push(Qemu::start(&node.socket(name)).unwrap());
    }
    for name in &names {
        node.watching(name).await;
    }
    for (n, qemu) in all.into_iter().enumerate() {
        qemu.say(if n % 2 == 0 { OFF } else { QUIT }).await;
        qemu.end().await;
    }
    for (n, name) in names.iter().enumerate() {
        let user = n % 2 == 0;
        // Verdicts come in any order: the last on each name is kept.
        node.until(name, || {
            node.ledger().snapshot().verdicts().iter().any(|it| it["name"] == **name)
        })
        .await;
        assert_eq!(node.is_marked(name), user, "{name}");
    }
    node.stop().await;
}

// K2
#[tokio::test]
async fn ends_with_success_where_not_needed() {
    let mut node = Node::new();
    node.settings = json!({"enabled": false});
    let file = node.config_file();
    for verb in ["start", "serve"] {
        let output = node.kvmd(&[verb, "--config", &file]).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("not needed"));
    }
    let set = |key: &str, text: &str| {
        std::fs::write(node.dir.path().join(format!("ssconf_{key}")), text).unwrap();
    };
    set("hypervisor_list", "kvm\n");
    set("enabled_user_shutdown", "True\n");
    node.settings = json!({"ssconf_dir": node.dir.path(), "rescan": "50ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    // The cluster's flag goes off while it runs.
    std::fs::write(node.dir.path().join("ssconf_enabled_user_shutdown"), "False\n").unwrap();
    node.ended().await;
    // Nothing but the daemon noticed.
    assert!(qemu.path.exists());
}

// K3
#[tokio::test]
async fn sends_only_the_negotiation() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    for line in [POWERDOWN, STOP, r#"{"return": {"status": "running"}}"#, "garbage", OFF] {
        qemu.say(line).await;
    }
    node.heard("vm1", "SHUTDOWN").await;
    assert_eq!(qemu.received().as_bytes(), NEGOTIATE);
    qemu.end().await;
    node.verdict("vm1").await;
}

// K4
#[tokio::test]
async fn the_marker_is_an_empty_file_beside_the_socket() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("web.example.com")).unwrap();
    node.watching("web.example.com").await;
    qemu.say(OFF).await;
    qemu.end().await;
    let verdict = node.verdict("web.example.com").await;
    assert_eq!(verdict["marker"], "written");
    let stat = std::fs::symlink_metadata(node.control().join("web.example.com.shutdown")).unwrap();
    assert!(stat.is_file() && stat.len() == 0);
    // Nothing else is left beside it: no temporary, no socket.
    assert_eq!(std::fs::read_dir(node.control()).unwrap().count(), 1);
}

// K5
#[tokio::test]
async fn the_verdict_comes_at_the_end_of_the_connection() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    node.heard("vm1", "SHUTDOWN").await;
    assert_eq!(node.verdicts(), 0);
    assert!(!node.is_marked("vm1"));
    qemu.end().await;
    assert_eq!(said(&node.verdict("vm1").await), "guest/poweroff");
    assert!(node.is_marked("vm1"));
    assert_eq!(node.verdicts(), 1);
}

// K6
#[tokio::test]
async fn the_shipped_rule_is_three_flags() {
    let mut node = Node::new();
    node.settings = json!({"rule": "ganeti"});
    node.start().await;
    let cases: [(&[&str], bool); 7] = [
        (&[OFF], true),
        (&[POWERDOWN, OFF], false),
        (&[STOP, OFF], false),
        (&[STOP, r#"{"event": "RESUME"}"#, OFF], false),
        // Its known mistakes, to the letter.
        (&[TERM], true),
        (&[QUIT], true),
        (&[r#"{"event": "X", "data": {"name": "SHUTDOWN"}}"#], true),
    ];
    for (lines, user) in cases {
        // What an earlier verdict left is removed, or truncated.
        std::fs::write(node.marker("vm1"), "old").unwrap();
        let qemu = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        for line in lines {
            qemu.say(line).await;
        }
        qemu.end().await;
        let verdict = node.verdict("vm1").await;
        assert_eq!(
            (verdict["user"].as_bool(), node.is_marked("vm1")),
            (Some(user), user),
            "{lines:?}"
        );
        if user {
            assert_eq!(std::fs::read(node.marker("vm1")).unwrap(), b"");
        }
    }
}

// K6
#[tokio::test]
async fn our_rule_uses_qemus_cause() {
    let mut node = Node::running().await;
    let cases: [(&[&str], &str, bool); 5] = [
        (&[OFF], "guest/poweroff", true),
        (&[STOP, r#"{"event": "RESUME"}"#, OFF], "guest/poweroff", true),
        (&[TERM], "host/signal", false),
        (&[QUIT], "host/quit", false),
        (&[POWERDOWN, OFF], "host/powerdown", false),
    ];
    for (lines, wanted, user) in cases {
        std::fs::write(node.marker("vm1"), "").unwrap();
        let qemu = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        for line in lines {
            qemu.say(line).await;
        }
        qemu.end().await;
        assert_eq!(said(&node.verdict("vm1").await), wanted);
        assert_eq!(node.is_marked("vm1"), user, "{lines:?}");
    }
}

// K7
#[tokio::test]
async fn a_crash_or_a_kill_leaves_no_marker() {
    for rule in ["ganeti", "reason"] {
        let mut node = Node::new();
        node.settings = json!({"rule": rule});
        node.start().await;
        std::fs::write(node.marker("vm1"), "").unwrap();
        let qemu = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        qemu.kill().await;
        let verdict = node.verdict("vm1").await;
        assert_eq!((said(&verdict).as_str(), node.is_marked("vm1")), ("unknown/abrupt", false));
    }
}

// K8
#[tokio::test]
async fn watches_existing_sockets_on_start_and_when_dir_returns() {
    let mut node = Node::new();
    let first = Qemu::start(&node.socket("vm1")).unwrap();
    node.start().await;
    node.watching("vm1").await;
    let aside = node.dir.path().join("aside");
    std::fs::rename(node.control(), &aside).unwrap();
    let second = Qemu::start(&aside.join("vm2.kvmd")).unwrap();
    // The connection that lives goes on without its directory.
    first.say(POWERDOWN).await;
    node.heard("vm1", "POWERDOWN").await;
    std::fs::rename(&aside, node.control()).unwrap();
    node.watching("vm2").await;
    assert_eq!((first.clients(), second.clients()), (1, 1));
}

// K9
#[tokio::test]
async fn one_monitor_per_path() {
    let mut node = Node::new();
    node.settings = json!({"rescan": "20ms"});
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    // The name is signalled again and again while its monitor lives.
    for n in 0..20 {
        let other = node.control().join(format!("other{n}"));
        std::fs::rename(node.socket("vm1"), &other).unwrap();
        std::fs::rename(&other, node.socket("vm1")).unwrap();
    }
    qemu.say(OFF).await;
    node.heard("vm1", "SHUTDOWN").await;
    assert_eq!(qemu.clients(), 1);
    assert_eq!(node.ledger().snapshot().instances.len(), 1);
    qemu.end().await;
    node.verdict("vm1").await;
    node.until("no instance left", || node.ledger().snapshot().instances.is_empty()).await;
}

// K10
#[tokio::test]
async fn a_removed_directory_or_marker_is_no_failure() {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    node.heard("vm1", "SHUTDOWN").await;
    std::fs::remove_dir_all(node.control()).unwrap();
    qemu.kill().await;
    assert_eq!(node.verdict("vm1").await["marker"], "failed");
    // It is back, and so is everything else.
    std::fs::create_dir_all(node.control()).unwrap();
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "written");
    std::fs::remove_file(node.marker("vm1")).unwrap();
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(QUIT).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "removed");
}

// K11
#[tokio::test]
async fn the_marker_does_not_migrate() {
    let completed = r#"{"event": "MIGRATION", "data": {"status": "completed"}}"#;
    for rule in ["ganeti", "reason"] {
        let (mut source, mut target) = (Node::new(), Node::new());
        for node in [&mut source, &mut target] {
            node.settings = json!({"rule": rule});
            node.start().await;
        }
        // A marker of an earlier life is on the source, and was copied to the target.
        std::fs::write(source.marker("vm1"), "").unwrap();
        std::fs::write(target.marker("vm1"), "").unwrap();
        let old = Qemu::start(&source.socket("vm1")).unwrap();
        let new = Qemu::start(&target.socket("vm1")).unwrap();
        source.watching("vm1").await;
        target.watching("vm1").await;
        for line in [STOP, completed, TERM] {
            old.say(line).await;
        }
        old.end().await;
        assert_eq!(said(&source.verdict("vm1").await), "host/migrated");
        assert!(!source.is_marked("vm1"), "{rule}");
        // The target's admin path finishes the migration while its QEMU runs.
        new.say(r#"{"event": "RESUME"}"#).await;
        new.say(completed).await;
        let (config, control) = (target.config_file(), target.control());
        let clear = ["clear", "vm1", "--config", &config, "--control", control.to_str().unwrap()];
        assert!(target.kvmd(&clear).await.status.success());
        assert!(!target.is_marked("vm1"), "{rule}");
        new.say(TERM).await;
        new.end().await;
        assert_eq!(said(&target.verdict("vm1").await), "host/signal");
        assert!(!target.is_marked("vm1"), "{rule}: the admin ended it right after the migration");
    }
}

// K12
#[tokio::test]
async fn clear_works_without_a_daemon() {
    let mut node = Node::new();
    let config = node.config_file();
    std::fs::write(node.marker("vm1"), "").unwrap();
    assert!(node.kvmd(&["clear", "vm1", "--config", &config]).await.status.success());
    assert!(!node.is_marked("vm1"));
    // There is none: fine too.
    assert!(node.kvmd(&["clear", "vm1", "--config", &config]).await.status.success());
    for bad in ["../vm1", "", "a/b", ".hidden"] {
        let output = node.kvmd(&["clear", bad, "--config", &config]).await;
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
    // Clearing at a start does not concern the life that begins after it.
    node.start().await;
    let qemu = Qemu::start(&node.socket("vm1")).unwrap();
    node.watching("vm1").await;
    qemu.say(OFF).await;
    qemu.end().await;
    assert_eq!(node.verdict("vm1").await["marker"], "written");
    // The daemon clears no marker itself.
    assert!(node.is_marked("vm1"));
    node.stop().await;
    assert!(node.is_marked("vm1"));
}
