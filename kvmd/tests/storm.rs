// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! R13 of docs/contract/kvmd.md §12, alone in its process: descriptors are counted here.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

mod common;

use std::time::Duration;

use common::qemu::Qemu;
use common::{Node, count};
use tokio::time::timeout;

// R13
#[tokio::test]
async fn a_storm_of_short_lives_leaves_no_descriptor() {
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
