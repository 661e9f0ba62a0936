// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Old, repeated and foreign requests.

use http::Method;
use migration_core::intent::End;
use migration_core::protocol::{About, Doing, Observe, Open, Order, State, What};
use sdc_clients::http::Call;
use sdc_clients::identity::Identity;
use simnode::node::Zfs;

use crate::world::{MIGRATION, VM, World};

async fn give(world: &World, about: About, order: What) -> Result<State, (u16, String)> {
    let given = Order { about, wait_ms: 10_000, order, instead: None };
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
    let at =
        |revision| About { migration: MIGRATION, revision, nonce: None, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(5), What::Hide).await, Ok(State::Done));
    let net = world.net.clone();
    let seen = world
        .post::<migration_core::protocol::Observed>(
            &world.target,
            "observe",
            &Observe { about: at(9), brief: false },
        )
        .await;
    seen.unwrap();
    for _ in 0..2 {
        assert_eq!(give(&world, at(8), What::Show).await, refused("OldOrder"));
        let old = Observe { about: at(8), brief: false };
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

#[tokio::test(start_paused = true)] // M177
async fn a_revision_that_was_heard_is_refused_with_another_nonce_also_after_a_restart() {
    let mut world = World::new(Zfs::Illumos).await;
    let at =
        |revision, nonce| About { migration: MIGRATION, revision, nonce, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(5, Some(1)), What::Hide).await, Ok(State::Done));
    let net = world.net.clone();
    for _ in 0..2 {
        assert_eq!(give(&world, at(5, Some(2)), What::Show).await, refused("OldOrder"));
        let other = Observe { about: at(5, Some(2)), brief: false };
        let asked = world.post::<serde_json::Value>(&world.target, "observe", &other).await;
        assert_eq!(asked.unwrap_err().code(), Some("OldOrder"));
        assert!(world.observe_at(End::Target, 5).await.copy.unwrap().hidden);
        let page = &world.target.status()["migrations"][0];
        assert_eq!(page["revision"], 5);
        world.target.kill(&net).await;
        world.target.start(&net).await;
    }
    assert_eq!(give(&world, at(5, Some(1)), What::Hide).await, Ok(State::Done));
    assert_eq!(give(&world, at(6, Some(2)), What::Show).await, Ok(State::Done));
    assert_eq!(give(&world, at(6, Some(1)), What::Hide).await, refused("OldOrder"));
}

#[tokio::test(start_paused = true)] // M42
async fn an_order_that_has_ended_is_done_again_at_a_higher_revision_only() {
    let world = World::new(Zfs::Illumos).await;
    let at =
        |revision| About { migration: MIGRATION, revision, nonce: None, vm: VM, end: End::Target };
    for (hide, is_hidden) in [(1, true), (1, false), (2, true)] {
        assert_eq!(give(&world, at(hide), What::Hide).await, Ok(State::Done));
        assert_eq!(world.observe_at(End::Target, hide).await.copy.unwrap().hidden, is_hidden);
        world.target.verbs().hide(&VM.to_string(), false).await.unwrap();
    }
}

