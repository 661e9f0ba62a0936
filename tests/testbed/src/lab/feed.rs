// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The feed of the data centre: a nats-server, an agent on each node, and a node that dies and comes back.

use std::time::Duration;

use rig::nats::Nats;
use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, Shape, make};

use super::asking::until;
use super::error::LabError;
use super::outcome::Outcome;
use super::screen::{Screen, Voice};
use super::world::World;
use crate::process;

/// The longest that any step may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What dies with a node.
const DAEMONS: [&str; 6] =
    ["fleet-agent", "net-agent", "vm-agent", "kvmd", "migration-agent", "vminfod"];

/// The server and its streams.
#[derive(Debug)]
pub struct Feed {
    nats: Nats,
    page: String,
}

impl Feed {
    /// Starts the server, makes the streams and starts the nodes' agents.
    /// Fails if something does not start.
    pub async fn start(world: &mut World, others: &mut [World]) -> Result<Feed, LabError> {
        let nats = Nats::start(1, None).map_err(LabError::io("starting nats-server"))?;
        let access = Access { servers: nats.servers(), ..Access::default() };
        let fleet = Fleet::connect(&access, "lab", Jitter::from_seed(1)).await;
        let fleet = fleet.map_err(|error| LabError::Feed(error.to_string()))?;
        let shape = Shape { replicas: 1, bytes: 1 << 30, ..Shape::default() };
        until("making the streams", PATIENCE, || async {
            Ok(make(fleet.jetstream(), &shape).await.is_ok())
        })
        .await?;
        world.start_fleet_agent(&nats.servers()).await?;
        for world in others {
            world.start_fleet_agent(&nats.servers()).await?;
        }
        let page = world.start_fleet_page(&nats.servers()).await?;
        Ok(Feed { nats, page })
    }

    /// Where it is.
    pub fn address(&self) -> String {
        self.nats.servers().join(" ")
    }

    /// Where its page is.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// Plays its story: every node is up; another node dies, is shown so, and comes back.
    /// Fails if something cannot be asked.
    pub async fn play(
        &self,
        world: &World,
        other: Option<&mut World>,
        screen: &Screen,
        outcome: &mut Outcome,
    ) -> Result<(), LabError> {
        screen.say(Voice::Lab, "the data centre at a glance: sdc-fleet nodes");
        let is = async |cn: &str, up: &str| {
            let line = format!("{cn}:{up}");
            let shown = until(&line, PATIENCE, || async {
                Ok(nodes(world).await?.lines().any(|shown| shown == line))
            });
            shown.await.is_ok()
        };
        let own = is(world.node().cn_uuid(), "yes").await;
        outcome.add(screen, "the node is up on the feed".to_owned(), own);
        let Some(other) = other else { return Ok(()) };
        let cn = other.node().cn_uuid().to_owned();
        let up = is(&cn, "yes").await;
        outcome.add(screen, "so is the other one".to_owned(), up);
        screen.say(Voice::Lab, &format!("node {cn} dies"));
        for name in DAEMONS {
            other.end(name, true).await?;
        }
        let dead = is(&cn, "no").await;
        outcome.add(screen, "sdc-fleet shows that it is not heard".to_owned(), dead);
        let needing = run(world, &["nodes", "--all-well", "-H", "-o", "alarms"]).await?;
        let told = needing.code == Some(1) && needing.stdout.contains("not heard");
        outcome.add(screen, "and exits 1: somebody has to look".to_owned(), told);
        screen.say(Voice::Lab, &format!("node {cn} comes back"));
        other.start_vminfod().await?;
        other.start_fleet_agent(&self.nats.servers()).await?;
        let back = is(&cn, "yes").await;
        outcome.add(screen, "it is up again on the feed".to_owned(), back);
        Ok(())
    }
}

async fn nodes(world: &World) -> Result<String, LabError> {
    Ok(run(world, &["nodes", "-H", "-p", "-o", "uuid,up"]).await?.stdout)
}

/// What the operator types on the first node.
async fn run(world: &World, words: &[&str]) -> Result<process::Finished, LabError> {
    let command = world.node().tool("sdc-fleet");
    process::run(&command, words, PATIENCE).await.map_err(LabError::io("running sdc-fleet"))
}
