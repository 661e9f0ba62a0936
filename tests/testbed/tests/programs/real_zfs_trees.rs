// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Random trees of datasets that their owner edits between syncs, on real ZFS: two zfs-fuse pools, migration-service and
//! the agents as they are. The network is cut now and then. Skipped with a word where zfs-fuse does not run.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use migration_core::intent::End;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sdc_clients::migrations::{Migration, Migrations, Options};
use testbed::explore::disk::{Damage, Disk};
use testbed::explore::points::Points;
use testbed::explore::world::{Shape, World};
use testbed::moving::subject::VM;
use tokio::time::Instant;

/// Random trees in one run; `TREES=40` tries more, `TREES_FROM=41` others.
const TREES: u64 = 2;
/// Most edits between two syncs.
const EDITS: usize = 8;
/// What is in two pools of so many bytes is little.
const POOL: u64 = 256 << 20;
/// An operation has ended by then, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// So often a command is given again that a cut has made fail.
const AGAIN: usize = 4;

fn data() -> String {
    format!("zones/{VM}/data")
}

/// Datasets and snapshots below what is delegated that are none of the migration's, each with the number that it keeps
/// wherever it is received.
fn listed(disk: &Disk) -> Vec<(String, String)> {
    let all = disk.zfs(&format!("get -Hp -r -o name,value guid {}", data())).unwrap();
    let rows = all.lines().filter_map(|line| line.split_once('\t'));
    let is_owners = |(name, _): &(&str, &str)| !name.contains("@vm-migration-") && *name != data();
    // A dataset has another number in each pool.
    let known = |(name, guid): (&str, &str)| {
        (name.to_owned(), if name.contains('@') { guid.to_owned() } else { String::new() })
    };
    let mut rows: Vec<(String, String)> = rows.filter(is_owners).map(known).collect();
    rows.sort();
    rows
}

/// One edit; what it is called. What `zfs` refuses is not done.
fn edit(disk: &Disk, rng: &mut StdRng, nth: usize) -> String {
    let (snapshots, datasets): (Vec<String>, Vec<String>) =
        listed(disk).into_iter().map(|(name, _)| name).partition(|name| name.contains('@'));
    let any = |rng: &mut StdRng, of: &[String]| match of.len() {
        0 => data(),
        len => of[rng.random_range(0..len)].clone(),
    };
    let place = |rng: &mut StdRng| {
        let parents: Vec<String> = datasets.iter().cloned().chain([data()]).collect();
        // A few names, so that they are used again.
        format!("{}/{}", any(rng, &parents), ["a", "b", "c", "d"][rng.random_range(0..4)])
    };
    let lines = match rng.random_range(0..12) {
        0..3 => vec![format!("create {}", place(rng))],
        3 => vec![format!("snapshot {}@s{nth}", any(rng, &datasets))],
        4 => vec![format!("snapshot -r {}@r{nth}", any(rng, &datasets))],
        5 if !snapshots.is_empty() => {
            vec![format!("clone {} {}", any(rng, &snapshots), place(rng))]
        }
        6 => vec![format!("promote {}", any(rng, &datasets))],
        7..9 => vec![format!("rename {} {}", any(rng, &datasets), place(rng))],
        9 => vec![format!("destroy -r {}", any(rng, &datasets))],
        10 => vec![format!("destroy {}", any(rng, &snapshots))],
        _ => {
            let (one, two, aside) = (any(rng, &datasets), any(rng, &datasets), place(rng));
            let swaps = [(&one, &aside), (&two, &one), (&aside, &two)];
            swaps.map(|(from, to)| format!("rename {from} {to}")).to_vec()
        }
    };
    let mut told = Vec::new();
    for line in lines {
        // Of what is delegated itself he cannot do this.
        if line.split(' ').any(|word| word == data()) {
            continue;
        }
        let done = disk.zfs(&line).is_ok();
        if let (true, Some(dataset)) = (done, line.strip_prefix("create ")) {
            let inside = dataset.strip_prefix(&format!("zones/{VM}/")).unwrap();
            fs::write(disk.path(inside).join("file"), vec![nth as u8; 50_000]).unwrap();
        }
        told.push(format!("{line}: {done}"));
    }
    told.join(", ")
}

