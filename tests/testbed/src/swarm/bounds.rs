// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a swarm's start has to cost at least, how evenly it could be spread, how fast a service of a
//! given capacity could serve it, and whether a run stayed within the promised multiples of that.
//!
//! Which promise is about which NAPI:
//!
//! * One that can serve the peak of an even spread ([`Start::even_peak`]: 333 req/s for 10,000
//!   agents of two links): [`PEAK`] and [`TOTAL`], at 1,000 and 500 req/s.
//! * One that cannot: [`SLOW_TOTAL`] and [`SLOW_DRAIN`]. "70 % of the needed capacity" can be read
//!   in three ways, and the promise is kept and judged in each: of what the even spread's peak
//!   needs (233 req/s), of what the whole start needs on average (35 req/s), and of what RFD 58's
//!   own requests need, one list per agent in eight minutes (20.8 req/s, of which the 15 req/s
//!   that every run includes are 72 %).
//! * [`STEADY`] whatever the NAPI.
//!
//! The same is promised of vm-agent and VMAPI, where the even spread's peak and its mean are the same
//! (16.7 req/s for 10,000 agents).

use std::time::Duration;

use super::node::{Shape, With};
use super::series::{Counts, Kind, STEP};
use mocks::napi::Era;

/// Peak against the peak of a perfectly even spread.
pub const PEAK: f64 = 1.5;
/// Requests of the start against the fewest possible.
pub const TOTAL: f64 = 1.2;
/// Requests per second once the start is over.
pub const STEADY: f64 = 6.0;
/// Requests of the start against the fewest possible when NAPI is too slow for the start.
pub const SLOW_TOTAL: f64 = 5.0;
/// End of the start against the earliest possible when NAPI is too slow for it.
pub const SLOW_DRAIN: f64 = 2.0;

/// The node's own NICs are read within this of the start.
const OWN: f64 = 60.0;
/// net-agent reads the first list between these (R1), vm-agent between the others.
const LIST: (f64, f64) = (120.0, 600.0);
const VM_LIST: (f64, f64) = (0.0, 600.0);
/// When every first try has been made.
pub const START: Duration = Duration::from_secs(600);

/// One swarm's start.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub agents: u32,
    /// What each node is like.
    pub shape: Shape,
    pub era: Era,
    /// Which agent starts.
    pub with: With,
}

/// One promise and how it came out.
#[derive(Clone, Debug)]
pub struct Check {
    /// In words.
    pub what: String,
    pub found: f64,
    pub most: f64,
}

impl Check {
    /// Returns true if the bound was kept.
    pub fn kept(&self) -> bool {
        self.found <= self.most
    }
}

