// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The service is killed at writes of the store and at requests, and started again.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;

use super::centre::Kill;
use super::node::{ONE, TWO};
use super::story::{AUTOMATIC, beside};
use super::world::World;
use crate::runner::{TERM, lead};
use migration_core::record::State;

/// One of so many events is tried: all of them take minutes.
const EVERY: usize = 41;

/// Plays a migration with its end, while the service is killed once.
async fn play(kill: Option<Kill>, end: &str) -> Arc<World> {
    let world = World::new(true);
    world.centre().kill = kill;
    let story = async {
        command(&world, AUTOMATIC).await;
        let record = world.settled().await.unwrap();
        assert_eq!(record.state, State::Successful, "{kill:?} {record:?}");
        command(&world, &format!("migration_action={end}")).await;
        assert!(world.settled().await.is_none(), "{kill:?}");
    };
    let runs = async {
        world.run().await;
        beside(&world, std::future::pending::<()>()).await
    };
    tokio::select! {
        () = story => {}
        () = runs => unreachable!("it never returns"),
    }
    world
}

/// Gives a command, again if its own request was the one that was lost.
async fn command(world: &Arc<World>, query: &str) {
    if world.command(query).await.is_err() {
        world.command(query).await.unwrap();
    }
}

fn check(world: &World, kill: Kill, is_rolled_back: bool) {
    let centre = world.centre();
    assert_eq!(centre.broken, None, "{kill:?}");
    let (stays, goes) = if is_rolled_back { (ONE, TWO) } else { (TWO, ONE) };
    let copy = centre.hosts[&stays].copy.as_ref().unwrap();
    assert!(
        copy.running && copy.autoboot && !copy.hidden && !copy.quota_lifted,
        "{kill:?} {copy:?}"
    );
    assert!(centre.hosts[&goes].copy.is_none(), "{kill:?}");
    assert_eq!(world.record_in_vmapi()["server_uuid"], serde_json::json!(stays), "{kill:?}");
    assert!(!world.is_reserved(), "{kill:?}: an address stays reserved");
    let held = centre.hosts.values().any(|host| host.held);
    assert!(!held, "{kill:?}: net-agent stays held");
    let tickets = world.tickets();
    assert!(tickets.is_empty(), "{kill:?}: {tickets:?}");
}

#[tokio::test(start_paused = true)] // M10 M11
async fn a_service_that_is_killed_anywhere_goes_on_from_the_record() {
    for (end, is_rolled_back) in [("finalize", false), ("rollback", true)] {
        let events = play(None, end).await.centre().events;
        assert!(events > 100, "{events}");
        let kills = (1..=events).step_by(EVERY).flat_map(|at| [Kill::Before(at), Kill::After(at)]);
        for kill in kills {
            let world = play(Some(kill), end).await;
            check(&world, kill, is_rolled_back);
        }
    }
}

#[tokio::test(start_paused = true)] // M49
async fn a_ticket_is_given_back_wherever_its_holder_is_killed() {
    // A rollback has all kinds: of a placement, a creation, a switch and its own.
    let events = play(None, "rollback").await.centre().of_tickets.clone();
    assert!(events.len() >= 12, "{events:?}");
    for kill in events.into_iter().flat_map(|at| [Kill::Before(at), Kill::After(at)]) {
        let world = play(Some(kill), "rollback").await;
        check(&world, kill, true);
    }
}

#[tokio::test(start_paused = true)] // M33
async fn a_holder_that_is_stopped_for_three_lease_times_changes_nothing_when_it_is_woken() {
    for ms in [1_005, 1_020, 1_040, 1_060, 1_080, 1_100] {
        let world = World::new(true);
        let (one, two) = (world.service(&world.store).await, world.service(&world.store).await);
        let mut stopped = Box::pin(lead(one, world.store.clone(), TERM));
        let mut other = Box::pin(lead(two, world.store.clone(), TERM));
        world.command(AUTOMATIC).await.unwrap();
        tokio::select! {
            () = &mut stopped => unreachable!(),
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
        }
        assert!(!world.centre().hosts[&ONE].orders.is_empty() || ms < 1_050, "{ms}");
        let record = tokio::select! {
            () = &mut other => unreachable!(),
            record = async {
                tokio::time::sleep(3 * TERM).await;
                world.settled().await.unwrap()
            } => record,
        };
        assert_eq!(record.state, State::Successful, "{ms}");
        let orders = |world: &World| -> usize {
            world.centre().hosts.values().map(|host| host.orders.len()).sum()
        };
        let before = orders(&world);
        tokio::select! {
            () = &mut stopped => unreachable!(),
            () = tokio::time::sleep(2 * TERM) => {}
        }
        assert_eq!(
            (world.record().await.unwrap().to_json(), orders(&world)),
            (record.to_json(), before)
        );
        assert_eq!(world.centre().broken, None);
    }
}

#[tokio::test(start_paused = true)] // R15
async fn services_that_lose_the_lease_to_each_other_give_a_step_its_attempts_once() {
    let world = World::new(true);
    beside(&world, async {
        world.synced().await;
        world.cut_off(ONE);
        world.command("migration_action=sync").await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    })
    .await;
    // Each lives for less than ten attempts take: ten of the sync, and ten of what undoes it.
    let mut lives = 0;
    while world.record().await.unwrap().state == State::Running {
        lives += 1;
        assert!(lives <= 10, "{:?}", world.record().await.unwrap().intent.again);
        beside(&world, tokio::time::sleep(Duration::from_secs(75))).await;
    }
    assert!(lives > 2, "one life sufficed");
    let record = world.record().await.unwrap();
    assert_eq!(record.state, State::Failed);
    assert!(record.error.as_ref().unwrap().contains("does not answer"), "{:?}", record.error);
}

#[tokio::test(start_paused = true)] // R13
async fn a_migration_waits_for_its_turn() {
    let world = World::new(true);
    world.limit(0).await;
    beside(&world, async {
        world.command("migration_action=begin").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.record().await.unwrap().state, State::Queued);
        assert!(world.centre().hosts[&TWO].copy.is_none());
        world.limit(1).await;
        assert_eq!(world.settled().await.unwrap().state, State::Paused);
    })
    .await;
}
