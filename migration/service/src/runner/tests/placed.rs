// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which node a VM is placed on.

use pretty_assertions::assert_eq;
use serde_json::json;
use uuid::Uuid;

use super::node::{TWO, VM};
use super::story::beside;
use super::world::World;
use migration_core::record::{Phase, State};

/// A node that has no migration-agent.
const BARE: Uuid = Uuid::from_u128(0xcccc_0000_0000_4000_8000_0000_0000_0003);
const PLAN: &str = "estimate&format=rfd34&with_target=true";
const NONE: &str = "No compute resources available";

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

#[tokio::test(start_paused = true)] // M62
async fn where_no_node_fits_all_that_stands_against_each_is_told() {
    let world = World::new(true);
    world.centre().preferred = Some(BARE);
    world.power(TWO, false);
    beside(&world, async {
        let (status, refused) = world.act(PLAN).await;
        let told = refused["message"].as_str().unwrap().to_owned();
        assert_eq!((status, &refused["code"]), (412, &json!("PreconditionFailed")));
        let no_agent = "migration-agent does not answer on the target's node";
        for text in [NONE, &format!("{BARE}: {no_agent}"), &format!("{TWO}: {no_agent}")] {
            assert!(told.contains(text), "{text} in {told}");
        }
        assert_eq!(world.act("begin").await.0, 202);
        let record = world.settled().await.unwrap();
        assert_eq!((record.phase, record.state), (Phase::Begin, State::Failed));
        assert_eq!((record.vm_uuid, record.error.as_deref()), (VM, Some(told.as_str())));
        assert_eq!(record.target_server_uuid, None);
        // Nothing was left behind: it may begin again.
        world.power(TWO, true);
        world.synced().await;
    })
    .await;
}
