// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Copies on nodes that were declared dead, and were not.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::node::{ONE, TWO, VM};
use super::story::beside;
use super::words::page;
use super::world::World;
use migration_core::machine::Copy;
use migration_core::record::State;

/// The pause between two checks, and what the orders take.
const CHECKED: Duration = Duration::from_secs(75);

fn copy(world: &Arc<World>, cn: Uuid) -> Copy {
    world.centre().hosts[&cn].copy.clone().unwrap()
}

/// The source was cut off while its copy ran, and the target was switched to by an operator's word.
async fn cut_off(world: &Arc<World>) {
    world.synced().await;
    world.cut_off(ONE);
    assert_eq!(world.declare(&format!("switch&source_dead={ONE}")).await.0, 202);
    let record = world.settled().await.unwrap();
    assert_eq!(record.state, State::Successful, "{:?}", record.error);
    let copy = copy(world, ONE);
    assert!(copy.running && copy.autoboot && !copy.hidden, "it was only cut off: {copy:?}");
}

fn answers(world: &Arc<World>) {
    world.centre().hosts.get_mut(&ONE).unwrap().is_silent = false;
}

#[tokio::test(start_paused = true)] // M120
async fn a_copy_that_was_replaced_is_stopped_and_hidden_within_a_minute_of_its_node_s_return() {
    let world = World::new(true);
    beside(&world, async {
        cut_off(&world).await;
        answers(&world);
        sleep(CHECKED).await;
        assert!(copy(&world, ONE).is_off(), "{:?}", copy(&world, ONE));
        assert!(world.centre().hosts[&ONE].held, "net-agent would delete its NICs");
        assert!(copy(&world, TWO).running && !copy(&world, TWO).hidden);
        // Again, when an operator starts it by hand.
        world.centre().hosts.get_mut(&ONE).unwrap().copy.as_mut().unwrap().running = true;
        sleep(CHECKED).await;
        assert!(copy(&world, ONE).is_off());
    })
    .await;
}

#[tokio::test(start_paused = true)] // M120 M121
async fn it_is_watched_after_finalize_until_it_is_gone() {
    let world = World::new(true);
    beside(&world, async {
        cut_off(&world).await;
        let (status, body) = world.act(&format!("finalize&force=true&source_dead={ONE}")).await;
        assert_eq!(status, 200, "{body}");
        assert!(world.settled().await.is_none(), "the record has gone");
        sleep(Duration::from_secs(2 * 3600)).await;
        answers(&world);
        sleep(CHECKED).await;
        assert!(copy(&world, ONE).is_off(), "{:?}", copy(&world, ONE));
        assert!(page(&world, "/status").await.contains("is back since"));
        assert!(page(&world, "/metrics").await.contains("migration_service_migrations_returned 1"));
        assert!(world.centre().hosts[&ONE].over.is_empty());
        // An operator deletes it there.
        world.centre().hosts.get_mut(&ONE).unwrap().copy = None;
        sleep(CHECKED).await;
        assert_eq!(world.centre().hosts[&ONE].over.len(), 1);
        let observed = world.centre().hosts[&ONE].observed;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(world.centre().hosts[&ONE].observed, observed, "nothing is left to observe");
    })
    .await;
    assert!(page(&world, "/metrics").await.contains("migration_service_migrations_returned 0"));
    assert!(copy(&world, TWO).running && !copy(&world, TWO).hidden);
}

#[tokio::test(start_paused = true)] // M235
async fn vmapi_s_record_moves_again_when_its_old_node_has_taken_it_back() {
    for is_dead in [true, false] {
        let world = World::new(true);
        let takes_back =
            || world.services.vmapi.set(&VM.to_string(), "running", Some(&ONE.to_string()));
        let is_on = |cn: Uuid| world.record_in_vmapi()["server_uuid"] == serde_json::json!(cn);
        beside(&world, async {
            if is_dead {
                cut_off(&world).await;
                takes_back();
                sleep(CHECKED).await;
                assert!(is_on(TWO), "it was put right in the rounds");
                assert_eq!(world.record_in_vmapi()["state"], "running");
            } else {
                world.synced().await;
                world.command("migration_action=switch").await.unwrap();
                assert_eq!(world.settled().await.unwrap().state, State::Successful);
            }
            takes_back();
            assert!(is_on(ONE));
            let dead = if is_dead { format!("&source_dead={ONE}") } else { String::new() };
            let (status, body) = world.act(&format!("finalize&force=true{dead}")).await;
            assert_eq!(status, 200, "{body}");
            let record = world.settled().await;
            assert!(record.is_none(), "{record:?}");
            assert!(is_on(TWO), "a finalize begins with it");
        })
        .await;
    }
}

