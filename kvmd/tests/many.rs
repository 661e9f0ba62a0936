// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R13 of docs/contract/kvmd.md §12, alone in its process: descriptors and threads are counted here.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

mod common;

use common::qemu::{OFF, Qemu};
use common::{Node, count};
use kvmd::ledger::State;

// R13
#[tokio::test]
async fn many_instances_cost_a_descriptor_each() {
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
