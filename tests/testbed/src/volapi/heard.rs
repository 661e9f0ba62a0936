// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What follows from what is heard of VMs: the updater over a feed that the test speaks into.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value, json};
use store::{Call, Fault, Faults, Store};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use volapi::updater::{self, Feed, News, Updater};
use volumes_core::requests;
use volumes_core::volume::State;

use super::asked::{self, OWNER};
use super::fuse::PEER_AWAY;

/// A feed that says what the test says.
struct Told(Arc<Mutex<mpsc::Receiver<News>>>);

impl Feed for Told {
    fn next(&mut self) -> BoxFuture<'_, News> {
        Box::pin(async {
            match self.0.lock().await.recv().await {
                Some(heard) => heard,
                None => std::future::pending().await,
            }
        })
    }
}

/// A service whose updater runs.
struct World {
    around: asked::World,
    say: mpsc::Sender<News>,
    state: Arc<updater::State>,
    running: JoinHandle<()>,
}

impl World {
    async fn start() -> World {
        World::over(&Store::in_memory().unwrap()).await
    }

    async fn over(store: &Store) -> World {
        let around = asked::World::over(store).await;
        let (say, told) = mpsc::channel(16);
        let told = Arc::new(Mutex::new(told));
        let state = Arc::new(updater::State::default());
        let updater = Updater {
            service: Arc::clone(&around.service),
            state: Arc::clone(&state),
            listen: Box::new(move || Box::new(Told(Arc::clone(&told)))),
        };
        let running = tokio::spawn(updater.run());
        World { around, say, state, running }
    }

    async fn tell(&self, heard: News) {
        self.say.send(heard).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn all(&self) -> Vec<Map<String, Value>> {
        let all = self.data_centre.vms.all();
        all.into_iter().filter(|vm| vm["state"] != "destroyed" && vm["state"] != "failed").collect()
    }
}

impl Deref for World {
    type Target = asked::World;

