// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Datasets on their way.

use migration_core::intent::End;
use migration_core::machine::Protection;
use migration_core::protocol::{State, What};
use simnode::node::Zfs;
use simnode::streams::fault::Effect;

use crate::net::Fault;
use crate::world::{VM, World, finish};

#[tokio::test(start_paused = true)] // R5, R8, R9
async fn a_vm_arrives_with_its_datasets_snapshots_properties_and_quota() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
        world.write("more", 2, 30_000);
        world.source.programs.zfs(&format!("snapshot zones/{VM}@people"));
        world.write("motd", 3, 40_000);
        assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
        let copy = world.observe(End::Target).await.unwrap().node.copy.unwrap();
        assert!(copy.quota_lifted && !copy.partial && copy.is_off());
        finish(&world, 3).await;
        world.are_same();
        let seen = world.observe(End::Source).await.unwrap();
        let theirs = world.observe(End::Target).await.unwrap();
        let (ours, theirs) = (seen.node.copy.unwrap(), theirs.node.copy.unwrap());
        assert!(!ours.running && !ours.quota_lifted && !theirs.quota_lifted);
        assert!(!ours.started_since_snapshot && !theirs.started_since_snapshot);
        assert_eq!(ours.snapshots, theirs.snapshots);
        assert_eq!(world.target.get("quota", &format!("zones/{VM}")), (10u64 << 30).to_string());
    }
}

/// The bytes that a sync puts on the connection.
async fn size_of_a_sync() -> usize {
    let world = World::new(Zfs::Illumos).await;
    world.send(End::Source, 1).await.unwrap();
    *world.net.carried.lock().unwrap()
}

#[tokio::test(start_paused = true)] // M44, M13, M14, R11
async fn a_stream_that_is_cut_at_any_byte_goes_on_or_begins_again() {
    let whole = size_of_a_sync().await;
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        for tenth in 0..10 {
            let world = World::new(zfs).await;
            let at = whole * tenth / 10 + 1;
            world.net.fails(Fault::Cut(at));
            let State::Failed { error, fatal } = world.send(End::Source, 1).await.unwrap() else {
                panic!("cut at {at}: not noticed");
            };
            assert!(!fatal, "cut at {at}: {error}");
            let copy = world.observe(End::Target).await.unwrap().node.copy.unwrap();
            assert!(copy.snapshots.is_empty() || copy.partial, "cut at {at}");
            let before = *world.net.carried.lock().unwrap();
            assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done, "cut at {at}");
            let again = *world.net.carried.lock().unwrap() - before;
            if zfs == Zfs::Illumos && tenth > 5 {
                assert!(again < whole * 3 / 4, "cut at {at}: {again} of {whole} were sent again");
            }
            finish(&world, 2).await;
            world.are_same();
        }
    }
}

#[tokio::test(start_paused = true)] // M44
async fn nothing_after_a_flipped_bit_is_taken() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        world.send(End::Source, 1).await.unwrap();
        let first = *world.net.carried.lock().unwrap();
        // Three snapshots in one stream, the bit in the first of them.
        for name in ["a", "b"] {
            world.write(name, 9, 100_000);
            world.source.programs.zfs(&format!("snapshot -r zones/{VM}@{name}"));
        }
        world.write("c", 9, 100_000);
        world.net.fails(Fault::Flip(80_000));
        let failed = world.send(End::Source, 2).await.unwrap();
        assert!(
            matches!(&failed, State::Failed { error, fatal: false } if error.contains("cannot decrypt")),
            "{failed:?}"
        );
        let snapshots = world.target.programs.zfs("list -H -o name -t snapshot -r zones");
        for name in ["@a", "@b", "@vm-migration-2"] {
            assert!(!snapshots.contains(&format!("{VM}{name}")), "{name} is there");
        }
        assert!(*world.net.carried.lock().unwrap() > first);
        finish(&world, 3).await;
        world.are_same();
    }
}

