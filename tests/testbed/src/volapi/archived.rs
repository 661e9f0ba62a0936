// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What failed long ago goes to the archive.

use std::time::Duration;

use serde_json::json;
use volapi::service::Count;
use volumes_core::volume::State;

use super::asked::{NETWORK, World};

const HOUR: Duration = Duration::from_secs(3600);

/// A pass an hour and a second after the failure was noted.
async fn an_hour_later(world: &World) {
    world.service.archive.take_old(None).await.unwrap();
    let failures = &world.service.shared.records.failures;
    for mut noted in volapi::records::all(failures, &[]).await.unwrap() {
        noted.value.since -= 3601;
        failures.put(&noted.key, store::Expect::Etag(noted.etag), &noted.value).await.unwrap();
    }
    world.service.archive.take_old(None).await.unwrap();
}

async fn fail(world: &World, vm: &str, state: &str) {
    world.vm(vm, json!({"state": state}));
    world.service.follower.follow(vm, None).await.unwrap();
}

#[tokio::test(start_paused = true)] // V120
async fn a_volume_that_failed_long_ago_is_in_the_archive_only() {
    let world = World::with(|settings| settings.failed_keep = Some(HOUR)).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    let (kept, _) = world.volume("kept", &[NETWORK]).await;
    fail(&world, &vm, "destroyed").await;
    let path = format!("/volumes/{volume}");
    world.service.archive.take_old(None).await.unwrap();
    world.service.archive.take_old(None).await.unwrap();
    let (status, shown) = world.get(&path).await;
    assert_eq!((status, &shown["state"]), (200, &json!("failed")), "not before an hour");
    an_hour_later(&world).await;
    assert_eq!(world.get(&path).await.0, 404);
    assert_eq!(world.get("/volumes").await.1[0]["uuid"], kept);
    let records = &world.service.shared.records;
    let archived = records.archive.get(&volume).await.unwrap().value;
    assert_eq!(archived.shown(), shown, "as it was");
    assert!(volapi::records::all(&records.failures, &[]).await.unwrap().is_empty());
    assert_eq!(world.service.shared.counts.get(Count::Archived), 1);
}

#[tokio::test(start_paused = true)] // V120
async fn a_volume_whose_storage_vm_may_come_back_stays() {
    let world = World::with(|settings| {
        settings.failed_keep = Some(HOUR);
        settings.reboot_grace = Duration::ZERO;
    })
    .await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    let path = format!("/volumes/{volume}");
    fail(&world, &vm, "stopped").await;
    an_hour_later(&world).await;
    assert_eq!(world.get(&path).await.1["state"], "failed", "its data is there");
    let broken = json!({"vm_get": [{"status": 500, "times": 1, "body": {}}]});
    world.data_centre.behave(broken.as_object().unwrap());
    world.service.archive.take_old(None).await.unwrap();
    // It runs again: the time begins anew with the next failure.
    fail(&world, &vm, "running").await;
    world.service.archive.take_old(None).await.unwrap();
    fail(&world, &vm, "destroyed").await;
    world.service.archive.take_old(None).await.unwrap();
    assert_eq!(world.get(&path).await.1["state"], "failed");
    an_hour_later(&world).await;
    assert_eq!(world.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)] // V120
async fn nothing_is_archived_unless_it_is_asked_for() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    fail(&world, &vm, "destroyed").await;
    an_hour_later(&world).await;
    assert_eq!(world.state(&volume).await, State::Failed);
}
