// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One run: a story, and what goes wrong in it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use migration_core::intent::End;

use super::costs::Peers;
use super::points::{Planned, Points};
use super::world::{Shape, World};
use crate::moving::judge::Outage;
use crate::moving::operator::Story;
use crate::place::place;

/// What is run.
#[derive(Clone, Debug)]
pub struct Case {
    pub story: Story,
    pub planned: Vec<Planned>,
    /// What the world is like.
    pub shape: Shape,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// What was wrong.
    pub faults: Vec<String>,
    /// What happened, for people.
    pub notes: Vec<String>,
    /// The points, in their order.
    pub labels: Vec<String>,
    /// The points at which the commands began, and the last one ended.
    pub marks: Vec<usize>,
    /// So many of the planned faults happened.
    pub happened: usize,
    /// What each switch cost that failed behind the stop.
    pub failed_switches: Vec<Duration>,
    /// The longest time without a copy that runs.
    pub longest: Duration,
    /// What the operator was told, and the commands that he gave.
    pub told: Vec<String>,
    pub typed: Vec<&'static str>,
}

/// What is done by a switch once the last stream has arrived.
const BEHIND_STREAM: [&str; 3] = ["PUT napi.sim", "/orders hide", "PUT vmapi.sim"];

/// Returns how long a VM was down for a switch that failed, beside the stop and the last stream where that was done
/// well: the VM runs where it ran.
fn failed_switches(world: &World) -> Vec<Duration> {
    let points = world.net.points.done_since(0);
    let cost = |outage: Outage| {
        let within = points.iter().filter(|(_, began, ended)| {
            *began >= outage.since && *ended <= outage.since + outage.length
        });
        let within: Vec<_> = within.collect();
        let is_behind = |label: &str| BEHIND_STREAM.iter().any(|it| label.contains(it));
        let behind = within.iter().position(|(label, ..)| is_behind(label)).unwrap_or(0);
        let sent = within[..behind].iter().rfind(|(label, ..)| label.ends_with("/orders send"));
        outage.length - sent.map_or(Duration::ZERO, |(.., ended)| *ended - outage.since)
    };
    let outages = world.judge.outages().into_iter();
    outages.filter(|it| it.from == End::Source && it.to == End::Source).map(cost).collect()
}

/// Runs a case on a clock of its own.
pub fn run(case: &Case) -> Result<Ran> {
    let (peers, case) = (Peers::of(case.story, &case.planned), case.clone());
    let clock = crate::clock::paused()?;
    let (mut ran, network) = clock.block_on(async move {
        let dir = place()?;
        let points = Points::new(case.planned);
        let world = World::new(dir.path(), &points, case.shape).await?;
        let told = {
            let story = world.tell(case.story);
            tokio::pin!(story);
            let mut enacting = futures_util::stream::FuturesUnordered::new();
            loop {
                use futures_util::StreamExt as _;
                tokio::select! {
                    biased;
                    told = &mut story => break told,
                    Some(done) = enacting.next() => {
                        points.enacted();
                        if let Err(error) = done {
                            break Err(error);
                        }
                    }
                    fault = points.due() => enacting.push(world.enact(fault)),
                }
            }
        };
        if let Err(error) = told {
            world.judge.fault("told", &format!("{error:#}"));
        }
        world.end().await;
        let judge = &world.judge;
        let (faults, notes) = (judge.faults(), judge.notes());
        let (told, typed) = judge.dialogue();
        let longest = judge.outages().into_iter().map(|it| it.length).max();
        let ran = Ran {
            faults,
            notes,
            labels: points.labels(),
            marks: points.marks(),
            happened: points.happened(),
            failed_switches: failed_switches(&world),
            longest: longest.unwrap_or_default(),
            told,
            typed,
        };
        anyhow::Ok((ran, Arc::downgrade(&world.net)))
    })?;
    drop(clock);
    let longest = ran.failed_switches.iter().max().copied().unwrap_or_default();
    if peers.most().is_some_and(|most| longest > most) {
        ran.faults.push(format!("M258: a failed switch cost {:.1} s", longest.as_secs_f64()));
    }
    // Thousands of runs do not fit into memory side by side.
    if network.strong_count() > 0 {
        ran.faults.push("the world of the run is not given back".to_owned());
    }
    Ok(ran)
}
