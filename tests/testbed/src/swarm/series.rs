// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Counts of the requests to the service that is judged (NAPI or VMAPI) and their outcomes, per ten seconds and kind,
//! and when each agent has all that it needs. `bounds` judges them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Seconds of one count; the peak is the busiest of them.
pub const STEP: u64 = 10;

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One NIC read by its address: the node's own, in a clean world.
    Nic,
    /// A page of the node's list.
    List,
    /// A list of a kind this NAPI does not have, and the probe that follows; of VMAPI, one VM.
    Probe,
    Write,
    /// Something that net-agent asks of VMAPI.
    Vmapi,
    /// One VM asked of vminfod, which nobody has to ask in a clean world.
    OneVm,
}

impl Kind {
    /// All of them, in the order shown.
    pub const ALL: [Self; 6] =
        [Self::Nic, Self::List, Self::Probe, Self::Write, Self::Vmapi, Self::OneVm];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nic => "own NICs",
            Self::List => "lists",
            Self::Probe => "probes",
            Self::Write => "writes",
            Self::Vmapi => "VMAPI",
            Self::OneVm => "VMs one by one",
        }
    }
}

/// The counts of one run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that arrived, by kind, per step of ten seconds.
    pub arrived: BTreeMap<Kind, Vec<u64>>,
    /// Requests answered in time, per step of ten seconds.
    pub answered: Vec<u64>,
    /// Requests whose agent gave up waiting.
    pub given_up: u64,
    /// Requests whose connection was never taken.
    pub refused: u64,
    /// Agents that have all they need, and when the last of them got it.
    pub done: usize,
    /// When the last agent was done.
    pub drained: Option<Duration>,
}

impl Counts {
    /// Requests to the service in all.
    pub fn total(&self) -> u64 {
        self.to_service().map(|(_, steps)| steps.iter().sum::<u64>()).sum()
    }

    /// Requests to the service per step, all kinds together.
    pub fn steps(&self) -> Vec<u64> {
        let length = self.to_service().map(|(_, steps)| steps.len()).max().unwrap_or(0);
        let mut sum = vec![0; length];
        for (_, steps) in self.to_service() {
            for (at, count) in steps.iter().enumerate() {
                if let Some(slot) = sum.get_mut(at) {
                    *slot += count;
                }
            }
        }
        sum
    }

    /// The requests of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.arrived.get(&kind).map_or(0, |steps| steps.iter().sum())
    }

    fn to_service(&self) -> impl Iterator<Item = (&Kind, &Vec<u64>)> {
        self.arrived.iter().filter(|(kind, _)| !matches!(kind, Kind::Vmapi | Kind::OneVm))
    }
}

/// Where the agents' requests are counted.
#[derive(Debug)]
pub struct Series {
    started: Instant,
    counts: Mutex<Counts>,
}

impl Series {
    /// Nothing yet; time starts now.
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), counts: Mutex::default() }
    }

    /// A request arrived.
    pub fn arrived(&self, kind: Kind) {
        let at = self.step();
        count(self.lock().arrived.entry(kind).or_default(), at);
    }

    /// A request was answered.
    pub fn answered(&self) {
        let at = self.step();
        count(&mut self.lock().answered, at);
    }

    /// A request's agent stopped waiting.
    pub fn given_up(&self) {
        self.lock().given_up += 1;
    }

    /// A connection was never taken.
    pub fn refused(&self) {
        self.lock().refused += 1;
    }

    /// An agent has all it needs.
    pub fn done(&self) {
        let now = self.started.elapsed();
        let mut counts = self.lock();
        counts.done += 1;
        counts.drained = Some(now);
    }

    /// How many agents are done.
    pub fn counts_done(&self) -> usize {
        self.lock().done
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn step(&self) -> usize {
        usize::try_from(self.started.elapsed().as_secs() / STEP).unwrap_or(usize::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(steps: &mut Vec<u64>, at: usize) {
    if steps.len() <= at {
        steps.resize(at + 1, 0);
    }
    if let Some(step) = steps.get_mut(at) {
        *step += 1;
    }
}
