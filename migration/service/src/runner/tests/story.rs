// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whole migrations, without anything that goes wrong, and with what an agent can say.

use std::sync::Arc;
use std::time::Duration;

use mocks::napi::NewNic;
use pretty_assertions::assert_eq;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::node::{BORN, Fails, NETWORK, ONE, OWNER, TWO, VM, ip, mac};
use super::world::World;
use crate::runner::{TERM, lead};
use migration_core::protocol;
use migration_core::record::{Phase, State};

/// Runs a service beside a story.
pub async fn beside<T>(world: &Arc<World>, story: impl Future<Output = T>) -> T {
    let service = Box::pin(world.service(&world.store)).await;
    let story = Box::pin(story);
    tokio::select! {
        () = Box::pin(lead(service, world.store.clone(), TERM)) => unreachable!("it never returns"),
        () = world.beats() => unreachable!("nor do these"),
        told = story => told,
    }
}

pub const AUTOMATIC: &str = "migration_action=begin&migration_automatic=true";

#[tokio::test(start_paused = true)] // R2 R3 R6 M17 M18
async fn an_automatic_migration_goes_from_begin_to_finalize() {
    for is_running in [true, false] {
        let world = World::new(is_running);
        let record = beside(&world, async {
            world.command(AUTOMATIC).await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!(
            (record.phase, record.state),
            (Phase::Switch, State::Successful),
            "{:?}",
            record.error
        );
        assert_eq!((record.owner_uuid, record.target_server_uuid), (Some(OWNER), Some(TWO)));
        assert!(record.num_sync_phases >= 2, "{}", record.num_sync_phases);
        {
            let centre = world.centre();
            let (source, target) = (&centre.hosts[&ONE], &centre.hosts[&TWO]);
            let (old, new) = (source.copy.as_ref().unwrap(), target.copy.as_ref().unwrap());
            assert!(old.is_off() && !old.quota_lifted && source.held);
            assert_eq!((new.running, new.autoboot, new.hidden), (is_running, is_running, false));
            assert!(!target.held && !new.quota_lifted);
            assert_eq!(target.created, BORN);
            assert_eq!(world.record_in_vmapi()["server_uuid"], serde_json::json!(TWO));
            assert_eq!((world.is_reserved(), world.tickets().len()), (false, 0));
            assert_eq!(centre.broken, None);
        }
        let gone = beside(&world, async {
            world.command("migration_action=finalize").await.unwrap();
            world.settled().await
        });
        assert!(gone.await.is_none());
        let centre = world.centre();
        assert!(centre.hosts[&ONE].copy.is_none() && !centre.hosts[&ONE].held);
        assert!(centre.hosts[&TWO].copy.as_ref().unwrap().snapshots.is_empty());
        assert_eq!((centre.hosts[&ONE].over.len(), centre.hosts[&TWO].over.len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)] // M17
async fn a_rollback_brings_back_what_the_target_wrote() {
    let world = World::new(true);
    let gone = beside(&world, async {
        world.command(AUTOMATIC).await.unwrap();
        world.settled().await.unwrap();
        world.command("migration_action=rollback").await.unwrap();
        world.settled().await
    });
    assert!(gone.await.is_none());
    let centre = world.centre();
    let source = &centre.hosts[&ONE];
    let copy = source.copy.as_ref().unwrap();
    assert!(copy.running && copy.autoboot && !copy.hidden && copy.snapshots.is_empty());
    assert!(source.data > 1000, "the target's boot had written");
    assert!(centre.hosts[&TWO].copy.is_none());
    assert_eq!(world.record_in_vmapi()["server_uuid"], serde_json::json!(ONE));
    assert_eq!((world.is_reserved(), world.tickets().len(), &centre.broken), (false, 0, &None));
}

#[tokio::test(start_paused = true)] // M104
async fn a_switch_whose_fault_is_gone_boots_within_seconds() {
    let world = World::new(true);
    let runs = |cn: Uuid| world.centre().hosts[&cn].copy.as_ref().unwrap().running;
    beside(&world, async {
        world.synced().await;
        assert_eq!(world.act("switch").await.0, 202);
        while runs(ONE) {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!runs(TWO));
        world.centre().hosts.get_mut(&TWO).unwrap().is_silent = true;
        sleep(Duration::from_secs(110)).await;
        world.centre().hosts.get_mut(&TWO).unwrap().is_silent = false;
        let began = Instant::now();
        while !runs(TWO) {
            assert!(began.elapsed() < Duration::from_secs(20), "it is still down");
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(world.centre().broken, None);
}

/// Types `switch` in a synced world, and returns how it ended and whether the VM was ever seen down.
async fn switched(world: &Arc<World>, how: &str) -> (String, bool) {
    world.synced().await;
    world.command(&format!("migration_action=switch{how}")).await.unwrap();
    let mut was_down = false;
    while world.record().await.unwrap().state != State::Failed
        && world.record().await.unwrap().state != State::Successful
    {
        was_down |= {
            let centre = world.centre();
            !centre.hosts.values().any(|it| it.copy.as_ref().is_some_and(|it| it.running))
        };
        sleep(Duration::from_millis(1)).await;
    }
    (world.record().await.unwrap().error.clone().unwrap_or_default(), was_down)
}

#[tokio::test(start_paused = true)] // M230
async fn what_a_switch_lacks_is_said_while_the_vm_runs() {
    let world = World::new(true);
    let (why, was_down) = beside(&world, async {
        let state = protocol::State::Failed { error: "zones/x is held there".into(), fatal: true };
        let fails = Fails { name: "rehearse", state, times: 1, moved: |_| (0, 0) };
        world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
        switched(&world, "").await
    })
    .await;
    assert_eq!((why.as_str(), was_down), ("zones/x is held there", false));
}

#[tokio::test(start_paused = true)] // M230
async fn an_address_that_napi_gives_to_another_is_said_while_the_vm_runs() {
    let world = World::new(true);
    let other = Uuid::from_u128(99).to_string();
    let napi = &world.services.napi;
    assert!(napi.remove(&mac(VM)));
    let nic = NewNic::zone("90:b8:d0:00:00:63", &other, &ONE.to_string());
    let nic = nic.with("network_uuid", serde_json::json!(NETWORK));
    napi.add_nic(nic.with("ip", serde_json::json!(ip(VM)))).unwrap();
    let (why, was_down) = beside(&world, switched(&world, "")).await;
    assert_eq!(why, format!("NAPI gives the VM's address {} to {other}", ip(VM)));
    assert!(!was_down);
}

#[tokio::test(start_paused = true)] // M231
async fn a_switch_that_would_take_longer_than_allowed_stops_no_vm() {
    for (most, refused) in [("5", true), ("0", false), ("3600", false)] {
        let world = World::new(true);
        let (why, was_down) =
            beside(&world, switched(&world, &format!("&max_downtime={most}"))).await;
        assert_eq!(why.contains("--max-downtime allows 5 s"), refused, "{why}");
        assert_eq!(was_down, !refused);
    }
}

#[tokio::test(start_paused = true)] // M232
async fn an_agent_that_reads_for_long_is_not_silent_and_an_abort_does_not_wait_for_it() {
    let world = World::new(true);
    let began = beside(&world, async {
        world.synced().await;
        world.centre().hosts.get_mut(&ONE).unwrap().is_slow = true;
        world.command("migration_action=sync").await.unwrap();
        sleep(Duration::from_secs(600)).await;
        let record = world.record().await.unwrap();
        assert_eq!((record.state, &record.intent.again), (State::Running, &None));
        let waits = migration_core::need::waits_for(&record, None, record.created_timestamp);
        assert!(waits.unwrap().contains("`zfs get -r zones/x` on the source's node"));
        let began = Instant::now();
        world.command("migration_action=abort&force=true").await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Aborted);
        began
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(60));
    let centre = world.centre();
    assert!(centre.hosts[&ONE].copy.as_ref().unwrap().snapshots.is_empty());
    assert!(centre.hosts[&TWO].copy.is_none());
}

#[tokio::test(start_paused = true)] // M233
async fn an_abort_that_waits_for_a_program_is_let_go_and_names_what_is_left() {
    let world = World::new(true);
    let record = beside(&world, async {
        world.synced().await;
        let moved = |_| (0, 0);
        let state = protocol::State::Running;
        let fails = Fails { name: "delete", state, times: u32::MAX, moved };
        world.centre().hosts.get_mut(&TWO).unwrap().fails = Some(fails);
        world.command("migration_action=abort").await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let record = world.record().await.unwrap();
        let waits = migration_core::need::waits_for(&record, None, record.created_timestamp);
        assert!(waits.unwrap().contains("`vmadm delete x` on the target's node"));
        world.command("migration_action=abort&force=true").await.unwrap();
        world.settled().await.unwrap()
    })
    .await;
    assert_eq!(record.state, State::Aborted);
    let error = record.error.clone().unwrap();
    assert!(error.contains("is left") && error.contains("`vmadm delete x`"), "{error}");
    let centre = world.centre();
    let copy = centre.hosts[&ONE].copy.as_ref().unwrap();
    assert!(copy.running && !copy.hidden && copy.snapshots.is_empty());
}

#[tokio::test(start_paused = true)] // R25
async fn an_alias_that_changes_between_the_syncs_is_brought_over() {
    let world = World::new(true);
    beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap();
        world.command("migration_action=sync").await.unwrap();
        world.settled().await.unwrap();
        world.centre().hosts.get_mut(&ONE).unwrap().alias = "b".into();
        world.command("migration_action=switch").await.unwrap();
        assert_eq!(world.settled().await.unwrap().state, State::Successful);
    })
    .await;
    let centre = world.centre();
    assert_eq!(centre.hosts[&TWO].alias, "b");
    assert_eq!(world.record_in_vmapi()["alias"], "b");
}

#[tokio::test(start_paused = true)] // R15
async fn a_step_that_fails_is_tried_again_and_one_that_cannot_succeed_is_undone() {
    type Moved = fn(u32) -> (u64, u64);
    let nothing: Moved = |_| (0, 1000);
    // Refused by the other end when all was sent.
    let all: Moved = |_| (1000, 1000);
    // Of a stream that comes farther each time, or has less left, as many as you like may be cut.
    let farther: Moved = |left| (1000 - u64::from(left), 1000);
    let less_left: Moved = |left| (10, 100 + 10 * u64::from(left));
    for (fatal, times, moved, want) in [
        (false, 1, nothing, State::Paused),
        (true, 1, nothing, State::Failed),
        (false, 9, nothing, State::Paused),
        (false, 10, nothing, State::Failed),
        (false, 9, all, State::Paused),
        (false, 10, all, State::Failed),
        (false, 30, farther, State::Paused),
        (false, 30, less_left, State::Paused),
    ] {
        let state = protocol::State::Failed { error: "out of space".into(), fatal };
        let fails = Fails { name: "send", state, times, moved };
        let world = World::new(true);
        let record = beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap();
            world.centre().hosts.get_mut(&ONE).unwrap().fails = Some(fails);
            world.command("migration_action=sync").await.unwrap();
            world.settled().await.unwrap()
        });
        let record = record.await;
        assert_eq!((record.phase, record.state), (Phase::Sync, want));
        assert_eq!(record.error.as_deref(), (want == State::Failed).then_some("out of space"));
        assert!(!world.centre().hosts[&ONE].copy.as_ref().unwrap().quota_lifted);
    }
}

/// The next orders of this name fail on a node, so many times.
fn fail(world: &World, cn: uuid::Uuid, name: &'static str, times: u32) {
    let state = protocol::State::Failed { error: "it is busy".into(), fatal: false };
    let fails = Fails { name, state, times, moved: |_| (0, 0) };
    world.centre().hosts.get_mut(&cn).unwrap().fails = Some(fails);
}

#[tokio::test(start_paused = true)] // M11 R15
async fn a_finalize_that_fails_leaves_the_vm_on_and_the_next_one_goes_on() {
    for (times, fails) in [(9, false), (10, true)] {
        let world = World::new(true);
        beside(&world, async {
            world.command(AUTOMATIC).await.unwrap();
            world.settled().await.unwrap();
            fail(&world, ONE, "delete", times);
            world.command("migration_action=finalize").await.unwrap();
            let record = world.settled().await;
            assert_eq!(record.is_some(), fails, "{record:?}");
            if let Some(record) = record {
                assert_eq!((record.phase, record.state), (Phase::Switch, State::Successful));
                assert_eq!(record.error.as_deref(), Some("it is busy"));
                assert!(world.centre().hosts[&ONE].copy.as_ref().unwrap().is_off());
                assert!(world.centre().hosts[&TWO].copy.as_ref().unwrap().running);
                world.command("migration_action=finalize").await.unwrap();
                assert!(world.settled().await.is_none());
            }
        })
        .await;
        let centre = world.centre();
        assert!(centre.hosts[&ONE].copy.is_none() && !centre.hosts[&ONE].held);
        assert!(centre.hosts[&TWO].copy.as_ref().unwrap().running);
    }
}

#[tokio::test(start_paused = true)] // M24 R15
async fn a_pause_that_cannot_restore_the_quota_fails_and_the_next_sync_goes_on() {
    for (times, want) in [(9, State::Paused), (10, State::Failed)] {
        let world = World::new(true);
        beside(&world, async {
            world.command("migration_action=begin").await.unwrap();
            world.settled().await.unwrap();
            fail(&world, ONE, "restore_quota", times);
            // A sync waits in its middle.
            world.centre().hosts.get_mut(&ONE).unwrap().copy.as_mut().unwrap().quota_lifted = true;
            world.centre().hosts.get_mut(&TWO).unwrap().is_silent = true;
            world.command("migration_action=sync").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            world.centre().hosts.get_mut(&TWO).unwrap().is_silent = false;
            world.command("migration_action=pause").await.unwrap();
            let record = world.settled().await.unwrap();
            assert_eq!((record.phase, record.state), (Phase::Sync, want), "{:?}", record.error);
            assert!(world.centre().hosts[&ONE].copy.as_ref().unwrap().running);
            world.command("migration_action=sync").await.unwrap();
            let record = world.settled().await.unwrap();
            assert_eq!((record.state, record.error.clone()), (State::Paused, None));
            assert!(!world.centre().hosts[&ONE].copy.as_ref().unwrap().quota_lifted);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)] // R16 M21
async fn a_target_that_is_lost_before_it_is_shown_gives_the_source_back() {
    let world = World::new(true);
    let record = beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap();
        world.command("migration_action=sync").await.unwrap();
        world.settled().await.unwrap();
        world.centre().hosts.get_mut(&TWO).unwrap().is_silent = true;
        world.command("migration_action=switch").await.unwrap();
        world.settled().await.unwrap()
    });
    let record = record.await;
    assert_eq!((record.phase, record.state), (Phase::Sync, State::Failed));
    assert_eq!(
        record.error.as_deref(),
        Some("migration-agent on the target's node does not answer")
    );
    let centre = world.centre();
    let copy = centre.hosts[&ONE].copy.as_ref().unwrap();
    assert!(copy.running && copy.autoboot && !copy.hidden);
    // The room for the target on its node.
    assert_eq!((world.tickets().len(), world.is_reserved()), (1, false));
}

#[tokio::test(start_paused = true)] // R17
async fn an_abort_removes_the_target_and_leaves_the_record() {
    let world = World::new(true);
    let record = beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        world.settled().await.unwrap();
        world.command("migration_action=abort").await.unwrap();
        world.settled().await.unwrap()
    });
    assert_eq!(record.await.state, State::Aborted);
    assert!(world.centre().hosts[&TWO].copy.is_none());
    beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)] // R21
async fn a_scheduled_migration_switches_at_its_time() {
    let world = World::new(true);
    let refused =
        world.command("migration_action=schedule&scheduled_timestamp=2026-03-01T02:00:00Z").await;
    assert_eq!(refused.unwrap_err().status(), 503, "no service runs the timers");
    let began = tokio::time::Instant::now();
    beside(&world, async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        world.command("migration_action=schedule&scheduled_timestamp=2 hours").await.unwrap();
        let waits = world.settled().await.unwrap();
        assert_eq!((waits.state, waits.num_sync_phases), (State::Scheduled, 1));
        loop {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            if world.record().await.unwrap().state == State::Successful {
                break;
            }
        }
    })
    .await;
    let took = began.elapsed().as_secs();
    assert!((7200..7260).contains(&took), "{took}");
}
