// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The feed on real nats-servers; skipped with a word where they are not installed.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test

mod node;

mod bad_days;

mod command;

mod follow;

mod liar;

mod permissions;

mod replicas;

mod tls;

mod told;

use std::sync::Mutex;
use std::time::Duration;

use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, FleetError, Health, Shape, make, renew};
use tokio::time::{Instant, sleep, timeout};

fn servers(count: usize, config: Option<&str>) -> Option<Nats> {
    started(|| Nats::start(count, config))
}

/// Servers that can be cut off from each other.
fn partible(count: usize) -> Option<Nats> {
    started(|| Nats::partible(count))
}

/// Starts servers, or says why there are none.
fn started(start: impl FnOnce() -> std::io::Result<Nats>) -> Option<Nats> {
    match rig::nats::why_not() {
        Some(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
        None => Some(start().unwrap()),
    }
}

fn access(nats: &Nats) -> Access {
    Access { servers: nats.servers(), ..Access::default() }
}

/// Makes the streams, as soon as the servers have elected who leads.
async fn made(access: &Access, replicas: usize) -> Fleet {
    let fleet = Fleet::connect(access, "test", Jitter::from_seed(1)).await.unwrap();
    let shape = Shape { replicas, bytes: 1 << 28, ..Shape::default() };
    until("streams", async || make(fleet.jetstream(), &shape).await.is_ok()).await;
    fleet
}

/// Waits until every server has all of every stream. A test that kills one before has killed two: of three servers the
/// one that has everything is then alone with one that is behind, and for a minute no leader may be elected.
async fn whole(fleet: &Fleet) {
    let (last, began) = (Mutex::new(None), Instant::now());
    let is_whole = async || {
        let health = fleet.health().await;
        let is_whole = health.as_ref().is_ok_and(|all| all.iter().all(Health::is_whole));
        // As an agent does where one has been behind for half an hour.
        for it in health.iter().flatten().filter(|_| began.elapsed() > STAYS) {
            for server in &it.behind {
                let _late = renew(fleet, it.stream, server).await;
            }
        }
        *last.lock().unwrap() = Some(health);
        is_whole
    };
    if timeout(LONG, wait(is_whole)).await.is_err() {
        panic!("not every server has all: {:?}", last.lock().unwrap());
    }
}

/// A server that has been behind for so long stays so.
const STAYS: Duration = Duration::from_secs(60);

/// Asks until there is an answer: a server of a busy machine may be late.
async fn answered<T>(what: &str, ask: impl AsyncFn() -> Result<T, FleetError>) -> T {
    let answer = Mutex::new(None);
    until(what, async || {
        let got = ask().await.ok();
        let is_there = got.is_some();
        *answer.lock().unwrap() = got;
        is_there
    })
    .await;
    answer.into_inner().unwrap().unwrap()
}

/// No wait of a test is shorter: it is no statement about how fast a busy machine is.
const LONG: Duration = Duration::from_secs(600);

/// Waits for a condition.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    timeout(LONG, wait(is_so)).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn wait(is_so: impl AsyncFn() -> bool) {
    while !is_so().await {
        sleep(Duration::from_millis(100)).await;
    }
}
