// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Everything that can die dies at each step of a create, a rename and a delete; afterwards volapi comes back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::Store;
use volapi::service::Service;
use volumes_core::refused::Refused;
use volumes_core::requests::{self, Params};
use volumes_core::volume::State;

use super::asked::{around, required};
use super::fuse::{ALL, Blow, Fuse, Who};
use super::peers::DataCentre;
use super::running::start;
use crate::faults::Fault;

pub(super) const VOLUME: &str = "11111111-1111-4111-8111-111111111111";

fn params(value: Value) -> Params {
    value.as_object().cloned().unwrap()
}

pub(super) fn data_centre() -> DataCentre {
    DataCentre::new(&around()).unwrap()
}

pub(super) async fn create(service: &Service, uuid: &str, name: &str) -> Result<Value, Refused> {
    let mut asked = required(name);
    asked.insert("uuid".to_owned(), json!(uuid));
    service.creates.create(&requests::create(&asked)?).await
}

pub(super) async fn delete(service: &Service, uuid: &str) -> Result<(), Refused> {
    service.deletes.delete(&requests::delete(&params(json!({"uuid": uuid})))?).await
}

async fn rename(service: &Service, uuid: &str, name: &str) -> Result<Value, Refused> {
    service.updates.rename(&requests::update(&params(json!({"uuid": uuid, "name": name})))?).await
}

/// Everything that VMAPI was asked for has happened.
pub(super) async fn settle(data_centre: &DataCentre, service: &Service) {
    for vm in data_centre.vms.all() {
        let (mut vm, uuid) = (vm.clone(), vm["uuid"].as_str().unwrap().to_owned());
        if vm["state"] == "provisioning" {
            vm.insert("state".to_owned(), json!("running"));
            vm.insert("zonepath".to_owned(), json!("/zones/z"));
            vm.insert("nics".to_owned(), json!([{"ip": "10.0.0.1"}]));
        }
        if data_centre.is_deleted(&uuid) {
            vm.insert("state".to_owned(), json!("destroyed"));
        }
        data_centre.vms.put(vm);
        service.follower.follow(&uuid, None).await.unwrap();
    }
}

/// A world in which something went wrong. `survivor` is the service whose process lives on.
pub(super) struct Left {
    pub(super) place: String,
    pub(super) store: Store,
    pub(super) data_centre: DataCentre,
    pub(super) fuse: Arc<Fuse>,
    pub(super) survivor: Option<Arc<Service>>,
}

/// What died comes back, a process over the same store: what was left is ended, what services took up late
/// happens, and the passes go on.
async fn come_back(left: &Left) -> Arc<Service> {
    let Left { store, data_centre, fuse, survivor, .. } = left;
    fuse.clear();
    let service = match survivor {
        Some(service) => Arc::clone(service),
        None => start(store, data_centre, fuse).await.unwrap(),
    };
    service.tidy(None).await.unwrap();
    for request in fuse.take_late() {
        data_centre.take_up(&request).await;
    }
    service.tidy(None).await.unwrap();
    settle(data_centre, &service).await;
    service
}

/// Runs until it ends or is killed.
pub(super) async fn until_killed<T>(work: impl Future<Output = T>) -> Option<T> {
    // On the paused clock this passes as soon as the work waits for what never comes.
    tokio::time::timeout(Duration::from_secs(3600), work).await.ok()
}

fn storage_vms(data_centre: &DataCentre, volume: &str) -> Vec<String> {
    let alias = format!("nfs-shared-volume-{volume}");
    let all = data_centre.vms.all();
    let of_it = all.iter().filter(|vm| vm["alias"] == alias && vm["state"] != "destroyed");
    of_it.map(|vm| vm["uuid"].as_str().unwrap().to_owned()).collect()
}

async fn state(service: &Service, volume: &str) -> Option<(State, String)> {
    let found = service.shared.records.volume(volume, None).await.unwrap()?;
    Some((found.value.state(), found.value.vm_uuid().to_owned()))
}

/// What holds after a create that something went wrong with.
pub(super) async fn check_created(left: &Left) {
    let service = come_back(left).await;
    let Left { place, data_centre, .. } = left;
    assert_eq!(data_centre.tickets(), 0, "{place}: a ticket is left");
    assert!(service.shared.records.all_work().await.unwrap().len() <= 1, "{place}: work is left");
    let vms = storage_vms(data_centre, VOLUME);
    assert!(vms.len() <= 1, "{place}: {vms:?}");
    match state(&service, VOLUME).await {
        None => assert!(vms.is_empty(), "{place}: {vms:?} of no volume"),
        Some((State::Ready, vm)) => assert_eq!(vms, [vm], "{place}"),
        Some((State::Failed, vm)) => {
            assert!(vms.is_empty(), "{place}: failed, and {vm} is there");
        }
        other => panic!("{place}: {other:?}"),
    }
    // The name can be used: by a new volume, or again after a delete.
    if let Some((State::Ready, _)) = state(&service, VOLUME).await {
        delete(&service, VOLUME).await.unwrap();
        settle(data_centre, &service).await;
        assert_eq!(state(&service, VOLUME).await, None, "{place}");
    }
    let other = "22222222-2222-4222-8222-222222222222";
    create(&service, other, "name").await.unwrap_or_else(|refused| panic!("{place}: {refused}"));
    settle(data_centre, &service).await;
    assert_eq!(state(&service, other).await.unwrap().0, State::Ready, "{place}");
}

