// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which node a VM is placed on.

use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::node::{ONE, TWO, VM};
use super::story::beside;
use super::world::World;
use migration_core::record::{Phase, State};

/// A node that has no migration-agent.
const BARE: Uuid = Uuid::from_u128(0xcccc_0000_0000_4000_8000_0000_0000_0003);
const PLAN: &str = "estimate&format=rfd34&with_target=true";
const NONE: &str = "No compute resources available";

/// An agent takes requests and does not answer, or answers again.
fn stuck(world: &World, cn: Uuid, is_stuck: bool) {
    world.centre().hosts.get_mut(&cn).unwrap().is_stuck = is_stuck;
}

#[tokio::test(start_paused = true)] // M62
async fn what_cnapi_chooses_is_looked_at_and_where_it_does_not_fit_another_node_is_chosen() {
    let world = World::new(true);
    world.centre().preferred = Some(BARE);
    beside(&world, async {
        let (status, plan) = world.act(PLAN).await;
        assert_eq!((status, &plan["target_server_uuid"]), (200, &json!(TWO)), "{plan}");
        assert_eq!(world.act("estimate&format=rfd34").await.1.get("target_server_uuid"), None);
        assert_eq!(world.record().await.map(|it| it.vm_uuid), None, "nothing has begun");
        world.synced().await;
        assert_eq!(world.record().await.unwrap().target_server_uuid, Some(TWO));
        let (status, plan) = world.act(PLAN).await;
        assert_eq!((status, &plan["target_server_uuid"]), (200, &json!(TWO)), "{plan}");
    })
    .await;
}

#[tokio::test(start_paused = true)] // M62, M210
async fn where_no_node_fits_all_that_stands_against_each_is_told() {
    let world = World::new(true);
    world.centre().preferred = Some(BARE);
    stuck(&world, TWO, true);
    beside(&world, async {
        let (status, refused) = world.act(PLAN).await;
        let message = refused["message"].as_str().unwrap().to_owned();
        assert_eq!((status, &refused["code"]), (412, &json!("PreconditionFailed")));
        let no_agent = "migration-agent does not answer on the target's node";
        let no_address = "The sysinfo of the target's node has no address on the admin network";
        for text in [NONE, &format!("{BARE}: {no_address}"), &format!("{TWO}: {no_agent}")] {
            assert!(message.contains(text), "{text} in {message}");
        }
        assert_eq!(world.act("begin").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Begin, State::Failed));
        assert_eq!((record.vm_uuid, record.error.as_deref()), (VM, Some(message.as_str())));
        assert_eq!(record.target_server_uuid, None);
        // It was tried for minutes. Nothing was left behind: it may begin again.
        stuck(&world, TWO, false);
        world.synced().await;
    })
    .await;
}

#[tokio::test(start_paused = true)] // M107
async fn a_begin_waits_for_agents_that_are_away() {
    let world = World::new(true);
    beside(&world, async {
        stuck(&world, TWO, true);
        assert_eq!(world.act("begin").await.0, 202);
        sleep(Duration::from_secs(90)).await;
        let record = world.record().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Begin, State::Running));
        stuck(&world, TWO, false);
        assert_eq!(world.settled().await.unwrap().state, State::Paused);
        assert_eq!(world.act("abort").await.0, 202);
        assert!(world.settled().await.is_none_or(|it| it.state == State::Aborted));
        stuck(&world, ONE, true);
        let (status, body) = world.act("begin").await;
        assert_eq!((status, &body["code"]), (503, &json!("ServiceUnavailableError")), "{body}");
    })
    .await;
}

#[tokio::test(start_paused = true)] // M171
async fn estimates_share_a_report_of_a_node_and_an_agent_that_hangs_holds_up_none() {
    // The source's may answer a moment later.
    for (stuck, wanted) in [(TWO, 412), (ONE, 503)] {
        let world = World::new(true);
        world.centre().hosts.get_mut(&stuck).unwrap().is_stuck = true;
        let began = tokio::time::Instant::now();
        for _ in 0..10 {
            let (status, refused) = world.act(PLAN).await;
            let message = refused["message"].as_str().unwrap_or_default();
            assert_eq!(status, wanted, "{refused}");
            assert!(message.contains("migration-agent does not answer on the"), "{message}");
        }
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_secs(8), "{took:?}");
    }
}
