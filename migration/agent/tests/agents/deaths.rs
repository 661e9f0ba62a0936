// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An agent dies before and after each thing that it does to its node, and its successor goes on.

use std::time::Duration;

use migration_core::intent::End;
use migration_core::protocol::{State, What};
use simnode::node::Zfs;

use crate::world::{Cn, VM, World};

/// A sync while the VM runs, the switch's orders, and the restoration of quotas: what the service orders, given again
/// until it is done.
fn story(world: &World) -> Vec<(End, What)> {
    let (source, target) = (world.source.uuid, world.target.uuid);
    vec![
        (End::Target, What::Hold),
        (End::Target, What::Receive { from: source, image: None }),
        (End::Source, What::Send { number: 1, to: target, mbps: None }),
        (End::Source, What::RestoreQuota),
        (End::Target, What::RestoreQuota),
        (End::Source, What::Autoboot { on: false }),
        (End::Source, What::Stop),
        (End::Target, What::Receive { from: source, image: None }),
        (End::Source, What::Send { number: 2, to: target, mbps: None }),
        (End::Source, What::RestoreQuota),
        (End::Target, What::RestoreQuota),
        (End::Source, What::Hold),
        (End::Source, What::Hide),
        (End::Source, What::Forget { keep: Some(2) }),
        (End::Target, What::Forget { keep: Some(2) }),
        (End::Target, What::Show),
        (End::Target, What::Release),
        (End::Target, What::Boot),
    ]
}

/// Gives these orders until each is done; one agent dies at its step, and its node is judged then. Returns true if it
/// did.
async fn orders(
    world: &mut World,
    dies: End,
    orders: Vec<(End, What)>,
    judge: impl Fn(&Cn),
) -> bool {
    let mut has_died = false;
    for (end, order) in orders {
        loop {
            let steps = world.cn(dies).programs.steps.clone();
            let done = tokio::select! {
                biased;
                () = steps.stopped.notified() => None,
                done = world.order(end, order.clone()) => Some(done),
            };
            match done {
                Some(Ok(State::Done)) => break,
                Some(Ok(State::Failed { fatal: true, error })) => panic!("{order:?}: {error}"),
                Some(_) => {
                    // The service waits, and gives the target's order again too.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                None => {
                    has_died = true;
                    world.cn(dies).programs.steps.stop_at(None);
                    judge(world.cn(dies));
                    let net = world.net.clone();
                    let cn = match dies {
                        End::Source => &mut world.source,
                        End::Target => &mut world.target,
                    };
                    cn.kill(&net).await;
                    cn.start(&net).await;
                }
            }
            if matches!(order, What::Send { .. }) {
                world
                    .done(End::Target, What::Receive { from: world.source.uuid, image: None })
                    .await;
            }
        }
    }
    has_died
}

#[tokio::test(start_paused = true)] // M43
async fn an_agent_may_die_before_and_after_everything_that_it_does() {
    for dies in [End::Source, End::Target] {
        let mut points = 0;
        // Every third point, others for each end; all of them take two minutes.
        let first = if dies == End::Source { 0 } else { 1 };
        for half in (first..).step_by(3) {
            let mut world = World::new(Zfs::Illumos).await;
            let root = format!("zones/{VM}");
            let quota = world.tight_quota();
            world.cn(dies).programs.steps.stop_at(Some(half));
            let all = story(&world);
            let has_died = orders(&mut world, dies, all, |_| ()).await;
            for cn in [&world.source, &world.target] {
                assert_eq!(cn.get("quota", &root), quota, "{dies} dies at {half}");
            }
            let source = world.observe(End::Source).await.unwrap().node;
            let target = world.observe(End::Target).await.unwrap().node;
            assert!(source.held && !target.held, "{dies} dies at {half}");
            let (source, target) = (source.copy.unwrap(), target.copy.unwrap());
            assert!(source.is_off() && target.running && !target.hidden, "{dies} dies at {half}");
            assert_eq!(source.snapshots, target.snapshots, "{dies} dies at {half}");
            if !has_died {
                break;
            }
            points += 1;
        }
        assert!(points > 6, "{dies} died at {points} points only");
    }
}

/// What the node would mount of what is delegated, if it lost power now.
fn mounts_nothing_of_the_tenants(cn: &Cn, about: &str) {
    let top = format!("zones/{VM}/data");
    let rows = cn.programs.zfs("list -H -r -o name,zoned,canmount,mountpoint zones");
    for row in rows.lines().filter(|row| row.starts_with(&top)) {
        let [name, zoned, mounts, place] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let is_safe = zoned == "on" || mounts != "on" || place == format!("/{name}");
        assert!(is_safe, "{about}: {row}");
    }
}

#[tokio::test(start_paused = true)] // M43, M91
async fn a_target_that_dies_while_it_changes_what_is_the_zones_mounts_nothing_of_it() {
    let (top, was, is) =
        (format!("zones/{VM}/data"), format!("zones/{VM}/data/was"), format!("zones/{VM}/data/is"));
    for is_encrypted in [false, true] {
        // Every third point, others for each.
        for half in (usize::from(is_encrypted)..).step_by(3) {
            let mut world = World::new(Zfs::Illumos).await;
            if is_encrypted {
                world.source.programs.encrypt();
                world.target.programs.encrypt();
            }
            world.source.programs.zfs(&format!("create {was}"));
            world.source.programs.zfs(&format!("create {was}/below"));
            world.source.programs.set(&was, "mountpoint", "/opt/custom/smf");
            let (source, target) = (world.source.uuid, world.target.uuid);
            let sync = |number| {
                [
                    (End::Target, What::Receive { from: source, image: None }),
                    (End::Source, What::Send { number, to: target, mbps: None }),
                    (End::Target, What::RestoreQuota),
                ]
            };
            let about = format!("encrypted: {is_encrypted}, dies at {half}");
            let judge = |cn: &Cn| mounts_nothing_of_the_tenants(cn, &about);
            world.target.programs.steps.stop_at(Some(half).filter(|_| is_encrypted));
            let mut has_died = orders(&mut world, End::Target, sync(1).into(), judge).await;
            world.source.programs.zfs(&format!("rename {was} {is}"));
            world.target.programs.steps.stop_at(Some(half).filter(|_| !is_encrypted));
            has_died |= orders(&mut world, End::Target, sync(2).into(), judge).await;
            for name in [&top, &is, &format!("{is}/below")] {
                assert_eq!(world.target.get("zoned", name), "on", "{about}");
                assert_eq!(world.target.get("canmount", name), "on", "{about}");
            }
            assert_eq!(world.target.get("mountpoint", &is), "/opt/custom/smf", "{about}");
            assert!(!world.target.contents().contains_key(&was), "{about}");
            if !has_died {
                assert!(half > 20, "{about}: it died at {half} points only");
                break;
            }
        }
    }
}