/// What holds after a delete that something went wrong with, if it was not said to be done, or was.
pub(super) async fn check_deleted(left: &Left, was_said: bool) {
    let service = come_back(left).await;
    let Left { place, data_centre, .. } = left;
    assert_eq!(data_centre.tickets(), 0, "{place}: a ticket is left");
    match state(&service, VOLUME).await {
        None => {}
        Some((State::Ready, _)) => {
            assert!(!was_said, "{place}: it was said to be done");
            delete(&service, VOLUME).await.unwrap();
            settle(data_centre, &service).await;
            assert_eq!(state(&service, VOLUME).await, None, "{place}");
        }
        other => panic!("{place}: {other:?}"),
    }
    assert!(storage_vms(data_centre, VOLUME).is_empty(), "{place}");
    create(&service, VOLUME, "name").await.unwrap_or_else(|it| panic!("{place}: {it}"));
}

/// Lets each thing go wrong at the first step of some work, at its second, and so on until the work ends before that.
/// `run` does the work, which it calls by the place, and returns true if something went wrong. The work has so many
/// steps at the least, and so many of VMAPI's.
pub(super) async fn at_each_step(
    least: [usize; 2],
    run: impl AsyncFn(Blow, usize, String) -> bool,
) {
    for blow in ALL {
        let [others, vmapi] = least;
        let least = if blow.1 == Fault::Away(Who::Vmapi) { vmapi } else { others };
        for step in 0.. {
            let place = format!("{blow:?} at {step}");
            if !run(blow, step, place.clone()).await {
                assert!(step >= least, "{place}: too few steps");
                break;
            }
        }
    }
}

/// Cuts `work` off at each step; `world` makes what it begins from, and `check` judges what is left and what the work
/// said.
async fn cut_off<T>(
    least: [usize; 2],
    world: impl AsyncFn(&Store, &Arc<Fuse>) -> (DataCentre, Arc<Service>),
    work: impl AsyncFn(&Service) -> T,
    check: impl AsyncFn(Left, Option<T>),
) {
    let run = async |blow: Blow, step, place| {
        let (store, fuse) = (Store::in_memory().unwrap(), Fuse::none());
        let (data_centre, service) = world(&store, &fuse).await;
        fuse.set(blow, step);
        let said = until_killed(work(&service)).await;
        let has_blown = fuse.clear();
        let survivor = (!matches!(blow.1, Fault::Dies(_) | Fault::Late)).then_some(service);
        check(Left { place, store, data_centre, fuse, survivor }, said).await;
        has_blown
    };
    Box::pin(at_each_step(least, run)).await;
}

/// A data centre that has one volume.
async fn with_volume(store: &Store, fuse: &Arc<Fuse>) -> (DataCentre, Arc<Service>) {
    let data_centre = data_centre();
    data_centre.light(fuse);
    let service = start(store, &data_centre, fuse).await.unwrap();
    create(&service, VOLUME, "name").await.unwrap();
    settle(&data_centre, &service).await;
    (data_centre, service)
}

#[tokio::test(start_paused = true)] // V50
async fn a_create_that_is_cut_off_anywhere_ends_ready_failed_or_gone() {
    for first_version in [false, true] {
        let world = async |store: &Store, fuse: &Arc<Fuse>| {
            let data_centre = data_centre();
            data_centre.light(fuse);
            if first_version {
                let full = json!({"status": 409, "times": 1, "body": {"code": "InvalidArgument",
                    "message": "No compute resources available"}});
                data_centre.behave(&params(json!({"vm_create": [full]})));
            }
            let service = start(store, &data_centre, fuse).await.unwrap();
            (data_centre, service)
        };
        let check = async |mut left: Left, _| {
            left.place = format!("{}, first version: {first_version}", left.place);
            check_created(&left).await;
        };
        let work = async |service: &Service| create(service, VOLUME, "name").await;
        cut_off([6, 1], world, work, check).await;
    }
}

#[tokio::test(start_paused = true)] // V51
async fn a_delete_that_is_cut_off_anywhere_is_ended_or_can_be_asked_for_again() {
    let check = async |left: Left, said| {
        check_deleted(&left, matches!(said, Some(Ok(())))).await;
    };
    let work = async |service: &Service| delete(service, VOLUME).await;
    cut_off([6, 1], with_volume, work, check).await;
}

#[tokio::test(start_paused = true)] // V52
async fn a_rename_that_is_cut_off_anywhere_happened_or_not() {
    let check = async |left: Left, _| {
        let service = come_back(&left).await;
        let Left { place, data_centre, .. } = &left;
        assert_eq!(data_centre.tickets(), 0, "{place}: a ticket is left");
        let name = service.shared.records.volume(VOLUME, None).await.unwrap().unwrap().value;
        let free = if name.name() == "name" { "other" } else { "name" };
        let uuid = "33333333-3333-4333-8333-333333333333";
        let taken = create(&service, uuid, name.name()).await;
        assert_eq!(taken, Err(Refused::NameTaken(name.name().to_owned())), "{place}");
        create(&service, uuid, free).await.unwrap_or_else(|it| panic!("{place}: {it}"));
    };
    let work = async |service: &Service| rename(service, VOLUME, "other").await;
    cut_off([0, 0], with_volume, work, check).await;
}
