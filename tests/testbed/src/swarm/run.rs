// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One run: the swarm starts at one moment and goes on for some hours after it is done. Two runs go
//! at once, each on its own thread and clock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use daemon::Shutdown;
use tokio::time::{Instant, sleep};

use super::bounds::{START, Start};
use super::node::{Centre, Wire};
use super::queue::{Overload, Queue};
use super::series::{Counts, STEP, Series};
use crate::parallel::in_parallel;
use crate::place::place;
use crate::plot::Panel;

/// A swarm that is not done by then never will be.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// What to run.
#[derive(Clone, Debug)]
pub struct Run {
    pub start: Start,
    /// Decides everything that is random.
    pub seed: u64,
    /// NAPI's requests per second.
    pub capacity: f64,
    /// What a slow NAPI does.
    pub overload: Overload,
    /// How long to go on after the start.
    pub after: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was run.
    pub run: Run,
    pub counts: Counts,
    pub took: Duration,
}

impl Run {
    /// In words.
    pub fn title(&self) -> String {
        let need = self.start.even_peak();
        let kind = match self.overload {
            _ if self.capacity >= need => String::new(),
            Overload::Drops => ", abandoned work dropped".to_owned(),
            Overload::Wastes => ", abandoned work done all the same".to_owned(),
        };
        format!(
            "{} of {} req/s ({:.0} % of need{kind})",
            self.start.service(),
            self.capacity,
            100.0 * self.capacity / need
        )
    }
}

impl Ran {
    /// Its pictures: the start, and what came after it.
    pub(super) fn panels(&self) -> [Panel<'static>; 2] {
        let (arrived, answered) = (self.counts.steps(), &self.counts.answered);
        let start = self.run.start.split(&self.counts).0.len();
        [("start", 0..start), ("after it", start..arrived.len())].map(|(which, steps)| {
            let per_second = |all: &[u64]| {
                let all = all.get(steps.start..steps.end.min(all.len())).unwrap_or_default();
                all.iter().map(|count| *count as f64 / STEP as f64).collect()
            };
            let clock = |step: usize| format!("{:.1} h", (step as u64 * STEP) as f64 / 3600.0);
            Panel {
                title: format!("{}, {which}", self.run.title()),
                lines: vec![("arrived", per_second(&arrived)), ("answered", per_second(answered))],
                level: Some(self.run.capacity),
                most: |_, most| format!("{most:.1}/s"),
                times: (clock(steps.start), clock(steps.end)),
            }
        })
    }
}

/// Runs all, two at a time, results in order.
pub fn all(runs: &[Run]) -> Vec<anyhow::Result<Ran>> {
    in_parallel(runs, &|run: &Run| {
        eprintln!("running: {}", run.title());
        on_its_own_clock(run)
    })
}

fn on_its_own_clock(run: &Run) -> anyhow::Result<Ran> {
    let runtime = crate::clock::paused().context("making a runtime")?;
    #[allow(clippy::disallowed_methods)] // Real time on purpose: how long the run took.
    let began = std::time::Instant::now();
    let counts = runtime.block_on(simulate(run))?;
    // Ten thousand agents' tasks: dropping them is part of the cost.
    drop(runtime);
    Ok(Ran { run: run.clone(), counts, took: began.elapsed() })
}

/// The run itself; the caller's clock has to be paused.
pub async fn simulate(run: &Run) -> anyhow::Result<Counts> {
    let dir = place()?;
    let centre = Arc::new(Centre {
        era: run.start.era,
        with: run.start.with,
        queue: Queue::new(run.capacity, run.overload),
        series: Series::new(),
    });
    let shutdown = Shutdown::new();
    for node in 0..run.start.agents {
        let wire = Wire::new(&centre, run.start.shape, node)?;
        tokio::spawn(wire.agent(node, run.seed, dir.path(), shutdown.clone())?);
    }
    let began = Instant::now();
    sleep(START).await;
    while centre.series.counts_done() < run.start.agents as usize && began.elapsed() < LONGEST {
        sleep(Duration::from_secs(10)).await;
    }
    sleep(run.after).await;
    shutdown.trigger();
    Ok(centre.series.counts())
}
