// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is signalled of one VM within a fold is one event, although what files say is read before
//! the fold ends: at whatever moment of it a second signal comes.

#![allow(clippy::unwrap_used)] // a test may stop at once

mod common;

use std::time::Duration;

use common::FakeNode;
use common::world::World;
use serde_json::{Value, json};
use vminfod::sources::ZoneFile;

const A: &str = "7992e853-8812-4060-8b15-fff23517df24";
const TAGS: &str = "/zones/7992e853-8812-4060-8b15-fff23517df24/config/tags.json";
/// Longer than a fold, shorter than what follows a kernel event that showed nothing.
const AFTER: Duration = Duration::from_millis(30);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn world() -> (FakeNode, World) {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let mut world = World::start(&node, node.config()).await;
    world.later(AFTER).await;
    world.events();
    (node, world)
}

fn one(mut events: Vec<Value>) -> Value {
    assert_eq!(events.len(), 1, "{events:#?}");
    events.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_twice_in_a_fold_is_told_once_as_it_is_at_last() {
    let (node, mut world) = world().await;
    for gap in 0..10 {
        for half in 0..2 {
            let tags = json!({ "gap": gap, "half": half });
            node.write(TAGS, &tags.to_string());
            world.file_event(A, ZoneFile::Config);
            world.later(ms(if half == 0 { gap } else { 30 })).await;
        }
        let event = one(world.events());
        assert_eq!(event["vm"]["tags"], json!({ "gap": gap, "half": 1 }), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dataset_that_changes_in_the_fold_of_a_file_is_in_what_is_told() {
    let (node, mut world) = world().await;
    for gap in 0..10 {
        node.write(TAGS, &json!({ "gap": gap }).to_string());
        world.file_event(A, ZoneFile::Config);
        world.later(ms(gap)).await;
        let gib = 20 + gap;
        node.set_dataset(&format!("zones/{A}"), json!({ "quota": (gib << 30).to_string() }));
        world.zfs_event(&format!("zones/{A}"), "set");
        world.later(AFTER).await;
        let last = world.events().pop().unwrap();
        assert_eq!(last["vm"]["tags"], json!({ "gap": gap }), "{last}");
        assert_eq!(last["vm"]["quota"], gib, "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_is_about_to_store_is_not_read_before_the_fold_ends() {
    let (node, mut world) = world().await;
    for gap in 0..9 {
        node.set_zone(A, "running", Some(5));
        world.zone_event(A, "running", 5);
        world.later(Duration::from_secs(3)).await;
        world.events();
        node.write(TAGS, &json!({ "gap": gap }).to_string());
        world.file_event(A, ZoneFile::Config);
        world.later(ms(gap)).await;
        world.zone_event(A, "uninitialized", 5);
        world.later(ms(9 - gap)).await;
        node.set_zone(A, "installed", None);
        world.later(AFTER).await;
        let event = one(world.events());
        assert_eq!(event["vm"]["tags"], json!({ "gap": gap }), "{event}");
        assert_eq!(event["vm"]["state"], "stopped", "{event}");
    }
}
