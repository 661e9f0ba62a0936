// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R13 of facts/kvmd.md §12, in a process of its own: descriptors and threads are counted here.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

mod common;

use std::time::Duration;

use common::Node;
use common::qemu::{OFF, Qemu};
use kvmd::ledger::State;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// One at a time: each counts what the whole process has.
static TURN: Mutex<()> = Mutex::const_new(());

/// A node whose daemon has opened all that it opens once: it has seen a whole life.
async fn settled() -> Node {
    let mut node = Node::running().await;
    let qemu = Qemu::start(&node.socket("first"));
    node.watching("first").await;
    qemu.kill().await;
    node.verdict("first").await;
    node
}

#[tokio::test]
async fn r13_many_instances_cost_a_descriptor_each_no_thread_and_leave_nothing() {
    const MANY: usize = 400;
    let _turn = TURN.lock().await;
    let mut node = settled().await;
    let (descriptors, threads) = (count("fd"), count("task"));
    let mut all = Vec::new();
    for n in 0..MANY {
        all.push(Qemu::start(&node.socket(&format!("vm{n}"))));
    }
    let is_watching = |node: &Node| {
        let snapshot = node.ledger().snapshot();
        snapshot.instances.values().filter(|it| it.state == State::Watching).count()
    };
    node.until("all are watched", || is_watching(&node) == MANY).await;
    // Here the fakes' own ends are counted too: a listener and a connection each.
    assert!(count("fd") <= descriptors + 3 * MANY + 8);
    assert!(count("task") <= threads + 4, "threads were made");
    for qemu in all {
        qemu.say(OFF).await;
        qemu.end().await;
    }
    node.until("all are judged", || node.verdicts() == 1 + MANY as u64).await;
    node.until("no descriptor is left", || count("fd") <= descriptors).await;
    node.stop().await;
}

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

#[tokio::test]
async fn r13_a_storm_of_short_lives_leaves_no_descriptor_and_one_verdict_each() {
    let _turn = TURN.lock().await;
    let mut node = settled().await;
    let before = count("fd");
    for n in 0..200_u64 {
        let qemu = Qemu::start(&node.socket("vm1"));
        node.watching("vm1").await;
        qemu.kill().await;
        node.verdict("vm1").await;
        assert_eq!(node.verdicts(), n + 2);
    }
    node.until("no descriptor is left", || count("fd") <= before).await;
    let quiet = timeout(Duration::from_millis(1), node.verdict("vm1")).await;
    assert!(quiet.is_err(), "one verdict too many");
}
