// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuations of a node, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use mocks::faults::{Action, Rule};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::history::history;
use super::node::{Fails, ONE, TWO, VM};
use super::story::beside;
use super::world::World;
use migration_core::protocol;
use migration_core::record::{Phase, State};

fn path() -> String {
    format!("/evacuations/{ONE}")
}

async fn row(world: &Arc<World>) -> Value {
    world.ask("GET", &path(), json!({})).await.1
}

async fn put(world: &Arc<World>, values: Value) -> Value {
    let (status, row) = world.ask("PUT", &path(), values).await;
    assert_eq!(status, 200, "{row}");
    row
}

async fn is_reserved(world: &Arc<World>) -> bool {
    let server = world.plain().await.peers.cnapi.get_server(&ONE.to_string()).await.unwrap();
    server.reserved == Some(true)
}

/// Waits for a condition, at most an hour.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..3600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{what}");
}

async fn until_it_is_over(world: &Arc<World>) {
    until("it is over", async || world.ask("GET", &path(), json!({})).await.0 == 404).await;
}

#[tokio::test(start_paused = true)] // M149
async fn an_evacuation_is_kept_by_the_service_and_ends_in_the_history() {
    let world = World::new(true);
    world.services.cnapi.beat(&ONE.to_string());
    assert_eq!(world.ask("GET", &path(), json!({})).await.0, 404);
    assert_eq!(world.ask("DELETE", &path(), json!({})).await.0, 404);
    for bad in [
        json!({"paused": 1}),
        json!({"to": "x"}),
        json!({"odd": 1}),
        json!({"excluded": ["x"]}),
        json!({"at_once": 0}),
        json!({"tried": {}}),
    ] {
        assert_eq!(world.ask("PUT", &path(), bad.clone()).await.0, 409, "{bad}");
    }
    let values = json!({"paused": true, "excluded": [VM], "at_once": 2, "to": TWO});
    // CNAPI's answer takes its time.
    let began = put(&world, values).await["began"].as_str().unwrap().to_owned();
    assert!(began.starts_with("2026-03-01T00:00:00."), "{began}");
    // Another service of the data centre has it.
    let other = world.with_store(world.store.clone());
    let (_, all) = other.ask("GET", "/evacuations", json!({})).await;
    let want = json!([{
        "cn_uuid": ONE, "was_reserved": false, "is_reserved": false, "paused": true, "seen": "",
        "began": began, "by": "ops", "program": "sdc-migrate/1.0.0", "to": TWO,
        "excluded": [VM], "at_once": 2,
    }]);
    assert_eq!(all, want);
    assert_eq!(other.ask("DELETE", &path(), json!({})).await.0, 200);
    assert_eq!(world.ask("GET", "/evacuations", json!({})).await.1, json!([]));
    let found = history(&world, &format!("&cn_uuid={ONE}")).await;
    assert_eq!((found.len(), found[0].what.as_str()), (1, "evacuate"));
    assert_eq!(found[0].began.as_ref(), Some(&began));
}

#[tokio::test(start_paused = true)] // M149
async fn an_evacuation_goes_on_without_its_command_and_under_another_service() {
    let world = World::new(true);
    beside(&world, async {
        put(&world, json!({})).await;
        until("it has begun", async || world.record().await.is_some()).await;
        assert!(is_reserved(&world).await);
    })
    .await;
    // The service that did the rounds has ended where it was.
    let other = world.with_store(world.store.clone());
    beside(&other, async {
        until_it_is_over(&other).await;
        let record = other.record().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Switch, State::Successful));
        assert_eq!(record.target_server_uuid, Some(TWO));
        assert!(!is_reserved(&other).await);
    })
    .await;
    let found = history(&other, "").await;
    let listed: Vec<_> = found.iter().map(|it| (it.what.as_str(), it.by.as_deref())).collect();
    assert_eq!(listed, [("evacuate", Some("ops")), ("migrate", Some("ops"))]);
    let counts = ["moved", "stay", "left"].map(|name| found[0].other[name].as_u64());
    assert_eq!(counts, [Some(1), Some(0), Some(0)]);
}

