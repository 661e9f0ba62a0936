// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Storage VMs that run and do not serve: the calls of the instance with the lease.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemon::timing::Clock;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use volapi::pages::Pages;
use volapi::probes::{self, Ask, Prober};
use volapi::service::Service;
use volapi::updater::{self, Feed, News, Updater};
use volumes_core::volume::State;

use super::asked::World;

/// A feed that says nothing.
pub(super) struct Mute;

impl Feed for Mute {
    fn next(&mut self) -> BoxFuture<'_, News> {
        Box::pin(std::future::pending())
    }
}

/// The storage VMs: what they answer, and how often they were called.
#[derive(Clone)]
struct Servers {
    answer: Arc<Mutex<probes::Answer>>,
    calls: Arc<AtomicUsize>,
}

impl Servers {
    fn answer(&self, answer: probes::Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    fn ask(&self) -> Ask {
        let this = self.clone();
        Box::new(move |ip| {
            assert_eq!(ip.to_string(), "10.0.0.1");
            this.calls.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(this.answer.lock().unwrap().clone()))
        })
    }
}

/// Runs an instance; returns what it learns.
fn instance(
    service: &Arc<Service>,
    servers: &Servers,
) -> (Arc<updater::State>, Arc<probes::State>) {
    let (state, learnt) = (Arc::new(updater::State::default()), Arc::new(probes::State::default()));
    let updater = Updater {
        service: Arc::clone(service),
        state: Arc::clone(&state),
        listen: Box::new(|| Box::new(Mute)),
    };
    let prober = Prober {
        service: Arc::clone(service),
        updater: Arc::clone(&state),
        state: Arc::clone(&learnt),
        ask: servers.ask(),
        every: Duration::from_secs(20),
    };
    tokio::spawn(updater.run());
    tokio::spawn(prober.run());
    (state, learnt)
}

async fn rest(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)] // V87
async fn a_storage_vm_that_stops_serving_is_told_within_a_minute_and_fails_nothing() {
    let world = World::start(false).await;
    let service = &world.service;
    let (volume, vm) = world.creating("name").await;
    let is_now = async |set: Value| {
        world.vm(&vm, set);
        service.follower.follow(&vm, None).await.unwrap();
    };
    let state = async || world.state(&volume).await;
    let servers =
        Servers { answer: Arc::new(Mutex::new(probes::Answer::Serves)), calls: Arc::default() };
    let (first, learnt) = instance(service, &servers);
    rest(1).await;
    let (second, elsewhere) = instance(service, &servers);
    // A volume that is not ready has nothing to serve.
    rest(60).await;
    assert!(first.has_lease() && !second.has_lease());
    assert_eq!(servers.calls(), 0);

    is_now(json!({"state": "running", "zonepath": "/z", "nics": [{"ip": "10.0.0.1"}]})).await;
    rest(60).await;
    assert_eq!((servers.calls(), state().await, learnt.silent()), (3, State::Ready, vec![]));
    servers.answer(probes::Answer::Nothing("no answer".to_owned()));
    rest(60).await;
    let silent = learnt.silent();
    assert_eq!(
        silent.iter().map(|it| (&*it.vm, &*it.why)).collect::<Vec<_>>(),
        [(&*vm, "no answer")]
    );
    assert_eq!(
        (elsewhere.silent(), elsewhere.last_pass(), state().await),
        (vec![], None, State::Ready)
    );

    let pages = Pages {
        service: Arc::clone(service),
        updater: Arc::clone(&first),
        probes: Arc::clone(&learnt),
        clock: Clock::start(),
        kept: Default::default(),
    };
    let degraded = async || pages.status().await["degraded"].clone();
    let said = degraded().await;
    assert_eq!((&said[0]["volume"], &said[0]["name"]), (&json!(volume), &json!("name")));
    assert_eq!(
        (&said[0]["storage_vm"], &said[0]["why"]),
        (&json!("does not serve"), &json!("no answer"))
    );

    // While it reboots it is stopped, which is known anyway.
    servers.calls();
    is_now(json!({"state": "stopped"})).await;
    rest(60).await;
    let said = degraded().await;
    assert_eq!((&said[0]["storage_vm"], &said[0]["vm_uuid"]), (&json!("stopped"), &json!(vm)));
    assert_eq!(said.as_array().unwrap().len(), 1);
    assert_eq!((servers.calls(), learnt.silent(), state().await), (0, vec![], State::Ready));
    servers.answer(probes::Answer::Serves);
    is_now(json!({"state": "running"})).await;
    rest(60).await;
    assert_eq!(
        (servers.calls(), learnt.silent(), service.follower.degraded()),
        (3, vec![], vec![])
    );
}
