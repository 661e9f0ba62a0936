// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the owner of a VM does to his tree of datasets between two syncs: both nodes have the same in the end.

use daemon::command::Program;
use migration_core::intent::End;
use migration_core::protocol::{State, What};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use simnode::in_process::InProcess;
use simnode::node::Zfs;

use crate::net::Fault;
use crate::world::{VM, World, finish};

/// Random trees in one run; `TREES=500` tries more, `TREES_FROM=501` others.
const TREES: u64 = 64;
/// Most edits between two syncs.
const EDITS: usize = 8;

fn data() -> String {
    format!("zones/{VM}/data")
}

/// Runs `zfs` on the source as the owner does: what it refuses he does not do.
fn tries(world: &World, line: &str) -> bool {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    InProcess::new(&world.source.programs.node).answer(Program::Zfs, &words).status == 0
}

/// The names below what is delegated, and their snapshots that are none of the migration's.
fn names(world: &World) -> (Vec<String>, Vec<String>) {
    let all = world.source.programs.node.datasets().unwrap();
    let top = format!("{}/", data());
    let names = all.sorted().into_iter().map(|row| row.name.clone());
    let (snapshots, datasets): (Vec<String>, Vec<String>) =
        names.filter(|name| name.starts_with(&top)).partition(|name| name.contains('@'));
    (datasets, snapshots.into_iter().filter(|name| !name.contains("@vm-migration-")).collect())
}

/// One edit; what it is called.
fn edits(world: &World, rng: &mut StdRng, nth: usize) -> String {
    let (datasets, snapshots) = names(world);
    let place = |rng: &mut StdRng| {
        let at = rng.random_range(0..=datasets.len());
        let parent = datasets.get(at).cloned().unwrap_or_else(data);
        // A few names, so that they are used again.
        format!("{parent}/{}", ["a", "b", "c", "d"][rng.random_range(0..4)])
    };
    let any = |rng: &mut StdRng, of: &[String]| match of.len() {
        0 => data(),
        len => of[rng.random_range(0..len)].clone(),
    };
    let line = match rng.random_range(0..12) {
        0..3 => format!("create {}", place(rng)),
        3 => format!("snapshot {}@s{nth}", any(rng, &datasets)),
        4 => format!("snapshot -r {}@r{nth}", any(rng, &datasets)),
        5 if !snapshots.is_empty() => format!("clone {} {}", any(rng, &snapshots), place(rng)),
        6 => format!("promote {}", any(rng, &datasets)),
        7..9 => format!("rename {} {}", any(rng, &datasets), place(rng)),
        9 => format!("destroy -r {}", any(rng, &datasets)),
        10 => format!("destroy {}", any(rng, &snapshots)),
        _ => {
            let (one, two, aside) = (any(rng, &datasets), any(rng, &datasets), place(rng));
            let swaps = [(&one, &aside), (&two, &one), (&aside, &two)];
            let done = swaps.map(|(from, to)| tries(world, &format!("rename {from} {to}")));
            return format!("swap {one} {two}: {done:?}");
        }
    };
    if data() == line.rsplit(' ').next().unwrap_or_default() {
        return String::new(); // of what is delegated itself he cannot do this
    }
    let done = tries(world, &line);
    if done && line.starts_with("create") {
        let dataset = line.trim_start_matches("create ");
        let node = &world.source.programs.node;
        node.write_file(dataset, "file", &[nth as u8; 100]).unwrap();
    }
    format!("{line}: {done}")
}

/// A tree, edits, a sync; edits, the last sync, perhaps cut before: both are the same then.
async fn tree(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let world = World::new(Zfs::Illumos).await;
    let is_encrypted = rng.random_range(0..3) == 0;
    if is_encrypted {
        world.source.programs.encrypt();
        world.target.programs.encrypt();
    }
    let mut told = vec![format!("seed {seed}, encrypted: {is_encrypted}")];
    for number in 1..=3_u32 {
        for nth in 0..rng.random_range(1..=EDITS) {
            told.push(edits(&world, &mut rng, nth + 100 * number as usize));
        }
        told.push(format!("sync {number}"));
        let rehearsed = world.rehearse(number).await.unwrap(); // M230
        assert_eq!(rehearsed, State::Done, "{told:#?}");
        if rng.random_range(0..3) == 0 {
            world.net.fails(Fault::Cut(rng.random_range(0..4000)));
        }
        let mut sent = world.send(End::Source, number).await.unwrap();
        for _ in 0..9 {
            if sent == State::Done {
                break;
            }
            told.push(format!("{sent:?}"));
            sent = world.send(End::Source, number).await.unwrap();
        }
        assert_eq!(sent, State::Done, "{told:#?}");
        for end in [End::Source, End::Target] {
            let seen = world.observe(end).await.unwrap().node.copy.unwrap();
            let has = seen.snapshots.iter().any(|it| it.number == number);
            assert!(has && !seen.partial, "{end}: {seen:?} {told:#?}");
        }
        for end in [End::Source, End::Target] {
            world.done(end, What::Forget { keep: Some(number) }).await;
        }
    }
    finish(&world, 4).await;
    let (source, target) = (world.source.snapshots(), world.target.snapshots());
    let shape = |all: &[(String, simnode::trees::Tree, crate::world::Snapshots)]| {
        let of = |(name, _, snapshots): &(String, _, crate::world::Snapshots)| {
            let names = snapshots.iter().map(|(name, (guid, _))| format!("{name}={guid}"));
            format!("{name}: {}", names.collect::<Vec<_>>().join(" "))
        };
        all.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(shape(&source), shape(&target), "{told:#?}");
    assert!(source == target, "the contents differ: {told:#?}");
}

#[tokio::test(start_paused = true)] // M179
async fn whatever_an_owner_does_to_his_tree_between_two_syncs_both_nodes_have_the_same() {
    let from = std::env::var("TREES_FROM").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = std::env::var("TREES").ok().and_then(|text| text.parse().ok()).unwrap_or(TREES);
    // One of which a clone was promoted, and another one made of what it took along, whose origin is then in two places.
    for seed in std::iter::once(102).chain(from..from + count) {
        tree(seed).await;
    }
}