impl Start {
    /// The service that the agents ask.
    pub fn service(&self) -> &'static str {
        match self.with {
            With::NetAgent => "NAPI",
            With::VmAgent => "VMAPI",
        }
    }

    /// When the first list is read.
    fn window(&self) -> (f64, f64) {
        match self.with {
            With::NetAgent => LIST,
            With::VmAgent => VM_LIST,
        }
    }

    /// Requests about the node's own NICs: one for each link, and a list of its server NICs.
    fn own(&self) -> f64 {
        if self.with == With::VmAgent {
            return 0.0;
        }
        f64::from(self.agents) * f64::from(self.shape.links + 1)
    }

    /// Requests to list one node: a NAPI without the route costs two more.
    fn lists(&self) -> f64 {
        let pages = self.shape.vms / 1000 + 1;
        let detour = if self.era == Era::Rfd58 || self.with == With::VmAgent { 0 } else { 2 };
        f64::from(self.agents) * f64::from(pages + detour)
    }

    /// The fewest requests that can do it.
    pub fn minimum(&self) -> f64 {
        self.own() + self.lists()
    }

    /// The busiest moment when the same requests are spread evenly over the windows they have.
    pub fn even_peak(&self) -> f64 {
        let (from, to) = self.window();
        (self.own() / OWN).max(self.lists() / (to - from))
    }

    /// Requests per second of the start on average.
    pub fn mean(&self) -> f64 {
        self.minimum() / self.window().1
    }

    /// Seconds until a NAPI of this capacity could have served it all, asked evenly.
    pub fn ideal(&self, capacity: f64) -> f64 {
        let (from, to) = self.window();
        let own_done = OWN.max(self.own() / capacity);
        let backlog_at_list = (self.own() - capacity * from).max(0.0);
        let list_rate = self.lists() / (to - from);
        let in_window = backlog_at_list + (list_rate - capacity) * (to - from);
        let rest = in_window.max(0.0);
        own_done.max(to + rest / capacity)
    }

    /// The promises of a run at this capacity, and what came of them. Figures of a slow NAPI
    /// have promises of their own.
    pub fn checks(&self, capacity: f64, counts: &Counts) -> Vec<Check> {
        let mut checks = Vec::new();
        let mut check = |what: &str, found: f64, most: f64| {
            checks.push(Check { what: what.to_owned(), found, most });
        };
        let unfinished = f64::from(self.agents) - counts.done as f64;
        check("agents that never got all they need", unfinished, 0.0);
        check("VMs that an agent doubts", counts.of(Kind::OneVm) as f64, 0.0);
        let (start, steady) = self.split(counts);
        let drained = counts.drained.unwrap_or(Duration::MAX).as_secs_f64();
        if capacity >= self.even_peak() {
            let peak = busiest(&start);
            check("busiest 10 s of the start, req/s", peak, PEAK * self.even_peak());
            let total = start.iter().sum::<u64>() as f64;
            check("requests of the start", total, TOTAL * self.minimum());
        } else {
            let total = start.iter().sum::<u64>() as f64;
            check("requests of the start", total, SLOW_TOTAL * self.minimum());
            check("drained after s", drained, SLOW_DRAIN * self.ideal(capacity));
        }
        check("busiest 10 s of the steady state, req/s", busiest(&steady), STEADY);
        checks
    }

    /// Steps of the start, and those after it.
    pub fn split(&self, counts: &Counts) -> (Vec<u64>, Vec<u64>) {
        let end = counts.drained.unwrap_or_default().max(START) + Duration::from_secs(STEP);
        let steps = counts.steps();
        let at = usize::try_from(end.as_secs().div_ceil(STEP)).unwrap_or(usize::MAX);
        let (start, steady) = steps.split_at(at.min(steps.len()));
        (start.to_vec(), steady.to_vec())
    }
}

/// Requests per second in the busiest step.
pub fn busiest(steps: &[u64]) -> f64 {
    steps.iter().max().copied().unwrap_or(0) as f64 / STEP as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_the_window_or_what_the_capacity_needs() {
        let shape = Shape { vms: 4, links: 2 };
        let with = With::NetAgent;
        let start = Start { agents: 10_000, shape, era: Era::Rfd58, with };
        assert!((start.minimum() - 40_000.0).abs() < 1e-9);
        assert!((start.even_peak() - 30_000.0 / 60.0).abs() < 1e-9);
        assert!((start.mean() - 40_000.0 / 600.0).abs() < 1e-9);
        assert!((start.ideal(1000.0) - 600.0).abs() < 1e-9);
        assert!(
            (start.ideal(15.0) - 40_000.0 / 15.0).abs() < 1.0,
            "never idle: all of it over 15/s"
        );
        let old = Start { era: Era::Master, ..start };
        assert!((old.minimum() - 60_000.0).abs() < 1e-9);
        let vms = Start { with: With::VmAgent, ..old };
        assert!((vms.minimum() - 10_000.0).abs() < 1e-9);
        assert!((vms.ideal(1000.0) - 600.0).abs() < 1e-9);
        assert!((vms.ideal(11.7) - 10_000.0 / 11.7).abs() < 1.0);
    }
}