/// Gives a command until it has succeeded: what a cut has made fail is given again. Returns the record.
async fn done(world: &World, client: &Migrations, verb: &str, told: &[String]) -> Migration {
    let to = Some(world.cn(End::Target).uuid.to_string());
    let mut last = None;
    for _ in 0..AGAIN {
        let target = to.clone().filter(|_| verb == "begin");
        let options = Options { override_server_uuid: target, ..Options::default() };
        client.act(VM, verb, &options).await.unwrap();
        let rested = world.rested(Duration::from_millis(100));
        let record = tokio::time::timeout(PATIENCE, rested).await.expect("it does not end");
        let record = record.unwrap().unwrap();
        if ["paused", "successful"].contains(&record.state.as_str()) {
            return record;
        }
        last = Some(record);
    }
    let last = last.map(|it| (it.phase, it.state, it.error));
    panic!("{verb}: {last:?} {told:#?}\n{}", world.judge.notes().join("\n"));
}

/// A tree: edits, a sync, edits, a sync, edits, a switch; both nodes have the same then.
async fn tree(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let pools = rig::start(2, POOL).unwrap().into_iter();
    let disks: Vec<Arc<Disk>> = pools.map(|cn| Arc::new(Disk::new(cn).unwrap())).collect();
    let (source, target) = (Arc::clone(&disks[0]), Arc::clone(&disks[1]));
    let dir = testbed::place::place().unwrap();
    let on = [&source, &target].map(|disk| Some(Arc::clone(disk)));
    let world = World::on(dir.path(), &Points::default(), Shape::default(), on).await.unwrap();
    let client = world.migrations().unwrap();
    let mut told = vec![format!("seed {seed}")];
    done(&world, &client, "begin", &told).await;
    for (number, verb) in ["sync", "sync", "switch"].into_iter().enumerate() {
        for nth in 0..rng.random_range(1..=EDITS) {
            told.push(edit(&source, &mut rng, nth + 100 * number));
        }
        let mut cut =
            (rng.random_range(0..3) == 0).then(|| Damage::Cut(rng.random_range(0..60_000)));
        told.push(format!("{verb}, {cut:?}"));
        source.set_network(Box::new(move || cut.take()));
        done(&world, &client, verb, &told).await;
    }
    let (ours, theirs) = (listed(&source), listed(&target));
    assert_eq!(ours, theirs, "{told:#?}");
    // What is delegated stays unmounted until the zone boots, so it is lent to the node to be read.
    target.zfs(&format!("inherit zoned {}", data())).unwrap();
    for name in target.zfs(&format!("list -H -o name -r {}", data())).unwrap().lines() {
        target.zfs(&format!("mount {name}")).unwrap();
    }
    for (name, _) in ours.iter().filter(|(name, _)| !name.contains('@')) {
        let inside = name.strip_prefix(&format!("zones/{VM}/")).unwrap();
        let [ours, theirs] =
            [&source, &target].map(|disk| fs::read(disk.path(inside).join("file")).ok());
        assert!(ours == theirs, "{name} has other contents: {told:#?}");
    }
    assert_eq!(world.judge.faults(), Vec::<String>::new(), "{told:#?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M179
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn whatever_an_owner_does_to_his_tree_between_two_syncs_real_zfs_has_the_same_on_both_nodes()
{
    if let Some(why) = rig::why_not() {
        eprintln!("skipped: {why}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let from = number("TREES_FROM").unwrap_or(1);
    for seed in from..from + number("TREES").unwrap_or(TREES) {
        let began = Instant::now();
        tree(seed).await;
        eprintln!("tree {seed}: {:.1} s", began.elapsed().as_secs_f64());
    }
}
