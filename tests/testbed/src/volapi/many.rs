// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Many clients at once.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;
use uuid::Uuid;
use volumes_core::refused::Refused;
use volumes_core::requests::{self, Reference};
use volumes_core::volume::State;

use super::asked::{OWNER, World, required};

fn asked(name: &str) -> requests::Create {
    requests::create(&required(name)).unwrap()
}

#[tokio::test(start_paused = true)] // V53
async fn a_hundred_names_at_once_make_a_hundred_volumes() {
    let World { service, data_centre, .. } = World::start(false).await;
    let names: Vec<requests::Create> = (0..100).map(|n| asked(&format!("name-{n}"))).collect();
    let made = join_all(names.iter().map(|name| service.creates.create(name))).await;
    let uuids: BTreeSet<String> =
        made.into_iter().map(|it| it.unwrap()["uuid"].to_string()).collect();
    assert_eq!((uuids.len(), data_centre.tickets()), (100, 0));
    assert_eq!(data_centre.vms.all().len(), 100, "one storage VM each");
    assert!(service.shared.records.all_work().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)] // V53
async fn of_a_hundred_creates_of_one_name_one_succeeds() {
    let World { service, data_centre, .. } = World::start(false).await;
    let one = asked("name");
    let made = join_all((0..100).map(|_| service.creates.create(&one))).await;
    let taken = Err(Refused::NameTaken("name".to_owned()));
    let (won, lost): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.iter().filter(|it| **it == taken).count()), (1, 99));
    assert_eq!((data_centre.tickets(), data_centre.vms.all().len()), (0, 1));
}

#[tokio::test(start_paused = true)] // V54
async fn names_are_one_volumes_also_where_tickets_let_two_in() {
    let World { service, data_centre, .. } = World::start(false).await;
    let active = json!({"ticket_wait": {"status": 204, "body": null}, "ticket_status": "active"});
    data_centre.behave(active.as_object().unwrap());
    let one = asked("name");
    let made = join_all((0..20).map(|_| service.creates.create(&one))).await;
    let taken = Err(Refused::NameTaken("name".to_owned()));
    let (won, lost): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.iter().filter(|it| **it == taken).count()), (1, 19));
}

#[tokio::test(start_paused = true)] // V54
async fn a_volume_whose_name_was_given_away_does_not_come_back_beside_the_other() {
    let World { service, data_centre, .. } = World::start(false).await;
    let text = |made: &Value, name: &str| made[name].as_str().unwrap().to_owned();
    let is_now = async |made: &Value, vm_state: &str| {
        let mut vm = data_centre.vms.get(made["vm_uuid"].as_str().unwrap()).unwrap();
        vm.insert("state".to_owned(), json!(vm_state));
        data_centre.vms.put(vm);
        service.follower.follow(made["vm_uuid"].as_str().unwrap(), None).await.unwrap();
        let found = service.shared.records.volume(&text(made, "uuid"), None).await.unwrap();
        found.map(|volume| volume.value.state())
    };
    let first = service.creates.create(&asked("name")).await.unwrap();
    assert_eq!(is_now(&first, "failed").await, Some(State::Failed));
    let second = service.creates.create(&asked("name")).await.unwrap();
    assert_eq!(is_now(&first, "running").await, Some(State::Failed));
    assert_eq!(is_now(&second, "running").await, Some(State::Ready));
    let third = service.creates.create(&asked("name")).await;
    assert_eq!(third, Err(Refused::NameTaken("name".to_owned())));
    // Once the name is free again, so is the way back.
    assert_eq!(is_now(&second, "failed").await, Some(State::Failed));
    assert_eq!(is_now(&first, "running").await, Some(State::Ready));
    assert_eq!(is_now(&second, "running").await, Some(State::Failed));
}

#[tokio::test] // V20
async fn references_that_are_added_at_once_are_all_kept() {
    // Each call to a file is made by another thread: others run meanwhile.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::embedded(&dir.path().join("volapi.redb")).await.unwrap();
    let world = World::over(&store).await;
    let service = &world.service;
    let (volume, _) = world.creating("name").await;
    let references: Vec<Reference> = (0..4)
        .map(|_| Reference {
            uuid: volume.clone(),
            owner_uuid: OWNER.to_owned(),
            vm_uuid: Uuid::new_v4().to_string(),
        })
        .collect();
    for added in join_all(references.iter().map(|it| service.references.add(it))).await {
        added.unwrap();
    }
    let kept = service.references.of(&volume).await.unwrap();
    let kept: BTreeSet<&str> = kept.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(kept, references.iter().map(|it| &*it.vm_uuid).collect::<BTreeSet<_>>());
}
