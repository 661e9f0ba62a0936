// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A store that is empty, or older than what the agents received.

use std::sync::Arc;
use std::time::Duration;

use migration_core::intent::End;
use migration_core::machine::Copy;
use migration_core::record::{Phase, Record, State};
use pretty_assertions::assert_eq;
use serde_json::json;
use store::Store;
use tokio::time::sleep;
use uuid::Uuid;

use super::node::{ONE, TWO, VM};
use super::story::{AUTOMATIC, beside};
use super::words::{answered, page};
use super::world::World;

/// The service asks all agents, and sweeps what runs.
const SWEPT: Duration = Duration::from_secs(75);

fn copy(world: &Arc<World>, cn: Uuid) -> Copy {
    world.centre().hosts[&cn].copy.clone().unwrap()
}

/// How many orders each agent has received.
fn orders(world: &World) -> [usize; 2] {
    let centre = world.centre();
    [ONE, TWO].map(|cn| centre.hosts[&cn].orders.len())
}

/// The same data centre with a store that has this record alone, or nothing.
async fn restored(world: &Arc<World>, record: Option<Record>) -> Arc<World> {
    let other = world.with_store(Store::in_memory().unwrap());
    if let Some(record) = record {
        let records = &other.plain().await.records;
        let lock = records.lock(VM).await.unwrap();
        records.create(record, lock).await.unwrap();
    }
    other
}

async fn adopt(world: &Arc<World>, query: &str) -> (u16, serde_json::Value) {
    world.ask("POST", &format!("/migrations/{VM}/adopt{query}"), json!({})).await
}

