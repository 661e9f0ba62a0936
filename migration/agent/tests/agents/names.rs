// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Snapshots that the VM's owner makes in what is delegated to the VM, with names of sync snapshots.

use std::time::Duration;

use migration_core::intent::End;
use migration_core::machine::Copy;
use migration_core::protocol::{State, What};
use simnode::node::Zfs;

use crate::world::{Cn, VM, World, finish};

/// Names as the owner may give them; `_` is a space.
const NAMES: [&str; 8] = [
    "vm-migration-1",
    "vm-migration-2",
    "vm-migration-99",
    "vm-migration-4294967295",
    "vm-migration-0",
    "vm-migration-00",
    "vm-migration-18446744073709551616",
    "vm-migration-9_a",
];

fn data() -> String {
    format!("zones/{VM}/data")
}

/// The snapshots on a node with names like those of syncs.
fn named_so(cn: &Cn) -> Vec<String> {
    let all = cn.programs.zfs("list -H -o name -t snapshot -r zones");
    let named = all.lines().filter(|name| name.contains("@vm-migration-"));
    named.map(|name| name.replace(' ', "_")).collect()
}

async fn seen(world: &World, end: End) -> Copy {
    world.observe(end).await.unwrap().node.copy.unwrap()
}

fn numbers(copy: &Copy) -> Vec<u32> {
    copy.snapshots.iter().map(|it| it.number).collect()
}

/// Makes the owner's snapshots, one of them held and one with a clone, and returns them.
fn make(cn: &Cn) -> Vec<String> {
    let at = data();
    for name in NAMES {
        cn.programs.zfs_named(&format!("snapshot {at}@{name}"));
    }
    cn.programs.zfs(&format!("hold mine {at}@vm-migration-2"));
    cn.programs.zfs(&format!("clone {at}@vm-migration-99 {at}/clone"));
    cn.programs.zfs(&format!("create {at}/child"));
    cn.programs.zfs(&format!("snapshot {at}/child@vm-migration-7"));
    named_so(cn)
}

#[tokio::test(start_paused = true)] // M110
async fn what_the_owner_names_as_a_sync_snapshot_stays_and_stops_nothing() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let made = make(&world.source);
        assert_eq!(made.len(), NAMES.len() + 1);
        let before = seen(&world, End::Source).await;
        assert!(numbers(&before).is_empty() && !before.partial, "{before:?}");
        for number in [3, 4] {
            match number {
                3 => assert_eq!(world.send(End::Source, number).await.unwrap(), State::Done),
                _ => finish(&world, number).await,
            }
            for end in [End::Source, End::Target] {
                world.done(end, What::Forget { keep: Some(number) }).await;
                let copy = seen(&world, end).await;
                assert_eq!(numbers(&copy), [number], "{zfs:?} {end}: {copy:?}");
                assert!(!copy.partial, "{zfs:?} {end}: {copy:?}");
            }
        }
        for end in [End::Source, End::Target] {
            world.done(end, What::Forget { keep: None }).await;
            let copy = seen(&world, end).await;
            assert!(copy.snapshots.is_empty() && !copy.partial, "{zfs:?} {end}: {copy:?}");
            assert_eq!(named_so(world.cn(end)), made, "{zfs:?} {end}");
        }
    }
}

#[tokio::test(start_paused = true)] // M110
async fn a_number_that_the_owner_takes_first_is_told_and_another_one_is_sent() {
    let world = World::new(Zfs::Illumos).await;
    world.source.programs.zfs(&format!("snapshot {}@vm-migration-1", data()));
    let failed = world.send(End::Source, 1).await.unwrap();
    assert!(matches!(failed, State::Failed { fatal: false, .. }), "{failed:?}");
    let copy = seen(&world, End::Source).await;
    assert!(copy.has_taken(1) && !copy.has_taken(2), "{copy:?}");
    assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
    assert_eq!(named_so(&world.source).len(), 3, "nothing was dropped");
}

#[tokio::test(start_paused = true)] // M110
async fn the_name_of_a_snapshot_that_the_root_has_is_not_enough() {
    let world = World::new(Zfs::Illumos).await;
    let at = data();
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    world.source.programs.zfs(&format!("create {at}/child"));
    world.source.programs.zfs(&format!("snapshot {at}/child@vm-migration-1"));
    finish(&world, 2).await;
    for end in [End::Source, End::Target] {
        world.done(end, What::Forget { keep: Some(2) }).await;
        assert!(named_so(world.cn(end)).contains(&format!("{at}/child@vm-migration-1")), "{end}");
        assert_eq!(numbers(&seen(&world, end).await), [2], "{end}");
    }
    // The VM is on the target now, and its owner makes it anew.
    world.done(End::Source, What::Hide).await;
    world.done(End::Target, What::Show).await;
    world.target.programs.zfs(&format!("destroy {at}@vm-migration-2"));
    world.target.programs.zfs(&format!("snapshot {at}@vm-migration-2"));
    world.done(End::Target, What::Forget { keep: None }).await;
    let left = named_so(&world.target);
    let own = [format!("{at}/child@vm-migration-1"), format!("{at}@vm-migration-2")];
    assert_eq!(left.len(), own.len(), "{left:?}");
    assert!(own.iter().all(|name| left.contains(name)), "{left:?}");
}

#[tokio::test(start_paused = true)] // M110
async fn what_a_cut_clean_up_has_left_is_still_known() {
    for half in 0..8 {
        let mut world = World::new(Zfs::Illumos).await;
        let made = make(&world.source);
        assert_eq!(world.send(End::Source, 3).await.unwrap(), State::Done);
        let steps = world.source.programs.steps.clone();
        steps.stop_at(Some(half));
        tokio::select! {
            biased;
            () = steps.stopped.notified() => {}
            () = world.done(End::Source, What::Forget { keep: None }) => {}
            () = tokio::time::sleep(Duration::from_secs(600)) => panic!("it neither ends nor dies"),
        }
        steps.stop_at(None);
        let net = world.net.clone();
        world.source.kill(&net).await;
        world.source.start(&net).await;
        let copy = seen(&world, End::Source).await;
        let is_done = copy.snapshots.is_empty() && !copy.partial;
        assert_eq!(is_done, named_so(&world.source) == made, "cut at {half}: {copy:?}");
        world.done(End::Source, What::Forget { keep: None }).await;
        assert_eq!(named_so(&world.source), made, "cut at {half}");
    }
}