    fn deref(&self) -> &asked::World {
        &self.around
    }
}

#[tokio::test(start_paused = true)] // V34
async fn a_full_listing_makes_up_for_every_event_that_was_not_heard() {
    let world = World::start().await;
    let (volume, storage) = world.creating("name").await;
    let user = "99999999-9999-4999-8999-999999999999";
    world.vm(&storage, json!({"state": "running"}));
    let needs = json!({"sdc:volumes": "[{\"name\": \"name\"}]"});
    let set =
        json!({"state": "running", "brand": "lx", "owner_uuid": OWNER, "internal_metadata": needs});
    world.vm(user, set);
    assert_eq!(world.state(&volume).await, State::Creating);
    world.tell(News::Listed(world.all())).await;
    assert_eq!(world.state(&volume).await, State::Ready);
    assert_eq!(world.service.references.of(&volume).await.unwrap(), json!([user]));
    assert!(world.state.follows() && world.state.has_lease());
    // The user and the storage VM go while nothing is heard.
    world.tell(News::Lost("the line is dead".to_owned())).await;
    assert!(!world.state.follows());
    world.vm(user, json!({"state": "destroyed"}));
    world.vm(&storage, json!({"state": "destroyed"}));
    world.tell(News::Listed(world.all())).await;
    assert_eq!(world.service.references.of(&volume).await.unwrap(), json!([]));
    assert_eq!(world.state(&volume).await, State::Failed);
}

#[tokio::test(start_paused = true)] // V31
async fn a_released_reservation_leaves_no_reference_of_a_vm_that_never_came() {
    let world = World::start().await;
    let (volume, storage) = world.creating("name").await;
    world.vm(&storage, json!({"state": "running"}));
    world.tell(News::Listed(world.all())).await;
    let (coming, there) =
        ("99999999-9999-4999-8999-999999999999", "88888888-8888-4888-8888-888888888888");
    world.vm(there, json!({"state": "running", "brand": "lx", "owner_uuid": OWNER}));
    let mut reserved = Vec::new();
    for vm in [coming, there] {
        let asked =
            json!({"owner_uuid": OWNER, "vm_uuid": vm, "job_uuid": vm, "volume_name": "name"});
        let asked = requests::reserve(asked.as_object().unwrap()).unwrap();
        let made = world.service.references.reserve(&asked).await.unwrap();
        reserved.push(made["uuid"].as_str().unwrap().to_owned());
    }
    assert_eq!(world.service.references.of(&volume).await.unwrap(), json!([coming, there]));
    for reservation in reserved {
        world.service.references.release(&reservation, OWNER).await.unwrap();
    }
    assert_eq!(world.service.references.of(&volume).await.unwrap(), json!([there]));
}

/// Three volumes, four VMs that may use them, one of which has reserved one, and VMAPI's records of all, as the
/// seed has it. If `disturbed`, VMs are looked at before the listing: some more than once, others not at all.
/// Returns what is left.
async fn after_a_listing(seed: u64, disturbed: bool) -> Vec<(String, State, BTreeSet<String>)> {
    let world = World::start().await;
    let mut dice = StdRng::seed_from_u64(seed);
    let states = ["running", "stopped", "failed", "destroyed", "provisioning", "incomplete"];
    let state = |dice: &mut StdRng| json!(states[dice.random_range(0..states.len())]);
    let mut vms = Vec::new();
    for name in ["aa", "bb", "cc"] {
        let (_, vm) = world.creating(name).await;
        let set = json!({"state": state(&mut dice), "tags": {"n": dice.random_range(0..9)}});
        world.vm(&vm, set);
        vms.push(vm);
    }
    for n in 0..4 {
        let vm = format!("9999999{n}-9999-4999-8999-999999999999");
        let names = ["aa", "bb", "cc", "dd"].into_iter().filter(|_| dice.random_bool(0.5));
        let needs: Vec<Value> = names.map(|name| json!({"name": name})).collect();
        let mut set = json!({"state": state(&mut dice), "brand": "lx", "owner_uuid": OWNER,
            "internal_metadata": {"sdc:volumes": json!(needs).to_string()}});
        if dice.random_bool(0.2) {
            // A migration is moving it.
            set["brand"] = Value::Null;
        }
        if n == 0 {
            let reserve =
                json!({"owner_uuid": OWNER, "vm_uuid": vm, "job_uuid": vm, "volume_name": "aa"});
            let reserve = requests::reserve(reserve.as_object().unwrap()).unwrap();
            world.service.references.reserve(&reserve).await.unwrap();
        }
        world.vm(&vm, set);
        vms.push(vm);
    }
    for _ in 0..if disturbed { 12 } else { 0 } {
        world.service.follower.follow(&vms[dice.random_range(0..vms.len())], None).await.unwrap();
    }
    world.service.follower.take_listing(&world.all(), None).await.unwrap();
    let records = &world.service.shared.records;
    let mut left = Vec::new();
    for volume in records.volumes_with(&[]).await.unwrap() {
        let volume = volume.value;
        let refs = volume.refs().into_iter().map(str::to_owned).collect();
        left.push((
            format!("{} {}", volume.name(), volume.shown()["labels"]),
            volume.state(),
            refs,
        ));
    }
    let reserved = records.reservations_with(&[]).await.unwrap();
    left.push((format!("{} reserved", reserved.len()), State::Ready, BTreeSet::new()));
    left.sort();
    left
}

#[tokio::test(start_paused = true)] // V34
async fn looks_in_any_order_and_number_before_a_listing_change_nothing() {
    for seed in 0..40 {
        let alone = after_a_listing(seed, false).await;
        assert_eq!(after_a_listing(seed, true).await, alone, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)] // V27
async fn a_stopped_storage_vm_fails_its_volume_only_after_the_grace_time() {
    let world = World::start().await;
    let (volume, storage) = world.creating("name").await;
    world.vm(&storage, json!({"state": "running"}));
    world.tell(News::Changed(storage.clone())).await;
    world.vm(&storage, json!({"state": "stopped"}));
    world.tell(News::Changed(storage.clone())).await;
    assert_eq!(world.service.follower.degraded(), std::slice::from_ref(&storage));
    tokio::time::sleep(Duration::from_secs(280)).await;
    assert_eq!(world.state(&volume).await, State::Ready);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(world.state(&volume).await, State::Failed);
    assert!(world.service.follower.degraded().is_empty());
}

#[tokio::test(start_paused = true)] // V35
async fn a_look_that_fails_is_tried_again() {
    let world = World::start().await;
    let (volume, storage) = world.creating("name").await;
    world.vm(&storage, json!({"state": "running"}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fuse.set(PEER_AWAY, 0);
    world.tell(News::Changed(storage)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.state(&volume).await, State::Ready);
}

#[tokio::test(start_paused = true)] // V36
async fn only_the_instance_with_the_lease_follows_vms() {
    let store = Store::in_memory().unwrap();
    let first = World::over(&store).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = World::over(&store).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(first.state.has_lease() && !second.state.has_lease());
    assert!(!second.running.is_finished());
}

#[tokio::test(start_paused = true)] // V36
async fn another_instance_follows_vms_20_s_after_the_death_of_the_first() {
    for later in 1..5 {
        let store = Store::in_memory().unwrap();
        let first = World::over(&store).await;
        tokio::time::sleep(Duration::from_secs(later)).await;
        let second = World::over(&store).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        first.running.abort();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(second.state.has_lease(), "started {later} s later");
    }
}

/// Holds up all calls of the storage while it is shut.
#[derive(Debug)]
struct Door(watch::Sender<bool>);

impl Faults for Door {
    fn next(&self, _: Call) -> Fault {
        Fault::None
    }

    fn held(&self, _: Call, _: bool) -> BoxFuture<'_, ()> {
        let mut is_open = self.0.subscribe();
        Box::pin(async move { drop(is_open.wait_for(|is_open| *is_open).await) })
    }
}

#[tokio::test(start_paused = true)] // V36
async fn an_instance_whose_lease_ran_out_takes_it_again_and_follows_vms() {
    let door = Arc::new(Door(watch::Sender::new(true)));
    let store = Store::in_memory().unwrap().with_faults(Arc::clone(&door) as Arc<dyn Faults>);
    let world = World::over(&store).await;
    let (volume, storage) = world.creating("name").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    door.0.send_replace(false);
    // Longer than the lease.
    tokio::time::sleep(Duration::from_secs(30)).await;
    door.0.send_replace(true);
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.vm(&storage, json!({"state": "running"}));
    world.tell(News::Changed(storage)).await;
    assert_eq!(world.state(&volume).await, State::Ready);
}

#[tokio::test(start_paused = true)] // V27
async fn what_an_instance_saw_stopped_before_it_lost_the_lease_counts_for_nothing() {
    let door = Arc::new(Door(watch::Sender::new(true)));
    let store = Store::in_memory().unwrap().with_faults(Arc::clone(&door) as Arc<dyn Faults>);
    let world = World::over(&store).await;
    let (volume, storage) = world.creating("name").await;
    let become_in = async |state: &str| {
        world.vm(&storage, json!({"state": state}));
        world.tell(News::Changed(storage.clone())).await;
    };
    become_in("running").await;
    become_in("stopped").await;
    assert_eq!(world.service.follower.degraded(), std::slice::from_ref(&storage));
    door.0.send_replace(false);
    // It runs again, which only the next holder of the lease sees, and stops once more.
    tokio::time::sleep(Duration::from_secs(320)).await;
    assert!(!world.state.has_lease() && world.service.follower.degraded().is_empty());
    door.0.send_replace(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.state.has_lease());
    become_in("stopped").await;
    assert_eq!(world.state(&volume).await, State::Ready);
    assert_eq!(world.service.follower.degraded(), std::slice::from_ref(&storage));
}