/// A switch was done, and the store is that of before it, while a sync ran.
async fn yesterday(world: &Arc<World>) -> (Arc<World>, Uuid, u64) {
    let mut old = None;
    beside(world, async {
        world.synced().await;
        old = world.record().await;
        assert_eq!(world.act("switch").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
    })
    .await;
    let mut old = old.unwrap();
    (old.phase, old.state) = (Phase::Sync, State::Running);
    let (id, revision) = (old.id, old.intent.revision);
    (restored(world, Some(old)).await, id, revision)
}

#[tokio::test(start_paused = true)] // M124
async fn a_store_that_is_older_than_what_the_agents_heard_moves_nothing_and_is_an_alarm() {
    let world = World::new(true);
    let (old, id, revision) = yesterday(&world).await;
    let before = orders(&old);
    beside(&old, async {
        sleep(SWEPT).await;
        let status = page(&old, "/status").await;
        assert!(
            status.contains("the store is older than the orders that the agents have accepted"),
            "{status}"
        );
        let metrics = page(&old, "/metrics").await;
        assert!(metrics.contains("migration_service_migrations_unknown 1"), "{metrics}");
        for action in ["sync", "switch", "abort&force=true"] {
            let (status, body) = old.act(action).await;
            assert_eq!(status, 412, "{action}: {body}");
        }
        sleep(Duration::from_secs(600)).await;
    })
    .await;
    assert_eq!(orders(&old), before, "nothing was ordered");
    let record = old.record().await.unwrap();
    assert!(record.intent.revision <= revision + 1, "{} {revision}", record.intent.revision);
    assert!(copy(&old, TWO).running && copy(&old, ONE).is_off());
    assert_eq!(old.centre().broken, None);
    // An agent that asks does not learn that its copy is the one in use.
    let received = old.centre().hosts[&ONE].received[&id].0;
    assert_eq!(answered(&old, ONE, &format!("{id}.{received}")).await["known"], json!([]));
    // Nor is one that has received no more than the record: the other one has.
    assert_eq!(answered(&old, ONE, &format!("{id}.{revision}")).await["known"], json!([]));
    beside(&old, async {
        let (status, body) = adopt(&old, "").await;
        assert_eq!(status, 200, "{body}");
        let record = old.record().await.unwrap();
        assert_eq!((record.id, record.phase, record.state), (id, Phase::Switch, State::Successful));
        assert!(record.intent.revision > received);
        let (status, body) = old.act("finalize&force=true").await;
        assert_eq!(status, 200, "{body}");
        assert!(old.settled().await.is_none());
        sleep(SWEPT).await;
    })
    .await;
    assert!(old.centre().hosts[&ONE].copy.is_none() && copy(&old, TWO).running);
    assert!(page(&old, "/metrics").await.contains("migration_service_migrations_unknown 0"));
}

#[tokio::test(start_paused = true)] // M175 M177
async fn a_store_that_lost_one_revision_orders_nothing_and_gives_back_what_the_vm_did_before() {
    for action in ["switch", "rollback"] {
        let world = World::new(true);
        let stops = if action == "switch" { ONE } else { TWO };
        let mut old = None;
        beside(&world, async {
            world.synced().await;
            if action == "rollback" {
                assert_eq!(world.act("switch").await.0, 202);
                assert_eq!(world.settled().await.unwrap().state, State::Successful);
            }
            let state = migration_core::protocol::State::Running;
            let fails = super::node::Fails { name: "stop", state, times: 90, moved: |_| (0, 0) };
            world.centre().hosts.get_mut(&stops).unwrap().fails = Some(fails);
            assert_eq!(world.act(action).await.0, 202);
            sleep(Duration::from_secs(30)).await;
            old = world.record().await;
        })
        .await;
        assert!(!copy(&world, stops).autoboot, "{action}: it was taken");
        let mut old = old.unwrap();
        assert!(old.intent.power.take().unwrap().autoboot, "{action}");
        // The next round has the number that the agents have received in the round that was lost.
        old.intent.revision -= 1;
        let old = restored(&world, Some(old)).await;
        old.centre().hosts.get_mut(&stops).unwrap().fails = None;
        let before = orders(&old);
        beside(&old, async {
            sleep(SWEPT).await;
            let status = page(&old, "/status").await;
            assert!(status.contains("the store is older"), "{action}: {status}");
            assert_eq!(orders(&old), before, "{action}: nothing was ordered");
            let (status, body) = adopt(&old, "").await;
            assert_eq!(status, 200, "{action}: {body}");
            assert_eq!(old.act("switch").await.0, 202, "{action}");
            drop(old.settled().await);
        })
        .await;
        let up = copy(&old, TWO);
        assert!(up.running && up.autoboot && !up.hidden, "{action}: {up:?}");
        assert!(copy(&old, ONE).is_off(), "{action}");
        assert_eq!(old.centre().broken, None, "{action}");
    }
}

#[tokio::test(start_paused = true)] // M176
async fn a_store_that_does_not_know_the_end_of_a_migration_moves_nothing_until_it_is_adopted() {
    for (last, phase, state) in [
        ("finalize", Phase::Sync, State::Running),
        ("finalize", Phase::Switch, State::Running),
        ("finalize", Phase::Sync, State::Paused),
        ("finalize", Phase::Sync, State::Failed),
        ("rollback", Phase::Switch, State::Running),
        ("rollback", Phase::Rollback, State::Running),
        ("abort", Phase::Sync, State::Running),
        ("abort", Phase::Sync, State::Paused),
    ] {
        let what = format!("{last}, {phase:?} {state:?}");
        let world = World::new(true);
        let mut old = None;
        beside(&world, async {
            world.synced().await;
            old = world.record().await;
            if last != "abort" {
                assert_eq!(world.act("switch").await.0, 202);
                assert_eq!(world.settled().await.unwrap().state, State::Successful);
            }
            assert!(world.act(&format!("{last}&force=true")).await.0 < 300, "{what}");
            world.settled().await;
        })
        .await;
        let mut old = old.unwrap();
        (old.phase, old.state) = (phase, state);
        let old = restored(&world, Some(old)).await;
        let all = |world: &Arc<World>| {
            let centre = world.centre();
            (
                [ONE, TWO]
                    .map(|cn| (centre.hosts[&cn].orders.len(), centre.hosts[&cn].copy.clone())),
                world.record_in_vmapi(),
            )
        };
        let before = all(&old);
        beside(&old, async {
            sleep(2 * SWEPT).await;
            let status = page(&old, "/status").await;
            assert!(status.contains("the store is older"), "{what}: {status}");
            assert_eq!(old.act("switch").await.0, 412, "{what}");
            let (status, body) = adopt(&old, "").await;
            assert_eq!(status, 200, "{what}: {body}");
            assert!(body["error"].as_str().unwrap().contains("had ended"), "{what}: {body}");
            assert!(old.record().await.is_none(), "{what}");
            sleep(2 * SWEPT).await;
        })
        .await;
        let metrics = page(&old, "/metrics").await;
        assert!(metrics.contains("migration_service_migrations_unknown 0"), "{what}");
        assert_eq!(all(&old), before, "{what}: nothing was ordered, VMAPI is as it was");
    }
}

#[tokio::test(start_paused = true)] // M125
async fn a_node_named_as_the_other_one_is_not_taken_for_both() {
    let world = World::new(true);
    let mut old = None;
    beside(&world, async {
        world.synced().await;
        old = world.record().await;
    })
    .await;
    // The store is that of before the target was chosen.
    let mut old = old.unwrap();
    (old.target_server_uuid, old.intent.revision) = (None, 1);
    let old = restored(&world, Some(old)).await;
    beside(&old, async {
        sleep(SWEPT).await;
        for query in ["".to_owned(), format!("?other={ONE}&really=true")] {
            let (status, body) = adopt(&old, &query).await;
            let why = body["message"].as_str().unwrap();
            assert!(status == 412 && why.contains("target"), "{query}: {status} {why}");
        }
        let (status, body) = adopt(&old, &format!("?other={TWO}")).await;
        assert_eq!(status, 200, "{body}");
        let record = old.record().await.unwrap();
        assert_eq!((record.source_server_uuid, record.target_server_uuid), (ONE, Some(TWO)));
        assert_eq!((record.phase, record.state), (Phase::Sync, State::Paused));
    })
    .await;
}

#[tokio::test(start_paused = true)] // M123 M125
async fn what_the_agents_have_open_and_an_empty_store_lacks_is_an_alarm_and_can_be_adopted() {
    for (stage, end) in [("synced", "abort"), ("switched", "finalize"), ("between", "switch")] {
        let world = World::new(true);
        beside(&world, async {
            match stage {
                "synced" => world.synced().await,
                "switched" => {
                    world.command(AUTOMATIC).await.unwrap();
                    assert_eq!(world.settled().await.unwrap().state, State::Successful);
                }
                _ => {
                    world.synced().await;
                    let state = migration_core::protocol::State::Running;
                    let fails =
                        super::node::Fails { name: "show", state, times: 90, moved: |_| (0, 0) };
                    world.centre().hosts.get_mut(&TWO).unwrap().fails = Some(fails);
                    assert_eq!(world.act("switch").await.0, 202);
                    sleep(Duration::from_secs(30)).await;
                    world.centre().hosts.get_mut(&TWO).unwrap().fails = None;
                }
            }
        })
        .await;
        let hidden = [ONE, TWO].map(|cn| copy(&world, cn).hidden);
        let empty = restored(&world, None).await;
        beside(&empty, async {
            sleep(SWEPT).await;
            let status = page(&empty, "/status").await;
            assert!(status.contains(&format!("sdc-migrate adopt {VM}")), "{stage}: {status}");
            assert_eq!(empty.act("begin").await.0, 412, "{stage}");
            assert_eq!(hidden, [ONE, TWO].map(|cn| copy(&empty, cn).hidden), "{stage}");
            let (status, body) = adopt(&empty, "").await;
            assert_eq!(status, 200, "{stage}: {body}");
            assert_eq!(adopt(&empty, "").await.0, 412, "{stage}: it is known");
            let (status, body) = empty.act(&format!("{end}&force=true")).await;
            assert!(status < 300, "{stage}: {body}");
            let record = empty.settled().await;
            assert!(record.is_none_or(|it| it.error.is_none()), "{stage}");
            sleep(SWEPT).await;
            assert!(!page(&empty, "/status").await.contains("sdc-migrate adopt"), "{stage}");
        })
        .await;
        let centre = empty.centre();
        assert_eq!(centre.broken, None, "{stage}");
        let runs = [ONE, TWO]
            .map(|cn| centre.hosts[&cn].copy.as_ref().is_some_and(|it| it.running && !it.hidden));
        assert_eq!(runs, [stage == "synced", stage != "synced"], "{stage}");
    }
}

#[tokio::test(start_paused = true)] // M174
async fn a_store_that_lost_that_a_node_was_declared_dead_stops_nothing_and_an_operator_decides() {
    for (is_older, kept) in [(false, TWO), (true, TWO), (false, ONE)] {
        let world = World::new(true);
        let mut old = None;
        beside(&world, async {
            world.synced().await;
            old = world.record().await;
            world.cut_off(ONE);
            assert_eq!(world.declare(&format!("switch&source_dead={ONE}")).await.0, 202);
            assert_eq!(world.settled().await.unwrap().state, State::Successful);
        })
        .await;
        let (id, received) =
            (old.as_ref().unwrap().id, world.centre().hosts[&ONE].received.clone());
        let open = format!("{id}.{}.{TWO}", received[&id].0);
        let lost = restored(&world, old.filter(|_| is_older)).await;
        let other = if kept == ONE { TWO } else { ONE };
        beside(&lost, async {
            lost.centre().hosts.get_mut(&ONE).unwrap().is_silent = false;
            sleep(SWEPT).await;
            // What the other node's agent says of this one is no declaration: what boots waits, what runs is left.
            let got = answered(&lost, ONE, &open).await;
            assert_eq!((&got["known"], &got["replaced"]), (&json!([]), &json!([])), "{got}");
            sleep(2 * SWEPT).await;
            assert!(
                copy(&lost, ONE).running && !copy(&lost, ONE).hidden,
                "an agent's word stopped it"
            );
            assert!(copy(&lost, TWO).running && !copy(&lost, TWO).hidden);
            let status = page(&lost, "/status").await;
            assert!(status.contains(&format!("on {TWO}")), "{status}");
            assert!(status.contains(&format!("instead of that on {ONE}")), "{status}");
            assert!(!status.contains("delete"), "{status}");
            let metrics = page(&lost, "/metrics").await;
            assert!(!metrics.contains("migration_service_migrations_unknown 0"), "{metrics}");
            let (status, body) = adopt(&lost, "").await;
            assert!(status == 412 && body["message"].as_str().unwrap().contains("other"), "{body}");
            if kept == ONE {
                lost.services.vmapi.set(&VM.to_string(), "running", Some(&ONE.to_string()));
            }
            let (status, body) = adopt(&lost, &format!("?other={other}")).await;
            assert_eq!(status, 200, "{body}");
            sleep(2 * SWEPT).await;
            assert!(copy(&lost, other).is_off(), "it is watched: {:?}", copy(&lost, other));
            let status = page(&lost, "/status").await;
            assert!(!status.contains("instead of that"), "{status}");
        })
        .await;
        assert!(copy(&lost, kept).running && !copy(&lost, kept).hidden);
    }
}

#[tokio::test(start_paused = true)] // M174
async fn a_node_does_not_say_of_another_one_s_migration_that_it_has_replaced_the_copy() {
    let world = World::new(true);
    beside(&world, async { world.synced().await }).await;
    let empty = restored(&world, None).await;
    beside(&empty, async {
        let liar = Uuid::from_u128(0xcccc);
        let id = *empty.centre().hosts[&ONE].received.keys().next().unwrap();
        let mut host = empty.centre().hosts[&TWO].clone();
        host.received.insert(id, (99, End::Target));
        host.others.insert(id, (Some(ONE), Some(ONE)));
        empty.centre().hosts.insert(liar, host);
        let got = answered(&empty, ONE, &format!("{id}.1.{TWO}")).await;
        assert_eq!(got["replaced"], json!([]), "the source's agent knows another node: {got}");
        sleep(2 * SWEPT).await;
    })
    .await;
    assert!(copy(&empty, ONE).running);
}

#[tokio::test(start_paused = true)] // M125
async fn what_is_adopted_without_the_other_node_is_kept_down_when_that_is_back() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.cut_off(ONE);
        assert_eq!(world.declare(&format!("switch&source_dead={ONE}")).await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
    })
    .await;
    assert!(copy(&world, ONE).running, "it was only cut off");
    let empty = restored(&world, None).await;
    beside(&empty, async {
        sleep(SWEPT).await;
        let (status, body) = adopt(&empty, "").await;
        assert_eq!((status, &body["code"]), (412, &json!("PreconditionFailed")), "{body}");
        // The store has never had that node.
        let (status, body) = adopt(&empty, &format!("?other={ONE}")).await;
        let why = body["message"].as_str().unwrap();
        assert!(status == 412 && why.contains("no last contact of its agent"), "{why}");
        let (status, body) = adopt(&empty, &format!("?other={ONE}&really=true")).await;
        assert_eq!(status, 200, "{body}");
        empty.centre().hosts.get_mut(&ONE).unwrap().is_silent = false;
        sleep(2 * SWEPT).await;
    })
    .await;
    assert!(copy(&empty, ONE).is_off() && copy(&empty, TWO).running);
}

