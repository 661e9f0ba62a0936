// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs of worlds: each on a clock of its own.

use super::bugs::Bug;
use super::settle::{RECORDS, settle};
use super::signals::Weather;
use super::truth::Truth;
use super::twins;
use super::world::{World, held};
use crate::place::place;

/// Runs one seed on a clock of its own; what came of it, and what happened.
pub fn one(seed: u64, bug: Option<Bug>) -> (anyhow::Result<()>, Vec<String>) {
    let truth = Truth::default();
    (alone(world(seed, bug, &truth)), truth.trace())
}

/// Runs this on a clock of its own.
pub(crate) fn alone<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    crate::clock::paused()?.block_on(work)
}

async fn world(seed: u64, bug: Option<Bug>, truth: &Truth) -> anyhow::Result<()> {
    let dir = place()?;
    let mut world = World::new(seed, (bug, true), truth, dir.path(), Weather::GOOD).await?;
    world.live(false).await?;
    world.evacuate().await?;
    for cn in &mut world.nodes {
        twins::one_machine(&world.centre, cn).await?;
    }
    settle(&world.centre, &world.nodes, &world.readers, RECORDS).await?;
    world.end().await;
    held(truth)
}
