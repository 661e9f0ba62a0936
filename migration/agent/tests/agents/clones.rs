// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Clones that the owner of a VM makes below what is delegated to it.

use migration_core::intent::End;
use migration_core::protocol::State;
use simnode::node::Zfs;

use crate::net::Fault;
use crate::world::{VM, World, finish};

/// A chain of three whose names are in the other order than their origins, and a clone whose origin is deeper than it.
const MADE: [&str; 11] = [
    "create DATA/z",
    "snapshot DATA/z@1",
    "clone DATA/z@1 DATA/m",
    "snapshot DATA/m@1",
    "clone DATA/m@1 DATA/a",
    "create DATA/y",
    "create DATA/y/deep",
    "create DATA/y/deep/er",
    "snapshot DATA/y/deep/er@1",
    "create DATA/b",
    "clone DATA/y/deep/er@1 DATA/b/c",
];
/// The ends of both are the origins then.
const PROMOTED: [&str; 3] = ["promote DATA/a", "promote DATA/b/c", "snapshot -r DATA@2"];
const CLONES: [&str; 8] = ["z", "m", "a", "y", "y/deep", "y/deep/er", "b", "b/c"];

fn does(world: &World, lines: &[&str]) {
    for line in lines {
        world.source.programs.zfs(&line.replace("DATA", &format!("zones/{VM}/data")));
    }
}

/// Sends until it is done. Returns how often it failed.
async fn sends(world: &World, number: u32) -> usize {
    let mut said = Vec::new();
    while said.len() < 3 {
        match world.send(End::Source, number).await.unwrap() {
            State::Done => return said.len(),
            failed => said.push(failed),
        }
    }
    panic!("sync {number} does not end: {said:?}");
}

#[tokio::test(start_paused = true)] // M179
async fn clones_arrive_as_clones_whatever_their_names_promoted_encrypted_and_cut_once() {
    for is_encrypted in [false, true] {
        for cut in [None, Some(500), Some(3000)] {
            let world = World::new(Zfs::Illumos).await;
            if is_encrypted {
                world.source.programs.encrypt();
                world.target.programs.encrypt();
            }
            let mut failed = 0;
            for (number, lines) in [(1, &MADE[..]), (2, &PROMOTED[..])] {
                does(&world, lines);
                if let Some(at) = cut {
                    world.net.fails(Fault::Cut(at));
                }
                failed += sends(&world, number).await;
                for name in CLONES {
                    let at = format!("zones/{VM}/data/{name}");
                    let origins =
                        (world.source.get("origin", &at), world.target.get("origin", &at));
                    assert_eq!(origins.0, origins.1, "{number} {name} {is_encrypted} {cut:?}");
                }
            }
            assert_eq!(failed > 0, cut.is_some(), "{is_encrypted} {cut:?}");
            let origin =
                |name: &str| world.target.get("origin", &format!("zones/{VM}/data/{name}"));
            assert!(origin("m").ends_with("/data/a@1") && origin("y/deep/er").ends_with("/b/c@1"));
            finish(&world, 3).await;
            assert_eq!(world.source.snapshots(), world.target.snapshots());
        }
    }
}
