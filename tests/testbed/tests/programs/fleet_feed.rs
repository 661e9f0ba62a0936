// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A small feed on real servers; `testbed fleet-feed` is the large one.

use std::path::PathBuf;

use testbed::fleet_feed::{Options, feed};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn the_feed_shows_every_node_whatever_is_killed() {
    if let Some(why) = rig::nats::why_not() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_testbed")));
    let options = Options { nodes: 10, vms: 5, seconds: 20, seed: Some(1), program };
    let passed = feed(&options).await.unwrap_or_else(|why| panic!("{why:#}"));
    assert!(
        passed.changes.events > 100 && passed.deaths.killed.iter().sum::<usize>() > 3,
        "{passed}"
    );
}