#[tokio::test(start_paused = true)] // M41
async fn a_migration_that_is_over_takes_no_order_also_after_a_restart() {
    let mut world = World::new(Zfs::Illumos).await;
    let at =
        |revision| About { migration: MIGRATION, revision, nonce: None, vm: VM, end: End::Target };
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

#[tokio::test(start_paused = true)] // M174
async fn whose_copy_is_not_to_be_used_again_is_known_also_after_a_restart_until_this_one_is_hidden()
{
    let mut world = World::new(Zfs::Illumos).await;
    let at =
        |revision| About { migration: MIGRATION, revision, nonce: None, vm: VM, end: End::Target };
    let (net, source) = (world.net.clone(), world.source.uuid);
    let receive = What::Receive { from: source, image: None };
    assert_eq!(give(&world, at(1), receive).await, Ok(State::Done));
    assert_eq!(give(&world, at(2), What::Hide).await, Ok(State::Done));
    let show = |revision, instead| Order {
        about: at(revision),
        wait_ms: 10_000,
        order: What::Show,
        instead,
    };
    for (order, instead) in [
        (show(3, None), None),
        (show(4, Some(source)), Some(source)),
        (Order { order: What::Hide, ..show(5, None) }, None),
    ] {
        let done = world.post::<Doing>(&world.target, "orders", &order).await.unwrap();
        assert_eq!(done.state, State::Done);
        for _ in 0..2 {
            let http = world.target.client(&world.net, Some(Identity::Service));
            let told = http.execute(Call::get(&["migrations"])).await.unwrap();
            let open: Vec<Open> = told.json("what is open").unwrap();
            assert_eq!((open[0].other, open[0].instead), (Some(source), instead), "{order:?}");
            world.target.kill(&net).await;
            world.target.start(&net).await;
        }
    }
}

#[tokio::test(start_paused = true)] // M40
async fn orders_are_the_services_alone_and_what_any_other_peer_asks_is_refused_and_counted() {
    let world = World::new(Zfs::Illumos).await;
    let at =
        |revision| About { migration: MIGRATION, revision, nonce: None, vm: VM, end: End::Target };
    assert_eq!(give(&world, at(1), What::Hide).await, Ok(State::Done));
    let show = Order { about: at(2), wait_ms: 1, order: What::Show, instead: None };
    let others = [
        None,
        Some(Identity::Volapi),
        Some(world.source.name()),
        Some(world.target.name()),
        Some(Identity::Agent(uuid::Uuid::from_u128(7))),
    ];
    let mut refused = 0;
    for from in others {
        let http = world.target.client(&world.net, from);
        for call in [
            Call::new(Method::POST, &["orders"]).json(&show),
            Call::new(Method::POST, &["observe"]).json(&Observe { about: at(9), brief: false }),
            Call::new(Method::PUT, &["rate"])
                .json(&migration_core::protocol::Rate { mbps: Some(1) }),
            Call::get(&["node"]),
            Call::get(&["copies"]),
            Call::get(&["migrations"]),
            Call::get(&["vms", &VM.to_string()]),
        ] {
            let error = http.execute(call).await.unwrap_err();
            assert_eq!((error.status(), error.code()), (Some(403), Some("NotAuthorized")));
            refused += 1;
        }
    }
    assert_eq!(world.target.status()["refused_requests"]["not_allowed"], refused);
    assert_eq!(world.target.status()["mbps"], serde_json::Value::Null);
    // Nothing was heard of the revisions either.
    assert!(world.observe_at(End::Target, 2).await.copy.unwrap().hidden);
}

#[tokio::test(start_paused = true)] // M40
async fn each_path_has_the_methods_of_its_table_and_refuses_others_of_whoever_may_ask() {
    let world = World::new(Zfs::Illumos).await;
    for (path, methods) in migration_agent::routes::paths() {
        let path = path.replace("{uuid}", &VM.to_string()).replace("{name}", "none");
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let mut found = Vec::new();
        for who in [Identity::Service, Identity::Volapi, world.source.name()] {
            let http = world.target.client(&world.net, Some(who));
            for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
                let name = method.as_str().to_lowercase();
                let told = http.execute(Call::new(method, &segments)).await;
                let refused = told.err().map(|it| (it.status(), it.code().map(str::to_owned)));
                found.push(match refused {
                    Some((Some(403), _)) => continue,
                    Some((Some(405), code)) => {
                        assert_eq!(code.as_deref(), Some("MethodNotAllowedError"), "{path}");
                        (name, false)
                    }
                    _ => (name, true),
                });
            }
        }
        assert!(!found.is_empty(), "{path}: nobody may ask");
        for (name, is_there) in found {
            assert_eq!(methods.get(&name).is_some(), is_there, "{name} {path}");
        }
    }
}

#[tokio::test(start_paused = true)] // M40
async fn what_is_asked_of_one_agent_is_not_answered_by_another() {
    let world = World::new(Zfs::Illumos).await;
    let http = world.target.client(&world.net, Some(Identity::Service));
    let error =
        http.to_peer(world.source.name()).execute(Call::get(&["migrations"])).await.unwrap_err();
    assert_eq!(error.status(), None);
    assert!(http.execute(Call::get(&["migrations"])).await.is_ok());
}

#[tokio::test(start_paused = true)] // M41
async fn only_the_node_that_the_order_names_sends_and_it_moves_no_revision() {
    let world = World::new(Zfs::Illumos).await;
    let source = world.source.uuid;
    world.done(End::Target, What::Receive { from: source, image: None }).await;
    let about = world.about(End::Target, u64::MAX);
    let asked = migration_core::protocol::Received {
        about,
        datasets: vec![format!("zones/{VM}")],
        origins: vec![],
        whole: None,
    };
    let stranger = Identity::Agent(uuid::Uuid::from_u128(7));
    let ask = async |from| {
        let done =
            world.post_as::<serde_json::Value>(from, &world.target, "received", &asked).await;
        done.map(drop).map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    assert_eq!(ask(stranger).await, Err("NotAuthorized".to_owned()));
    assert_eq!(ask(world.target.name()).await, Err("NotAuthorized".to_owned()));
    assert_eq!(ask(world.source.name()).await, Ok(()));
    // Whatever revision it said, the service is heard.
    world.done(End::Target, What::Receive { from: source, image: None }).await;
    world.done(End::Target, What::Hide).await;
    assert_eq!(ask(world.source.name()).await, Err("NotReceiving".to_owned()));
}

#[tokio::test(start_paused = true)] // M46
async fn nothing_of_another_vm_is_touched() {
    let world = World::new(Zfs::Illumos).await;
    world.done(End::Target, What::Receive { from: world.source.uuid, image: None }).await;
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
        is_bare: false,
    };
    let asked = migration_core::protocol::Received {
        about,
        datasets: vec![foreign.clone()],
        origins: vec![],
        whole: None,
    };
    let (target, from) = (&world.target, world.source.name());
    for done in [
        world.post_as::<serde_json::Value>(from, target, "clear", &clear).await,
        world.post_as::<serde_json::Value>(from, target, "streams", &offer).await,
        world.post_as::<serde_json::Value>(from, target, "received", &asked).await,
    ] {
        assert_eq!(done.unwrap_err().code(), Some("ForeignDataset"));
    }
    assert_eq!(target.get("type", &foreign), "filesystem");
}
