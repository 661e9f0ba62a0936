// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs of worlds: each on a clock of its own, two at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bugs::Bug;
use super::settle::{RECORDS, settle};
use super::signals::Weather;
use super::truth::Truth;
use super::world::{World, held, place};

/// Does the work on each, two at a time; how many did not hold?
pub(crate) fn in_pairs<T: Sync>(each: &[T], holds: &(dyn Fn(&T) -> bool + Sync)) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = usize::try_from(at).ok().and_then(|at| each.get(at)) else {
                        return;
                    };
                    failed.fetch_add(u64::from(!holds(one)), Ordering::Relaxed);
                }
            });
        }
    });
    failed.into_inner()
}

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
    settle(&world.centre, &world.nodes, &world.readers, RECORDS).await?;
    world.end().await;
    held(truth)
}
