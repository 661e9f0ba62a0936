// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Everything that can die dies at each step of a create, a delete and a roll-back; afterwards volapi comes back.

use std::time::Duration;

use store::Expect;
use volumes_core::snapshot::Stage;
use volumes_core::volume::State;

use super::world::World;
use crate::volapi::crash::{VOLUME, at_each_step, until_killed};
use crate::volapi::fuse::Fuse;
use crate::volapi::running::start;

#[tokio::test(start_paused = true)] // V137
async fn a_snapshot_whose_creation_is_cut_off_anywhere_is_there_or_not() {
    let run = async |blow, step, place: String| {
        let mut world = World::new().await;
        world.snap("first").await.unwrap();
        world.restart().await;
        world.fuse.set(blow, step);
        let outcome = until_killed(world.snap("second")).await;
        let has_blown = world.fuse.clear();
        world.come_back().await;
        let names: Vec<String> = world.recorded().await.into_iter().map(|(name, _)| name).collect();
        assert!(names == ["first"] || names == ["first", "second"], "{place}: {names:?}");
        if matches!(outcome, Some(Ok(_))) {
            assert_eq!(names.len(), 2, "{place}: it was said to be begun");
        }
        world.check(&place).await;
        has_blown
    };
    Box::pin(at_each_step([3, 1], run)).await;
}

#[tokio::test(start_paused = true)] // V137
async fn a_snapshot_whose_deletion_is_cut_off_anywhere_is_gone_or_there() {
    let run = async |blow, step, place: String| {
        let mut world = World::new().await;
        world.snap("first").await.unwrap();
        world.snap("second").await.unwrap();
        world.restart().await;
        world.fuse.set(blow, step);
        let outcome = until_killed(world.delete("first")).await;
        let has_blown = world.fuse.clear();
        world.come_back().await;
        let names: Vec<String> = world.recorded().await.into_iter().map(|(name, _)| name).collect();
        assert!(names == ["second"] || names == ["first", "second"], "{place}: {names:?}");
        if matches!(outcome, Some(Ok(_))) {
            assert_eq!(names.len(), 1, "{place}: it was said to be begun");
        }
        world.check(&place).await;
        has_blown
    };
    Box::pin(at_each_step([3, 1], run)).await;
}

#[tokio::test(start_paused = true)] // V138
async fn a_roll_back_that_is_cut_off_anywhere_is_done_once_or_not_begun() {
    let run = async |blow, step, place: String| {
        let mut world = World::new().await;
        for name in ["first", "second", "third"] {
            world.snap(name).await.unwrap();
        }
        world.cn().write(&world.vm, "later").unwrap();
        world.restart().await;
        world.fuse.set(blow, step);
        // The passes of the same process are cut off too.
        let outcome = until_killed(async {
            let begun = world.roll_back("second").await;
            for _ in 0..4 {
                let _ = world.service.tidy(None).await;
            }
            begun
        })
        .await;
        let has_blown = world.fuse.clear();
        world.come_back().await;
        let is_done = world.cn().has(&world.vm, "second").unwrap();
        if !is_done {
            assert!(!matches!(outcome, Some(Ok(_))), "{place}: it was said to be begun");
            assert!(world.cn().has(&world.vm, "later").unwrap(), "{place}");
        }
        assert_eq!(world.recorded().await.len(), if is_done { 2 } else { 3 }, "{place}");
        // Once the volume is ready, nothing rolls it back again.
        world.cn().write(&world.vm, "after").unwrap();
        world.come_back().await;
        assert!(world.cn().has(&world.vm, "after").unwrap(), "{place}: rolled back again");
        world.check(&place).await;
        has_blown
    };
    Box::pin(at_each_step([9, 1], run)).await;
}

#[tokio::test(start_paused = true)] // V138
async fn what_an_instance_leaves_for_good_is_taken_over_by_the_one_with_the_lease() {
    let world = World::new().await;
    for name in ["first", "second"] {
        world.snap(name).await.unwrap();
    }
    world.roll_back("first").await.unwrap();
    assert_eq!(world.volume().await.state(), State::RollingBack);
    let mut settings = world.service.shared.settings.clone();
    settings.instance = "another".to_owned();
    let same = start(&world.store, &world.data_centre, &Fuse::none()).await.unwrap();
    let records = same.shared.records.clone();
    let other = volapi::service::Service::new(records, same.shared.peers.clone(), settings);
    let lease = world.store.claim("test", "holder", Duration::from_secs(30)).await.unwrap();
    let fence = lease.unwrap();
    other.tidy(Some(&fence)).await.unwrap();
    assert_eq!(world.volume().await.state(), State::RollingBack, "it is not left yet");
    // Two minutes pass on the wall clock.
    for left in other.shared.records.all_work().await.unwrap() {
        let mut work = left.value.clone();
        work.expires_at -= 121;
        other.shared.records.work.put(&left.key, Expect::Etag(left.etag), &work).await.unwrap();
    }
    for _ in 0..4 {
        other.tidy(Some(&fence)).await.unwrap();
    }
    assert_eq!(world.volume().await.state(), State::Ready);
    assert!(world.cn().has(&world.vm, "first").unwrap());
    assert_eq!(world.recorded().await, [("first".to_owned(), Stage::Created)]);
    assert!(other.shared.records.all_work().await.unwrap().is_empty());
    assert_eq!(
        other.shared.records.volume(VOLUME, None).await.unwrap().unwrap().value.snapshots().len(),
        1
    );
}

#[tokio::test(start_paused = true)] // V138
async fn a_roll_back_that_lasts_too_long_is_left_to_the_one_with_the_lease() {
    let world = World::new().await;
    world.snap("first").await.unwrap();
    world.cn().write(&world.vm, "later").unwrap();
    world.roll_back("first").await.unwrap();
    let records = world.service.shared.records.clone();
    for left in records.all_work().await.unwrap() {
        // It may be asked of others by the one with the lease before a request that is sent now is answered.
        let mut work = left.value.clone();
        work.expires_at -= 90;
        records.work.put(&left.key, Expect::Etag(left.etag), &work).await.unwrap();
    }
    for _ in 0..4 {
        world.service.tidy(None).await.unwrap();
    }
    assert_eq!(world.volume().await.state(), State::RollingBack, "two instances act on it");
    assert!(world.cn().has(&world.vm, "later").unwrap(), "two instances act on it");
    let lease = world.store.claim("test", "holder", Duration::from_secs(30)).await.unwrap();
    let fence = lease.unwrap();
    for _ in 0..4 {
        world.service.tidy(Some(&fence)).await.unwrap();
    }
    assert_eq!(world.volume().await.state(), State::Ready);
}