#[tokio::test(start_paused = true)] // M149, R13
async fn an_evacuation_is_paused_goes_on_and_a_reserved_node_stays_so() {
    let world = World::new(true);
    beside(&world, async {
        let reserved = json!({"reserved": true}).as_object().cloned().unwrap();
        let cnapi = &world.plain().await.peers.cnapi;
        cnapi.update_server(&ONE.to_string(), &reserved).await.unwrap();
        put(&world, json!({"paused": true})).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.record().await, None, "nothing begins");
        // Its sync goes on until it is paused.
        let fails = Fails {
            name: "send",
            state: protocol::State::Running,
            times: u32::MAX,
            moved: |left| (u64::from(u32::MAX - left), u64::from(u32::MAX)),
        };
        world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
        put(&world, json!({"paused": false})).await;
        let syncs = async || {
            let record = world.record().await;
            record.is_some_and(|it| (it.phase, it.state) == (Phase::Sync, State::Running))
        };
        until("it syncs", syncs).await;
        put(&world, json!({"paused": true})).await;
        let is_paused =
            async || world.record().await.is_some_and(|record| record.state == State::Paused);
        until("its pause", is_paused).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(is_paused().await, "it stays paused");
        assert_eq!(
            (row(&world).await["left"].clone(), is_reserved(&world).await),
            (json!(1), true)
        );
        world.centre().hosts.get_mut(&ONE).unwrap().fails = None;
        put(&world, json!({"paused": false})).await;
        until_it_is_over(&world).await;
        assert_eq!(world.record().await.unwrap().state, State::Successful);
        assert!(is_reserved(&world).await);
    })
    .await;
}

#[tokio::test(start_paused = true)] // M107, M149
async fn what_is_refused_stays_with_the_reason_and_what_is_away_is_tried_again() {
    let world = World::new(true);
    beside(&world, async {
        world.centre().hosts.get_mut(&ONE).unwrap().is_silent = true;
        put(&world, json!({})).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(row(&world).await["left"], json!(1), "its agent is away: it is tried again");
        put(&world, json!({"to": ONE})).await;
        world.centre().hosts.get_mut(&ONE).unwrap().is_silent = false;
        until("the reason", async || !row(&world).await["tried"].is_null()).await;
        assert!(
            row(&world).await["tried"][VM.to_string()].as_str().is_some_and(|it| !it.is_empty())
        );
        until_it_is_over(&world).await;
        assert!(!is_reserved(&world).await);
    })
    .await;
    let found = history(&world, "").await;
    assert_eq!((found.len(), &found[0].other["stay"]), (1, &json!(1)), "{found:?}");
}

#[tokio::test(start_paused = true)] // M149
async fn an_evacuation_that_is_changed_as_it_ends_goes_on_and_keeps_its_node_reserved() {
    let world = World::new(true);
    let changes = format!("/servers/{ONE}");
    beside(&world, async {
        // CNAPI takes its time to give the node back.
        let late = Rule::new("POST", &changes, Action::Delay { ms: 4000 });
        world.services.cnapi.faults().add(late.after(1).times(1));
        put(&world, json!({})).await;
        let asked = async |count: usize| {
            let all = world.services.asked();
            let changed = all.iter().filter(|it| it.method == "POST" && it.path == changes);
            changed.count() >= count
        };
        until("CNAPI is asked to give it back", async || asked(2).await).await;
        put(&world, json!({"paused": true})).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(row(&world).await["paused"], json!(true), "it goes on");
        assert!(is_reserved(&world).await, "its node may get new VMs");
        assert_eq!(row(&world).await["is_reserved"], json!(true));
        assert!(history(&world, "").await.iter().all(|it| it.what != "evacuate"));
        put(&world, json!({"paused": false})).await;
        until_it_is_over(&world).await;
        assert!(!is_reserved(&world).await);
    })
    .await;
}

#[tokio::test(start_paused = true)] // M149
async fn a_node_is_reserved_while_its_evacuation_is_paused_and_not_after_its_end() {
    let world = World::new(true);
    let changes = format!("/servers/{ONE}");
    beside(&world, async {
        put(&world, json!({"paused": true})).await;
        until("it is reserved", async || row(&world).await["is_reserved"] == true).await;
        assert!(is_reserved(&world).await);
        world.ask("DELETE", &path(), json!({})).await;
        assert!(!is_reserved(&world).await);
        // An operator ends another one while the leader reserves its node.
        let late = Rule::new("POST", &changes, Action::Delay { ms: 4000 });
        world.services.cnapi.faults().add(late.times(1));
        let asked = world.services.asked().len();
        put(&world, json!({})).await;
        until("CNAPI is asked to reserve it", async || {
            let all = world.services.asked();
            all[asked..].iter().any(|it| it.method == "POST" && it.path == changes)
        })
        .await;
        assert_eq!(world.ask("DELETE", &path(), json!({})).await.0, 200);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!is_reserved(&world).await, "no evacuation gives it back");
    })
    .await;
}