#[tokio::test(start_paused = true)] // M123
async fn a_node_that_claims_a_vm_of_another_node_is_shown_and_stops_no_migration() {
    let world = World::new(true);
    // VMAPI has the VM on the first node, whose agent has nothing open of it.
    let claims = 1..1500_u128;
    let of_liar = claims.map(|id| (Uuid::from_u128(id), (u64::MAX, End::Target)));
    world.centre().hosts.get_mut(&TWO).unwrap().received = of_liar.collect();
    beside(&world, async {
        sleep(SWEPT).await;
        assert_eq!(world.plain().await.records.strangers.all().await.unwrap(), []);
        let liar = (1..1500_u128).map(|id| (Uuid::from_u128(id), (7, End::Target)));
        world.centre().hosts.get_mut(&TWO).unwrap().received = liar.collect();
    })
    .await;
    let again = restored(&world, None).await;
    beside(&again, async {
        sleep(SWEPT).await;
        let kept = again.plain().await.records.strangers.all().await.unwrap().len();
        assert_eq!(kept, 1000, "what is kept of a node has a bound");
        assert!(page(&again, "/status").await.contains(&format!("on {TWO} migration")));
        let (status, body) = again.act("estimate").await;
        assert_eq!(status, 200, "{body}");
        // What the node says of itself counts.
        again.services.vmapi.set(&VM.to_string(), "running", Some(&TWO.to_string()));
        let (status, body) = again.act("estimate").await;
        assert_eq!(status, 412, "{body}");
    })
    .await;
}
