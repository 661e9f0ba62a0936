// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How signals of one VM are grouped: the first is read at once, those within the gap are one more
//! reading.

use std::time::Duration;

use crate::common::world::World;
use crate::common::{A, FakeNode};
use serde_json::{Value, json};
use vm_model::stale::ZoneFile;

const TAGS: &str = "/zones/7992e853-8812-4060-8b15-fff23517df24/config/tags.json";
/// Longer than a gap, shorter than the last repeated reading after a kernel event.
const AFTER: Duration = Duration::from_millis(30);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn world() -> (FakeNode, World) {
    let node = FakeNode::one();
    let mut world = World::start(&node, node.config()).await;
    world.later(AFTER).await;
    world.events();
    (node, world)
}

#[tokio::test(start_paused = true)]
async fn first_change_is_published_at_once_and_the_second_after_the_gap() {
    let (node, mut world) = world().await;
    for gap in 0..10 {
        for half in 0..2 {
            let tags = json!({ "gap": gap, "half": half });
            node.write(TAGS, &tags.to_string());
            world.file_event(A, ZoneFile::Config);
            let took = world.until(A, ms(12), |vm| vm["tags"] == tags).await;
            assert!(half == 1 || took < ms(2), "{took:?}");
            world.later(ms(gap)).await;
        }
        assert_eq!(world.events().len(), 2);
        world.later(ms(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reads_a_burst_once_per_gap() {
    let (node, mut world) = world().await;
    let loads = || world.status.view().counters.loads;
    let before = loads();
    for nth in 0..100 {
        node.write(TAGS, &json!({ "nth": nth }).to_string());
        world.file_event(A, ZoneFile::Config);
        world.later(ms(1)).await;
    }
    world.later(AFTER).await;
    assert!(loads() - before <= 12, "{} readings in 100 ms", loads() - before);
    let last = world.events().pop().unwrap();
    assert_eq!(last["vm"]["tags"], json!({ "nth": 99 }));
}

#[tokio::test(start_paused = true)]
async fn shows_a_dataset_and_a_file_that_change_together() {
    let (node, mut world) = world().await;
    for gap in 0..10 {
        node.write(TAGS, &json!({ "gap": gap }).to_string());
        world.file_event(A, ZoneFile::Config);
        world.later(ms(gap)).await;
        let gib = 20 + gap;
        node.set_quota(A, gib);
        world.zfs_event(&format!("zones/{A}"), "set");
        world.later(AFTER).await;
        let last = world.events().pop().unwrap();
        assert_eq!(last["vm"]["tags"], json!({ "gap": gap }), "{last}");
        assert_eq!(last["vm"]["quota"], gib, "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_again_when_the_event_precedes_the_kernel_state() {
    let (node, mut world) = world().await;
    for late in 0..9 {
        node.set_zone(A, "running", Some(5));
        world.zone_event(A, "running", 5);
        world.later(Duration::from_secs(3)).await;
        world.events();
        world.zone_event(A, "uninitialized", 5);
        world.later(ms(late)).await;
        node.set_zone(A, "installed", None);
        world.later(AFTER).await;
        let events = world.events();
        let [event] = &events[..] else { panic!("{events:#?}") };
        assert_eq!(event["vm"]["state"], "stopped", "{event}");
    }
}

#[tokio::test(start_paused = true)] // F80
async fn truncated_file_emits_no_event_before_it_is_written() {
    let (node, mut world) = world().await;
    for nth in 0..5 {
        node.write_now(TAGS, "");
        world.file_event(A, ZoneFile::Config);
        world.later(ms(5)).await;
        node.write_now(TAGS, &json!({ "nth": nth }).to_string());
        world.file_event(A, ZoneFile::Config);
        world.until(A, ms(500), |vm| vm["tags"] == json!({ "nth": nth })).await;
        world.later(ms(50)).await;
        let events = world.events();
        assert!(events.iter().all(|event| event["vm"]["tags"] != json!({})), "{events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_different_vms_have_the_order_of_their_signals() {
    let node = FakeNode::new();
    let names = [0, 1, 2, 3, 4, 5].map(|n| format!("{n}992e853-8812-4060-8b15-fff23517df24"));
    for name in &names {
        node.add_zone(name, "running", Some(5), "vm");
    }
    let mut world = World::start(&node, node.config()).await;
    for turn in 0..60_usize {
        // Another order in each turn, and one kind of change: their readings take about as long.
        let order: Vec<&String> = (0..6).map(|n| &names[(n * 5 + turn) % 6]).collect();
        for name in &order {
            match turn % 3 {
                0 => {
                    let tags = json!({ "turn": turn }).to_string();
                    node.write_now(&format!("/zones/{name}/config/tags.json"), &tags);
                    world.file_event(name, ZoneFile::Config);
                }
                1 => {
                    node.set_zone(name, "running", Some(100 + turn as i64));
                    world.zone_event(name, "running", 5);
                }
                _ => {
                    node.set_quota(name, turn as u64 + 1);
                    world.zfs_event(&format!("zones/{name}"), "set");
                }
            }
        }
        let is_last = |vm: &Value| match turn % 3 {
            0 => vm["tags"]["turn"] == turn,
            1 => vm["zoneid"] == 100 + turn,
            _ => vm["quota"] == turn + 1,
        };
        for name in &order {
            world.until(name, Duration::from_secs(20), is_last).await;
        }
        world.later(AFTER).await;
        let events = world.events();
        let mut told: Vec<&Value> = events.iter().map(|event| &event["zonename"]).collect();
        told.dedup();
        assert_eq!(told, order, "turn {turn}");
    }
}
