// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Nodes that do not answer: what is told of them, and that what is told ends it.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::node::{ONE, TWO, VM};
use super::story::{AUTOMATIC, beside};
use super::words::page;
use super::world::{DEAD_AFTER, World};
use migration_core::record::State;

/// What `sdc-migrate get` asks.
async fn got(world: &Arc<World>) -> Value {
    world.ask("GET", &format!("/migrations/{VM}?format=raw"), json!({})).await.1
}

/// Types a command of `sdc-migrate`: what its flags are on the wire is a matter of names.
async fn typed(world: &Arc<World>, command: &str) -> (u16, Value) {
    let mut words = command.strip_prefix("sdc-migrate ").unwrap().split(' ');
    let mut query = words.next().unwrap().to_owned();
    while let Some(word) = words.next() {
        query += &match word {
            "--source-dead" => format!("&source_dead={}", words.next().unwrap()),
            "--target-dead" => format!("&target_dead={}", words.next().unwrap()),
            "--discard" => "&discard=true".to_owned(),
            "--really" => "&really=true".to_owned(),
            vm => {
                assert_eq!(vm, VM.to_string());
                String::new()
            }
        };
    }
    world.act(&query).await
}

/// What was done before a node went off, or after that; which one; the state that is told, its command, and the node on
/// which the VM runs when that has ended it.
const TABLE: [(&str, &str, Uuid, &str, &str, Uuid); 9] = [
    ("", "", ONE, "source", "switch --source-dead ONE VM", TWO),
    ("", "sync", ONE, "source", "switch --source-dead ONE VM", TWO),
    ("", "switch", ONE, "source", "switch --source-dead ONE VM", TWO),
    ("", "", TWO, "copy", "abort --target-dead TWO VM", ONE),
    ("", "sync", TWO, "copy", "abort --target-dead TWO VM", ONE),
    ("switch", "", TWO, "target", "rollback --target-dead TWO --discard VM", ONE),
    ("switch", "rollback", TWO, "target", "rollback --target-dead TWO --discard VM", ONE),
    ("switch", "", ONE, "old", "finalize --source-dead ONE VM", TWO),
    ("switch", "rollback", ONE, "source", "switch --source-dead ONE VM", TWO),
];

#[tokio::test(start_paused = true)] // M270
async fn of_a_node_that_is_silent_the_whole_command_is_told_and_it_ends_that() {
    for (before, after, off, state, command, runs) in TABLE {
        // Asked while a step waits for the node, after it has failed, and when the node may be taken for dead.
        let moments = if after.is_empty() { ["waits", "old"] } else { ["waits", "failed"] };
        for moment in moments {
            let case = format!("{before}, {after}, {off} {moment}");
            let world = World::new(true);
            let story = Box::pin(async {
                world.synced().await;
                if before == "switch" {
                    assert_eq!(world.act(before).await.0, 202);
                    assert_eq!(world.settled().await.unwrap().state, State::Successful);
                }
                world.power(off, false);
                world.centre().hosts.get_mut(&off).unwrap().is_stuck = true;
                if !after.is_empty() {
                    assert_eq!(world.act(after).await.0, 202, "{case}");
                }
                match moment {
                    "waits" => sleep(Duration::from_secs(59)).await,
                    "failed" => drop(world.settled().await),
                    _ => sleep(DEAD_AFTER).await,
                }
                let shown = got(&world).await;
                let told = &shown["silence"];
                let command = command.replace("ONE", &ONE.to_string());
                let command =
                    command.replace("TWO", &TWO.to_string()).replace("VM", &VM.to_string());
                let said = told["command"].as_str().unwrap_or_default();
                assert_eq!(
                    told["state"],
                    json!(format!("migration-{state}-silent")),
                    "{case}: {shown:#}"
                );
                assert_eq!(
                    said.strip_suffix(" --really").unwrap_or(said),
                    format!("sdc-migrate {command}"),
                    "{case}"
                );
                assert!(moment != "old" || !said.ends_with("--really"), "{case}: {said}");
                assert!(
                    told["signs"].as_str().unwrap().contains("last heartbeat of"),
                    "{case}: {told}"
                );
                let place = shown["where"].as_str().unwrap();
                let is_known = place.contains("and runs");
                let of_vm = if before == "switch" { TWO } else { ONE };
                assert!(
                    place.contains(&of_vm.to_string()) && is_known == (of_vm != off),
                    "{case}: {place}"
                );
                if moment != "waits" {
                    assert!(page(&world, "/status").await.contains(&command), "{case}");
                    assert!(
                        page(&world, "/metrics").await.contains("migrations_silent 1"),
                        "{case}"
                    );
                }
                let began = Instant::now();
                let (status, body) = typed(&world, said).await;
                assert!(status < 300, "{case}: {said}: {body}");
                let mut record = world.settled().await;
                if let Some(switched) = record.take_if(|it| it.state == State::Successful) {
                    // That went on with the switch: it is left to be finalized, without that node.
                    assert!(said.contains("switch"), "{case}: {switched:?}");
                    assert_eq!(world.act("finalize").await.0, 200, "{case}");
                    record = world.settled().await;
                }
                assert!(record.is_none_or(|it| it.state == State::Aborted), "{case}");
                assert!(began.elapsed() < Duration::from_secs(60), "{case}: {:?}", began.elapsed());
            });
            beside(&world, story).await;
            let centre = world.centre();
            let copy = centre.hosts[&runs].copy.as_ref().unwrap();
            assert!(copy.running && !copy.hidden, "{case}: {copy:?}");
            assert_eq!(
                (&centre.broken, &world.record_in_vmapi()["server_uuid"]),
                (&None, &json!(runs)),
                "{case}"
            );
        }
    }
}

#[tokio::test(start_paused = true)] // M270
async fn without_both_nodes_there_is_nothing_to_be_typed_and_when_they_are_back_nothing_was() {
    let world = World::new(true);
    beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
        for cn in [ONE, TWO] {
            world.cut_off(cn);
        }
        sleep(Duration::from_secs(59)).await;
        let shown = got(&world).await;
        assert_eq!(shown["silence"]["command"], json!("svcs -xv migration-agent"), "{shown:#}");
        for cn in [ONE, TWO] {
            world.centre().hosts.get_mut(&cn).unwrap().is_silent = false;
        }
        sleep(Duration::from_secs(20)).await;
        let shown = got(&world).await;
        assert_eq!(
            (&shown["silence"], &shown["where"]),
            (&Value::Null, &json!(format!("it is on {TWO} and runs")))
        );
    })
    .await;
}

#[tokio::test(start_paused = true)] // M271
async fn what_would_be_lost_is_said_before_anything_is_written() {
    let world = World::new(true);
    beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
        world.power(TWO, false);
        sleep(DEAD_AFTER).await;
        let before = world.record().await.unwrap();
        let (status, body) = world.act(&format!("rollback&target_dead={TWO}")).await;
        let why = body["message"].as_str().unwrap();
        assert_eq!(status, 412, "{body}");
        assert!(why.contains("add --discard") && why.contains("since the switch (2026-"), "{why}");
        assert_eq!(world.record().await.unwrap(), before);
    })
    .await;
}

#[tokio::test(start_paused = true)] // M272
async fn an_abort_that_failed_does_not_wait_for_the_same_node_again() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.power(TWO, false);
        assert_eq!(world.act("abort").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Failed);
        let began = Instant::now();
        assert_eq!(world.act("abort&force=true").await.0, 202);
        assert_eq!(world.settled().await.unwrap().state, State::Aborted);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    })
    .await;
}