#[tokio::test(start_paused = true)] // M45, R10
async fn a_target_that_is_full_fails_the_sync_with_its_reason_and_quotas_come_back() {
    for zfs in [Zfs::Illumos, Zfs::Fuse] {
        let world = World::new(zfs).await;
        let root = format!("zones/{VM}");
        // The source's quota is in the way: it is nearly used up.
        let before = world.tight_quota();
        world
            .target
            .programs
            .node
            .fail_stream(simnode::streams::fault::End::Receive, 30_000, Effect::NoSpace)
            .unwrap();
        let failed = world.send(End::Source, 1).await.unwrap();
        assert!(
            matches!(&failed, State::Failed { error, fatal: true } if error.contains("out of space")),
            "{failed:?}"
        );
        let seen = world.observe(End::Source).await.unwrap().node.copy.unwrap();
        assert!(seen.quota_lifted && seen.running);
        assert_eq!(world.source.get("quota", &root), "0");
        world.done(End::Source, What::RestoreQuota).await;
        world.done(End::Target, What::RestoreQuota).await;
        assert_eq!(world.source.get("quota", &root), before);
        assert!(!world.observe(End::Source).await.unwrap().node.copy.unwrap().quota_lifted);
        finish(&world, 2).await;
        assert_eq!(world.target.get("quota", &root), before);
        world.are_same();
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_arrives_with_the_guid_of_its_snapshot() {
    let world = World::new(Zfs::Illumos).await;
    let image: uuid::Uuid = "3f57ffe8-47da-11e6-87d5-0f1c9cb6f0a8".parse().unwrap();
    world.source.programs.zfs(&format!("create zones/{image}"));
    world
        .source
        .programs
        .node
        .write_file(&format!("zones/{image}"), "root/bin", &[7; 9000])
        .unwrap();
    world.source.programs.zfs(&format!("snapshot zones/{image}@final"));
    let order = || What::SendImage { image, to: world.target.uuid };
    for _ in 0..2 {
        world
            .done(End::Target, What::Receive { from: world.source.uuid, image: Some(image) })
            .await;
        world.done(End::Source, order()).await;
    }
    let guid = |cn: &crate::world::Cn| cn.get("guid", &format!("zones/{image}@final"));
    assert_eq!(guid(&world.source), guid(&world.target));
}

#[tokio::test(start_paused = true)] // M46, M15, M16
async fn what_the_target_wrote_goes_back_and_old_snapshots_go() {
    let world = World::new(Zfs::Illumos).await;
    world.send(End::Source, 1).await.unwrap();
    finish(&world, 2).await;
    for end in [End::Source, End::Target] {
        world.done(end, What::Forget { keep: Some(2) }).await;
        let numbers: Vec<u32> = world
            .observe(end)
            .await
            .unwrap()
            .node
            .copy
            .unwrap()
            .snapshots
            .iter()
            .map(|it| it.number)
            .collect();
        assert_eq!(numbers, [2]);
    }
    world.done(End::Source, What::Hide).await;
    world.done(End::Target, What::Show).await;
    world.done(End::Target, What::Boot).await;
    let node = &world.target.programs.node;
    node.write_file(&format!("zones/{VM}"), "root/new", &[4; 20_000]).unwrap();
    let seen = world.observe(End::Target).await.unwrap().node.copy.unwrap();
    assert!(seen.running && !seen.autoboot && seen.started_since_snapshot);
    // Nothing is received into a copy that is in use.
    let refused = world.send(End::Source, 3).await.unwrap();
    assert!(
        matches!(&refused, State::Failed { error, .. } if error.contains("is not stopped and hidden (POST /streams, 409)")),
        "{refused:?}"
    );
    world.done(End::Target, What::Stop).await;
    world.done(End::Target, What::Hide).await;
    assert_eq!(world.send(End::Target, 4).await.unwrap(), State::Done);
    world.done(End::Source, What::RestoreQuota).await;
    world.done(End::Target, What::RestoreQuota).await;
    world.done(End::Source, What::Forget { keep: Some(4) }).await;
    world.done(End::Target, What::Forget { keep: Some(4) }).await;
    world.are_same();

    // A source that has nothing in common with the target is never replaced.
    world.source.programs.zfs(&format!("destroy -r zones/{VM}@vm-migration-4"));
    let before = world.source.contents();
    let refused = world.send(End::Target, 5).await.unwrap();
    assert!(matches!(&refused, State::Failed { fatal: true, .. }), "{refused:?}");
    assert!(world.source.contents() == before);
}

#[tokio::test(start_paused = true)]
async fn no_snapshot_is_destroyed_where_the_one_to_keep_is_missing() {
    let world = World::new(Zfs::Illumos).await;
    world.send(End::Source, 1).await.unwrap();
    let before = world.source.snapshots();
    let refused = world.order(End::Source, What::Forget { keep: Some(2) }).await.unwrap();
    assert!(
        matches!(&refused, State::Failed { error, .. } if error.contains("no sync snapshot")),
        "{refused:?}"
    );
    assert!(world.source.snapshots() == before);
}

#[tokio::test(start_paused = true)] // M22
async fn a_copy_that_received_a_part_settles_to_what_all_its_datasets_have() {
    let world = World::new(Zfs::Illumos).await;
    world.send(End::Source, 1).await.unwrap();
    let settled = world.target.snapshots();
    world.write("big", 5, 200_000);
    world.net.fails(Fault::Cut(300_000));
    assert!(matches!(world.send(End::Source, 2).await.unwrap(), State::Failed { .. }));
    assert!(world.observe(End::Target).await.unwrap().node.copy.unwrap().partial);
    world.done(End::Target, What::Settle).await;
    let copy = world.observe(End::Target).await.unwrap().node.copy.unwrap();
    assert!(!copy.partial);
    assert_eq!(copy.snapshots.iter().map(|it| it.number).collect::<Vec<_>>(), [1]);
    assert!(world.target.snapshots() == settled);
}

#[tokio::test(start_paused = true)] // M42, R18
async fn another_order_stops_a_sync_and_the_next_one_goes_on() {
    let world = World::new(Zfs::Illumos).await;
    // The sender's program hangs in the middle.
    let hangs = simnode::streams::fault::End::Send;
    world.source.programs.node.fail_stream(hangs, 200_000, Effect::Hangs).unwrap();
    world.done(End::Target, What::Receive { from: world.source.uuid, image: None }).await;
    let order = What::Send { number: 1, to: world.target.uuid, mbps: None };
    let given = migration_core::protocol::Order {
        about: world.about(End::Source, world.next()),
        wait_ms: 5000,
        order: order.clone(),
        instead: None,
    };
    let doing: migration_core::protocol::Doing =
        world.post(&world.source, "orders", &given).await.unwrap();
    assert_eq!((doing.state, &doing.order), (State::Running, &order));
    let progress = doing.progress.unwrap();
    assert!(progress.current > 0 && progress.total >= 100_000, "{progress:?}");
    let seen = world.observe(End::Source).await.unwrap();
    assert_eq!(seen.doing.unwrap().state, State::Running);
    world.done(End::Source, What::RestoreQuota).await;
    assert_eq!(world.send(End::Source, 1).await.unwrap(), State::Done);
    finish(&world, 2).await;
    world.are_same();
}

#[tokio::test(start_paused = true)] // M44
async fn a_stream_that_hangs_is_given_up() {
    for end in [simnode::streams::fault::End::Send, simnode::streams::fault::End::Receive] {
        let world = World::new(Zfs::Illumos).await;
        let cn =
            if end == simnode::streams::fault::End::Send { &world.source } else { &world.target };
        cn.programs.node.fail_stream(end, 200_000, Effect::Hangs).unwrap();
        let began = tokio::time::Instant::now();
        while world.send(End::Source, 1).await.unwrap() != State::Done {}
        assert!(began.elapsed() >= std::time::Duration::from_secs(300));
        finish(&world, 2).await;
        world.are_same();
    }
}

#[tokio::test(start_paused = true)] // M47, R9
async fn a_snapshot_and_a_child_that_people_make_between_travel_too() {
    let world = World::new(Zfs::Illumos).await;
    world.send(End::Source, 1).await.unwrap();
    world.source.programs.zfs(&format!("create zones/{VM}/more"));
    world.source.programs.zfs(&format!("set quota=1000000 zones/{VM}/data"));
    world.net.fails(Fault::Cut(600));
    assert!(matches!(world.send(End::Source, 2).await.unwrap(), State::Failed { .. }));
    assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
    finish(&world, 3).await;
    world.are_same();
    assert_eq!(world.target.get("quota", &format!("zones/{VM}/data")), "1000000");
}

#[tokio::test(start_paused = true)] // M46
async fn orders_for_the_vm_are_done_once_and_seen() {
    let world = World::new(Zfs::Illumos).await;
    for _ in 0..2 {
        world.done(End::Target, What::Hold).await;
        assert!(world.observe(End::Target).await.unwrap().node.held);
    }
    // The hold is renewed as long as it is not released.
    world.target.programs.holds.lock().unwrap().clear();
    tokio::time::sleep(std::time::Duration::from_secs(31 * 60)).await;
    assert!(world.observe(End::Target).await.unwrap().node.held);
    for _ in 0..2 {
        world.done(End::Target, What::Release).await;
        assert!(!world.observe(End::Target).await.unwrap().node.held);
    }
    for (order, running, hidden, autoboot) in [
        (What::Autoboot { on: false }, true, false, false),
        (What::Stop, false, false, false),
        (What::Boot, true, false, false),
        (What::Autoboot { on: true }, true, false, true),
        (What::Hide, true, true, true),
        (What::Show, true, false, true),
    ] {
        for _ in 0..2 {
            world.done(End::Source, order.clone()).await;
            let seen = world.observe(End::Source).await.unwrap().node.copy.unwrap();
            assert_eq!(
                (seen.running, seen.hidden, seen.autoboot),
                (running, hidden, autoboot),
                "{order:?}"
            );
        }
    }
    world.send(End::Source, 1).await.unwrap();
    let update = serde_json::json!({"alias": "new", "set_tags": {"a": "b"}});
    let update = update.as_object().unwrap().clone();
    let then = serde_json::json!({"cpu_shares": 7}).as_object().unwrap().clone();
    world.done(End::Target, What::BringOver { update, then: vec![then] }).await;
    let object = world.observe(End::Target).await.unwrap().object.unwrap();
    assert_eq!((&object["alias"], &object["tags"]["a"]), (&"new".into(), &"b".into()));
    assert_eq!(object["cpu_shares"], 7);
    // M46: whatever else an update has, nothing of it is done.
    for odd in [
        serde_json::json!({"alias": "odd", "do_not_inventory": false}),
        serde_json::json!({"alias": "odd", "autoboot": true}),
        serde_json::json!({"add_disks": [{"size": 10}], "alias": "odd"}),
        serde_json::json!({"set_routes": {"10.0.0.0/8": "10.0.0.1"}, "alias": "odd"}),
        serde_json::json!({"add_nics": [{"mac": "90:b8:d0:00:00:01", "x": 1}], "alias": "odd"}),
    ] {
        let (good, odd) = (Default::default(), odd.as_object().unwrap().clone());
        for order in [
            What::BringOver { update: odd.clone(), then: vec![] },
            What::BringOver { update: good, then: vec![odd] },
        ] {
            let refused = world.order(End::Target, order).await.unwrap();
            assert!(matches!(refused, State::Failed { fatal: true, .. }), "{refused:?}");
        }
    }
    assert_eq!(world.observe(End::Target).await.unwrap().object.unwrap(), object);
    // M78: the target is as old as its source.
    let created = "2015-02-03T04:05:06.789Z".to_owned();
    for _ in 0..2 {
        world.done(End::Target, What::Date { created: created.clone() }).await;
        let object = world.observe(End::Target).await.unwrap().object.unwrap();
        assert_eq!(object["create_timestamp"], created);
    }
    let odd = "2015; delete -F".to_owned();
    let refused = world.order(End::Target, What::Date { created: odd }).await.unwrap();
    assert!(matches!(refused, State::Failed { .. }), "{refused:?}");

    // A copy that is in use is not deleted.
    let refused = world.order(End::Source, What::Delete).await.unwrap();
    assert!(matches!(refused, State::Failed { .. }));
    assert!(world.observe(End::Source).await.unwrap().node.copy.is_some());
    for _ in 0..2 {
        world.done(End::Target, What::Delete).await;
        assert_eq!(world.observe(End::Target).await.unwrap().node.copy, None);
        assert!(!world.target.programs.zfs("list -H -o name").contains(&format!("zones/{VM}")));
    }
}

#[tokio::test(start_paused = true)] // M78
async fn a_protection_against_deletion_is_set_where_the_streams_brought_its_snapshot() {
    let world = World::new(Zfs::Illumos).await;
    let root = Protection { zoneroot: true, delegated: false };
    world.done(End::Source, What::Protect { of: root }).await;
    let source = world.observe(End::Source).await.unwrap().node.copy.unwrap();
    assert_eq!((source.protection, source.marked), (root, root));
    world.send(End::Source, 1).await.unwrap();
    let target = world.observe(End::Target).await.unwrap().node.copy.unwrap();
    assert_eq!((target.protection, target.marked), (Protection::default(), root));
    for _ in 0..2 {
        world.done(End::Target, What::Protect { of: root }).await;
        let target = world.observe(End::Target).await.unwrap().node.copy.unwrap();
        assert_eq!(target.protection, root);
    }
    // The holds are not in the way of what follows: increments, and the end of a copy.
    world.write("motd", 2, 1000);
    assert_eq!(world.send(End::Source, 2).await.unwrap(), State::Done);
    world.done(End::Target, What::Delete).await;
    assert_eq!(world.observe(End::Target).await.unwrap().node.copy, None);
}
