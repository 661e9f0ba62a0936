// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that was declared dead and was only cut off: its VM runs, and its agent hears nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use migration_core::intent::End;
use migration_core::machine::Copy;
use sdc_clients::identity::Identity;
use serde_json::json;
use simnode::node::Zfs;
use tokio::time::sleep;

use crate::world::{MIGRATION, VM, World};

const SERVICE: &str = "service.example";

/// A service that says this of the copies of each node, and counts how often it was asked.
fn service(world: &World, replaced: bool) -> Arc<AtomicUsize> {
    says(world, replaced, false)
}

fn says(world: &World, replaced: bool, over: bool) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let answer = move || async move {
        counted.fetch_add(1, Ordering::SeqCst);
        let replaced = if replaced { vec![MIGRATION] } else { vec![] };
        let over = if over { vec![MIGRATION] } else { vec![] };
        axum::Json(json!({ "replaced": replaced, "known": [MIGRATION], "over": over }))
    };
    let routes = Router::new().route("/agents/{cn}/replaced", get(answer));
    world.net.connect(SERVICE, Identity::Service, Some(routes));
    asked
}

async fn copy(world: &World, revision: u64) -> Copy {
    world.observe_at(End::Source, revision).await.copy.unwrap()
}

#[tokio::test(start_paused = true)] // M100
async fn a_copy_that_runs_and_was_replaced_is_stopped_and_hidden_within_two_minutes() {
    let world = World::new(Zfs::Illumos).await;
    assert!(copy(&world, 1).await.running);
    service(&world, true);
    world.source.asks(SERVICE);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.source.status()["migrations"][0]["replaced"], true);
    let found = copy(&world, 2).await;
    assert!(found.is_off(), "{found:?}");
    assert!(world.observe_at(End::Source, 2).await.held, "net-agent would delete its NICs");
    // An operator shows and starts it by hand.
    let verbs = world.source.verbs();
    verbs.hide(&VM.to_string(), false).await.unwrap();
    verbs.boot(&VM.to_string()).await.unwrap();
    sleep(Duration::from_secs(120)).await;
    let found = copy(&world, 3).await;
    assert!(found.is_off(), "{found:?}");
}

#[tokio::test(start_paused = true)] // M100
async fn an_agent_asks_only_when_it_has_heard_nothing_for_a_minute() {
    let world = World::new(Zfs::Illumos).await;
    let asked = service(&world, false);
    world.source.asks(SERVICE);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no migration is open");
    for revision in 1..=20 {
        copy(&world, revision).await;
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the service is heard");
    sleep(Duration::from_secs(600)).await;
    let count = asked.load(Ordering::SeqCst);
    assert!((8..=11).contains(&count), "{count}");
    let found = copy(&world, 21).await;
    assert!(found.running && !found.hidden && found.autoboot, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_answer_is_named_until_it_does() {
    let world = World::new(Zfs::Illumos).await;
    assert!(copy(&world, 1).await.running);
    world.source.asks(SERVICE);
    sleep(Duration::from_secs(120)).await;
    let status = world.source.status();
    let waits = status["waiting_for"].to_string();
    assert!(waits.contains("migration-service does not answer which copies"), "{status}");
    assert!(status["last_error"].is_string() && status["errors"].as_u64() > Some(0), "{status}");
    service(&world, false);
    sleep(Duration::from_secs(120)).await;
    let status = world.source.status();
    assert_eq!((&status["waiting_for"], &status["last_error"]), (&json!([]), &json!(null)));
    assert!(status["replaced_asked"].as_u64() > Some(0), "{status}");
}

#[tokio::test(start_paused = true)] // M106
async fn a_migration_whose_end_was_not_heard_is_over_for_the_agent_too() {
    let world = World::new(Zfs::Illumos).await;
    assert!(copy(&world, 1).await.running);
    says(&world, false, true);
    world.source.asks(SERVICE);
    sleep(Duration::from_secs(120)).await;
    assert_eq!(world.source.status()["migrations"], json!([]));
}
