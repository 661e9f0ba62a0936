// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Chaos with real processes: vminfod and its helpers on a node's directory.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::vminfod::VmObject;
use serde_json::json;
use simnode::{Verbs, Wait};
use tokio::time::Instant;
use vminfod::node::load;

use super::steps::{CHANGES, agree, change};
use crate::changes::same_vms;
use crate::cn::ctx;
use crate::held::children_of;
use crate::lab::{World, WorldOptions};
use crate::process::kill;

/// After the last change the old daemon knows all this soon: some refreshes, on a busy machine.
const SETTLE: Duration = Duration::from_secs(60);

/// Runs one seed; `done` gets what was done.
pub(super) fn one(
    program: &Path,
    seed: u64,
    lost_events: bool,
    done: &mut Vec<String>,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let options =
        WorldOptions { vms: 6, seed, ..WorldOptions::new(dir.path().join("cn"), program) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(live(options, lost_events, done))
}

async fn live(
    options: WorldOptions,
    lost_events: bool,
    done: &mut Vec<String>,
) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(options.seed);
    let soon =
        json!({"sweep": "1s", "refresh": {"min": "3s", "max": "5s"}, "retry": {"max": "2s"}});
    let vminfod = soon.as_object().cloned().unwrap_or_default();
    let mut world = World::create(WorldOptions { vminfod, ..options }).await?;
    world.start_vminfod().await?;
    let loud = Verbs::new(world.node(), Wait::none());
    let silent = Verbs::new(&world.node().losing_events(), Wait::none());
    for _ in 0..rng.random_range(CHANGES) {
        let what = match rng.random_range(0..100_u8) {
            0..6 => {
                let tool = ["sysevent", "fswatcher", "zoneadm", "zfs"][rng.random_range(0..4)];
                let children = world.pid("vminfod").map(|pid| children_of(pid, tool));
                children.into_iter().flatten().for_each(kill);
                format!("{tool} is killed")
            }
            6..10 => {
                let is_killed = rng.random();
                world.end("vminfod", is_killed).await?;
                let missed = change(&loud, &mut rng).await;
                world.start_vminfod().await?;
                format!("vminfod restarts (killed: {is_killed}), meanwhile {missed:?}")
            }
            _ => {
                let is_lost = lost_events && rng.random();
                let changed = change(if is_lost { &silent } else { &loud }, &mut rng).await;
                format!("lost: {is_lost}, {changed:?}")
            }
        };
        done.push(what);
        let pause = [0, 0, 3, 30, 300, 1_200][rng.random_range(0..6)];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let old = settled(&world).await.context("the old daemon")?;
    world.end("vminfod", rng.random()).await?;
    world.start_vminfod().await?;
    let fresh = world.hub()?.vms(false).await?.vms;
    agree(&old, &fresh, &read(&world).await?)?;
    world.stop().await?;
    Ok(())
}

/// What the node's own files and commands say.
async fn read(world: &World) -> anyhow::Result<Vec<VmObject>> {
    Ok(load::objects(&ctx(world.node())).await?.vms)
}

/// Waits until the daemon shows the node as it is; returns what it shows.
async fn settled(world: &World) -> anyhow::Result<Vec<VmObject>> {
    let (hub, began) = (world.hub()?, Instant::now());
    loop {
        let shown = hub.vms(false).await?.vms;
        match same_vms(&shown, &read(world).await?) {
            Ok(()) => return Ok(shown),
            Err(what) if began.elapsed() > SETTLE => anyhow::bail!("after {SETTLE:?}: {what}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
