// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statement 108: a mirror of the stream stays equal to the list over an hour of random changes,
//! a part of them unannounced. The clock is paused: the hour takes seconds.

use std::time::Duration;

use sdc_clients::Jitter;
use serde_json::{Value, json};
use vm_model::stale::ZoneFile;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

use crate::common::FakeNode;
use crate::common::scene::Mirror;
use crate::common::world::World;

fn listed(world: &World) -> Mirror {
    let snapshot = world.published.snapshot();
    let vm = |vm: &[u8]| serde_json::from_slice::<Value>(vm).unwrap();
    Mirror::of(&snapshot.vms.iter().map(|(_, object)| vm(&object.json())).collect())
}

struct Churn {
    node: FakeNode,
    chance: Jitter,
    turn: u64,
}

impl Churn {
    fn below(&mut self, limit: u64) -> u64 {
        self.chance.uniform(Duration::ZERO, Duration::from_nanos(limit - 1)).as_nanos() as u64
    }

    /// One change of the node; one in five is not announced.
    fn change(&mut self, world: &World) {
        self.turn += 1;
        let uuid = format!("{:08x}-8812-4060-8b15-fff23517df24", self.below(12));
        let zoneid = i64::try_from(self.turn).unwrap();
        let told = self.below(5) > 0;
        let node = self.node.clone();
        let is_there = node.path(&format!("/etc/zones/{uuid}.xml")).exists();
        // The state and the action of the events that announce it; none: a file's.
        let (zone, zfs) = match (self.below(6), is_there) {
            (_, false) => {
                node.add_zone(&uuid, "installed", None, "born");
                (Some(("configured", -1)), Some("create"))
            }
            (0, true) => {
                node.remove(&uuid);
                (Some(("", -1)), Some("destroy"))
            }
            (1, true) => {
                node.set_zone(&uuid, "running", Some(zoneid));
                node.kstat(&uuid, Some((zoneid, 0, 1_767_261_600)));
                (Some(("running", zoneid)), None)
            }
            (2, true) => {
                node.set_zone(&uuid, "installed", None);
                node.kstat(&uuid, None);
                (Some(("uninitialized", zoneid)), None)
            }
            (3, true) => {
                node.set_quota(&uuid, self.turn);
                (None, Some("set"))
            }
            _ => {
                node.tags(&uuid, &json!({"turn": self.turn}));
                (None, None)
            }
        };
        if let Some((state, zoneid)) = zone.filter(|_| told) {
            world.zone_event(&uuid, state, zoneid);
        }
        if let Some(action) = zfs.filter(|_| told) {
            world.zfs_event(&format!("zones/{uuid}"), action);
        }
        if told && zone.is_none() && zfs.is_none() {
            world.file_event(&uuid, ZoneFile::Config);
        }
    }
}

#[tokio::test(start_paused = true)] // S108
async fn mirror_equals_the_list_over_an_hour_of_changes() {
    let node = FakeNode::new();
    node.set_dataset("zones", json!({"mountpoint": "/zones"}));
    let mut world = World::start(&node, node.config()).await;
    let mut churn = Churn { node: node.clone(), chance: Jitter::from_seed(108), turn: 0 };
    let mut mirror = listed(&world);
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(3600) {
        churn.change(&world);
        let pause = Duration::from_millis(1 + churn.below(6000));
        world.later(pause).await;
        world.events().iter().for_each(|event| mirror.take(event));
        assert_eq!(mirror, listed(&world), "turn {}", churn.turn);
    }
    assert!(churn.turn > 1000 && world.seq() > 800, "{} {}", churn.turn, world.seq());
    // When it is quiet, the cache is what a reading of the node gives.
    world.later(Duration::from_secs(400)).await;
    world.events().iter().for_each(|event| mirror.take(event));
    let config = node.config();
    let ctx = Ctx::new(Root::new(config.root), std::sync::Arc::new(node.clone()));
    let fresh = load::objects(&ctx).await.unwrap();
    let fresh = fresh.vms.into_iter().map(Value::Object).collect();
    assert_eq!(mirror, Mirror::of(&fresh));
}
