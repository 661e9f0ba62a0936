// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Old, repeated and foreign requests.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use migration_core::journal::End;
use migration_core::protocol::{About, Observe, Observed, Order, State, What};
use sdc_clients::http::{Call, Request, Response, Transport};
use sdc_clients::signed::{Secret, Signed};
use sdc_clients::{Class, Error, Http};
use simnode::node::Zfs;

use crate::net::ToAgents;
use crate::world::{MIGRATION, VM, World, secret};

async fn give(world: &World, about: About, order: What) -> Result<State, (u16, String)> {
    let given = Order { about, wait_ms: 10_000, order };
    let done = world.post::<migration_core::protocol::Doing>(&world.target, "orders", &given).await;
    done.map(|doing| doing.state)
        .map_err(|error| (error.status().unwrap_or(0), error.code().unwrap_or_default().to_owned()))
}

fn refused<T>(code: &str) -> Result<T, (u16, String)> {
    Err((409, code.to_owned()))
}

#[tokio::test(start_paused = true)] // M41
async fn an_order_older_than_what_was_heard_is_refused_also_after_a_restart() {
    let mut world = World::new(Zfs::Illumos).await;
    let at = |revision| About { migration: MIGRATION, revision, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(5), What::Hide).await, Ok(State::Done));
    let net = world.net.clone();
    let seen = world
        .post::<migration_core::protocol::Observed>(
            &world.target,
            "observe",
            &Observe { about: at(9) },
        )
        .await;
    seen.unwrap();
    for _ in 0..2 {
        assert_eq!(give(&world, at(8), What::Show).await, refused("OldOrder"));
        let old = Observe { about: at(8) };
        let old =
            world.post::<serde_json::Value>(&world.target, "observe", &old).await.unwrap_err();
        assert_eq!((old.status(), old.code()), (Some(409), Some("OldOrder")));
        assert!(world.observe_at(End::Target, 9).await.copy.unwrap().hidden);
        world.target.kill(&net).await;
        world.target.start(&net).await;
    }
    // The same round may be heard again.
    assert_eq!(give(&world, at(9), What::Hide).await, Ok(State::Done));
    let other = About { end: End::Source, ..at(10) };
    assert_eq!(give(&world, other, What::Hide).await, refused("OtherCopy"));
}

#[tokio::test(start_paused = true)] // M42
async fn an_order_that_has_ended_is_done_again_at_a_higher_revision_only() {
    let world = World::new(Zfs::Illumos).await;
    let at = |revision| About { migration: MIGRATION, revision, vm: VM, end: End::Target };
    for (hide, is_hidden) in [(1, true), (1, false), (2, true)] {
        assert_eq!(give(&world, at(hide), What::Hide).await, Ok(State::Done));
        assert_eq!(world.observe_at(End::Target, hide).await.copy.unwrap().hidden, is_hidden);
        world.target.verbs().hide(&VM.to_string(), false).await.unwrap();
    }
}

#[tokio::test(start_paused = true)] // M41
async fn a_migration_that_is_over_takes_no_order_also_after_a_restart() {
    let mut world = World::new(Zfs::Illumos).await;
    let at = |revision| About { migration: MIGRATION, revision, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(1), What::Hold).await, Ok(State::Done));
    assert_eq!(give(&world, at(2), What::Over).await, Ok(State::Done));
    assert!(world.target.programs.holds.lock().unwrap().is_empty(), "nothing of it is left");
    let net = world.net.clone();
    for _ in 0..2 {
        assert_eq!(world.target.status()["migrations"], serde_json::json!([]));
        for revision in [1, 2, 3] {
            assert_eq!(give(&world, at(revision), What::Show).await, refused("MigrationOver"));
        }
        // The word that it is over may be heard twice.
        assert_eq!(give(&world, at(3), What::Over).await, Ok(State::Done));
        world.target.kill(&net).await;
        world.target.start(&net).await;
    }
}

