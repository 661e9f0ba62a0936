// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R13 of docs/contract/kvmd.md §12, in a process of its own: descriptors and threads of the process are counted here.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use common::qemu::{OFF, Qemu};
use common::{Node, count};
use kvmd::ledger::State;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Held by the test that counts.
static ALONE: Mutex<()> = Mutex::const_new(());

// R13
#[tokio::test]
async fn many_instances_cost_a_descriptor_each() {
    let _alone = ALONE.lock().await;
    const MANY: usize = 400;
    let mut node = Node::settled().await;
    let (descriptors, threads) = (count("fd"), count("task"));
    let mut all = Vec::new();
    for n in 0..MANY {
        all.push(Qemu::start(&node.socket(&format!("vm{n}"))).unwrap());
    }
    let is_watching = |node: &Node| {
        let snapshot = node.ledger().snapshot();
        snapshot.instances.values().filter(|it| it.state == State::Watching).count()
    };
    node.until("all are watched", || is_watching(&node) == MANY).await;
    // Here the fakes' own ends are counted too: a listener and a connection each. A name that was
    // signalled twice is asked once more who serves it, for a moment.
    node.until("three each", || count("fd") <= descriptors + 3 * MANY + 8).await;
    assert!(count("task") <= threads + 4, "threads were made");
    for qemu in all {
        qemu.say(OFF).await;
        qemu.end().await;
    }
    node.until("all are judged", || node.verdicts() == 1 + MANY as u64).await;
    node.until("no descriptor is left", || count("fd") <= descriptors).await;
    node.stop().await;
}

// R13
#[tokio::test]
async fn a_storm_of_short_lives_leaves_no_descriptor() {
    let _alone = ALONE.lock().await;
    let mut node = Node::settled().await;
    let before = count("fd");
    for n in 0..200_u64 {
        let qemu = Qemu::start(&node.socket("vm1")).unwrap();
        node.watching("vm1").await;
        qemu.kill().await;
        node.verdict("vm1").await;
        assert_eq!(node.verdicts(), n + 2);
    }
    node.until("no descriptor is left", || count("fd") <= before).await;
    let quiet = timeout(Duration::from_millis(1), node.verdict("vm1")).await;
    assert!(quiet.is_err(), "one verdict too many");
}