/// The copy that was replaced is the only one, and is rescued.
async fn rescued(world: &Arc<World>) {
    world.centre().hosts.get_mut(&TWO).unwrap().copy = None;
    let (status, body) = world.act("rescue").await;
    assert_eq!(status, 202, "{body}");
    let record = world.settled().await;
    assert!(record.is_none(), "{record:?}");
    let is_up = |copy: Copy| copy.running && copy.autoboot && !copy.hidden;
    assert!(is_up(copy(world, ONE)), "{:?}", copy(world, ONE));
    sleep(8 * CHECKED).await;
    assert!(is_up(copy(world, ONE)), "the service stops it: {:?}", copy(world, ONE));
    assert!(page(world, "/metrics").await.contains("migration_service_migrations_returned 0"));
}

#[tokio::test(start_paused = true)] // M121
async fn a_rescue_of_the_copy_that_was_replaced_ends_its_watch() {
    for is_finalized in [false, true] {
        let world = World::new(true);
        beside(&world, async {
            cut_off(&world).await;
            if is_finalized {
                let finalize = format!("finalize&force=true&source_dead={ONE}");
                assert_eq!(world.act(&finalize).await.0, 200);
                assert!(world.settled().await.is_none());
            }
            answers(&world);
            sleep(CHECKED).await;
            assert!(copy(&world, ONE).is_off());
            rescued(&world).await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)] // M121
async fn a_copy_that_was_replaced_is_not_rescued_while_the_other_is_there() {
    let world = World::new(true);
    beside(&world, async {
        cut_off(&world).await;
        let finalize = format!("finalize&force=true&source_dead={ONE}");
        assert_eq!(world.act(&finalize).await.0, 200);
        assert!(world.settled().await.is_none());
        answers(&world);
        sleep(CHECKED).await;
        // A refusal opens no migration, whichever node does not answer.
        for (silent, why) in [
            (None, "both nodes have a copy of the VM: there is nothing to rescue"),
            (Some(TWO), "migration-agent on the target's node does not answer"),
            (Some(ONE), "no agent has a migration of the instance"),
        ] {
            for cn in [ONE, TWO] {
                world.centre().hosts.get_mut(&cn).unwrap().is_silent = silent == Some(cn);
            }
            for action in ["rescue", "rescue&really=true"] {
                let (status, body) = world.act(action).await;
                assert!(status >= 400, "{silent:?}: {body}");
                let said = body["message"].as_str().unwrap();
                assert!(said.contains(why) || silent == Some(ONE), "{silent:?}: {said}");
                assert!(world.record().await.is_none(), "{silent:?}");
            }
            world.centre().hosts.get_mut(&TWO).unwrap().is_silent = false;
        }
        answers(&world);
        sleep(8 * CHECKED).await;
        assert!(copy(&world, ONE).is_off() && copy(&world, TWO).running);
        assert!(!copy(&world, TWO).hidden);
    })
    .await;
}

#[tokio::test(start_paused = true)] // M121
async fn a_copy_that_runs_though_it_was_replaced_is_an_alarm_that_pages() {
    let world = World::new(true);
    beside(&world, async {
        cut_off(&world).await;
        let state =
            migration_core::protocol::State::Failed { error: "vmadm is busy".into(), fatal: false };
        let fails = super::node::Fails { name: "stop", state, times: 6, moved: |_| (0, 0) };
        world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
        answers(&world);
        sleep(CHECKED).await;
        assert!(copy(&world, ONE).running);
        let metrics = page(&world, "/metrics").await;
        assert!(metrics.contains("migration_service_migrations_replaced_running 1"), "{metrics}");
        let status = page(&world, "/status").await;
        assert!(status.contains(&format!("{VM}: it RUNS on {ONE}")), "{status}");
        sleep(4 * CHECKED).await;
        let metrics = page(&world, "/metrics").await;
        assert!(metrics.contains("migration_service_migrations_replaced_running 0"), "{metrics}");
    })
    .await;
    assert!(copy(&world, ONE).is_off());
}

#[tokio::test(start_paused = true)] // M273
async fn a_rescue_that_is_refused_changes_nothing_of_a_migration_at_rest() {
    for before in ["sync", "switch"] {
        let world = World::new(true);
        beside(&world, async {
            world.synced().await;
            if before == "switch" {
                assert_eq!(world.act("switch").await.0, 202);
                world.settled().await.unwrap();
            }
            for silent in [None, Some(ONE), Some(TWO)] {
                for cn in [ONE, TWO] {
                    world.centre().hosts.get_mut(&cn).unwrap().is_silent = silent == Some(cn);
                }
                let before = world.record().await.unwrap();
                let (status, body) = world.act("rescue").await;
                assert_eq!(status, 412, "{silent:?}: {body}");
                let after = world.record().await.unwrap();
                assert_eq!((after.phase, after.state), (before.phase, before.state));
                assert_eq!(
                    (after.error.clone(), after.progress_history.len()),
                    (None, before.progress_history.len())
                );
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)] // M274
async fn finalize_ends_that_a_copy_which_was_replaced_is_back() {
    for (end, is_open) in [("source", true), ("source", false), ("target", false)] {
        let world = World::new(true);
        let story = Box::pin(async {
            let (old, new) = if end == "source" { (ONE, TWO) } else { (TWO, ONE) };
            world.synced().await;
            if end == "target" {
                assert_eq!(world.act("switch").await.0, 202);
                world.settled().await.unwrap();
            }
            world.cut_off(old);
            let word = match end {
                "source" => format!("switch&source_dead={ONE}"),
                _ => format!("rollback&target_dead={TWO}&discard=true"),
            };
            assert_eq!(world.declare(&word).await.0, 202);
            let left = world.settled().await;
            if !is_open && left.is_some() {
                assert_eq!(world.act("finalize").await.0, 200);
                assert!(world.settled().await.is_none());
            }
            world.centre().hosts.get_mut(&old).unwrap().is_silent = false;
            sleep(CHECKED).await;
            let command = format!("sdc-migrate finalize {VM}");
            assert!(page(&world, "/status").await.contains(&command), "{end}");
            let (_, got) =
                world.ask("GET", &format!("/migrations/{VM}?format=raw"), json!({})).await;
            assert!(
                is_open || got["errors"][0]["message"].as_str().unwrap().contains(&command),
                "{got}"
            );
            if !is_open {
                // Where nothing shows that the VM is elsewhere the last copy may be this one.
                let vmapi_has = |cn: Uuid| {
                    world.services.vmapi.set(&VM.to_string(), "running", Some(&cn.to_string()));
                };
                vmapi_has(old);
                assert_eq!(world.act("finalize").await.0, 412, "{end}");
                vmapi_has(new);
                world.centre().hosts.get_mut(&new).unwrap().copy.as_mut().unwrap().hidden = true;
                assert_eq!(world.act("finalize").await.0, 412, "{end}");
                world.centre().hosts.get_mut(&new).unwrap().copy.as_mut().unwrap().hidden = false;
                // What was refused is not done later, either.
                sleep(CHECKED).await;
                assert!(world.centre().hosts[&old].copy.is_some(), "{end}");
            }
            let (status, body) = world.act("finalize").await;
            assert!(status < 300, "{end} {is_open}: {body}");
            let record = world.settled().await;
            assert!(
                record.as_ref().is_none_or(|it| it.state == State::Aborted),
                "{end}: {record:?}"
            );
            assert!(world.centre().hosts[&old].copy.is_none(), "{end} {is_open}");
            assert!(copy(&world, new).running && !copy(&world, new).hidden);
            sleep(CHECKED).await;
            assert!(
                page(&world, "/metrics").await.contains("migration_service_migrations_returned 0"),
                "{end}"
            );
        });
        beside(&world, story).await;
    }
}