#[tokio::test(start_paused = true)] // M40
async fn what_was_recorded_or_signed_with_another_secret_is_refused_and_counted() {
    let mut world = World::new(Zfs::Illumos).await;
    let at = |revision| About { migration: MIGRATION, revision, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(1), What::Show).await, Ok(State::Done));
    assert_eq!(give(&world, at(1), What::Hide).await, Ok(State::Done));
    let shows = |request: &sdc_clients::http::Request| {
        request.body.as_ref().is_some_and(|body| body.windows(6).any(|it| it == b"\"show\""))
            && request.headers.contains_key("x-signed-mac")
    };
    let recorded = world.net.heard().into_iter().find(shows).unwrap();
    assert_eq!(world.net.replay(recorded.clone()).await.status, 401);
    assert_eq!(world.target.status()["refused_requests"]["used_nonce"], 1);
    let net = world.net.clone();
    world.target.kill(&net).await;
    world.target.start(&net).await;
    assert_eq!(world.net.replay(recorded).await.status, 401);
    assert_eq!(world.target.status()["refused_requests"]["unknown_nonce"], 1);

    let foreign = Secret::of(b"the secret of another data centre, as long").unwrap();
    let call = Call::new(http::Method::POST, &["orders"]);
    let call = call.json(&Order { about: at(2), wait_ms: 1, order: What::Show });
    let error = world.target.client(&net, foreign).execute(call).await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(world.target.status()["refused_requests"]["wrong_mac"], 1);
    assert!(world.observe_at(End::Target, 2).await.copy.unwrap().hidden);
    // What is signed for one agent is of no use at another.
    let http = world.target.client(&net, secret());
    assert!(
        http.execute(Call::get(&["copies"])).await.is_err_and(|error| error.status() != Some(401))
    );
}

#[tokio::test(start_paused = true)] // M46
async fn nothing_of_another_vm_is_touched() {
    let world = World::new(Zfs::Illumos).await;
    world.done(End::Target, What::Receive).await;
    let about = world.about(End::Target, world.next());
    let foreign = "zones/archive".to_owned();
    let clear = migration_core::protocol::Clear {
        about,
        dataset: foreign.clone(),
        gone: migration_core::protocol::Gone::Dataset,
    };
    let offer = migration_core::protocol::Offer {
        about,
        dataset: foreign.clone(),
        image: None,
        properties: Default::default(),
    };
    let asked = migration_core::protocol::Received {
        about,
        datasets: vec![foreign.clone()],
        origins: vec![],
        whole: None,
    };
    let target = &world.target;
    for done in [
        world.post::<serde_json::Value>(target, "clear", &clear).await,
        world.post::<serde_json::Value>(target, "streams", &offer).await,
        world.post::<serde_json::Value>(target, "received", &asked).await,
    ] {
        assert_eq!(done.unwrap_err().code(), Some("ForeignDataset"));
    }
    assert_eq!(target.get("type", &foreign), "filesystem");
}

/// Between the service and an agent: records the first exchange, and answers with it from then on.
struct Between(ToAgents, Mutex<Option<(Request, Response)>>);

impl Transport for Between {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let recorded = self.1.lock().unwrap().clone();
            if let Some((heard, answer)) = recorded {
                let nonce = heard.headers["x-signed-nonce"].clone();
                if request.headers.get("x-signed-nonce") == Some(&nonce) {
                    return Ok(answer);
                }
                let next = (HeaderName::from_static("x-signed-next"), nonce);
                let headers = HeaderMap::from_iter([next]);
                return Ok(Response { status: StatusCode::UNAUTHORIZED, headers, body: "".into() });
            }
            let answer = self.0.send(request.clone()).await?;
            if answer.status.is_success() {
                *self.1.lock().unwrap() = Some((request, answer.clone()));
            }
            Ok(answer)
        })
    }
}

#[tokio::test(start_paused = true)] // M122
async fn an_observation_that_was_recorded_is_not_taken_for_what_is_true_now() {
    let world = World::new(Zfs::Illumos).await;
    let between = Arc::new(Between(ToAgents(Arc::clone(&world.net)), Mutex::default()));
    let ask = async || {
        // Each time a service that has just started: it has no nonce yet.
        let signed = Signed::new(between.clone(), secret(), &world.source.uuid.to_string());
        let url = world.source.peer().url;
        let http = Http::with_transport(&url, "test", Arc::new(signed)).unwrap().without_retries();
        let asked = Observe { about: world.about(End::Source, 1) };
        let call = Call::new(Method::POST, &["observe"]).json(&asked);
        http.execute(call).await?.json::<Observed>("an observation")
    };
    assert!(ask().await.unwrap().node.copy.unwrap().running);
    let error = ask().await.expect_err("the recorded observation was taken");
    assert_eq!(error.class(), Class::Protocol);
}
