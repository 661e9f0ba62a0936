// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! All fleet-agents lose their servers at once: how many connect again in a second, and when have all of them? Each
//! agent's turns are the real ones; time and the servers are simulated. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use sdc_clients::Jitter;
use sdc_clients::fleet::{ANSWERS_WITHIN, Turns};

use super::bounds::Check;

const SERVERS: usize = 3;
/// An agent's longest wait, in seconds.
const LONGEST: f64 = 30.0;

/// What happens to the servers.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    pub agents: u32,
    /// How many of the servers go; the agents of the others stay where they are.
    pub gone: usize,
    /// After how many seconds they are back.
    pub seconds: u64,
    /// Connections that a server takes in a second; whoever would wait too long is not taken.
    pub capacity: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Reconnected {
    outage: Outage,
    /// Agents that had lost their server.
    lost: usize,
    /// Attempts by second.
    attempts: BTreeMap<u64, u64>,
    /// The last one was connected after so many ms.
    last: u64,
}

impl Outage {
    /// Runs it; all that is random is drawn from the seed.
    pub fn run(self, seed: u64) -> Reconnected {
        let names: Vec<String> = (0..SERVERS).map(|nth| format!("n{nth}")).collect();
        let back = |nth: usize| if nth < self.gone { 1000 * self.seconds } else { 0 };
        let lost: Vec<u32> =
            (0..self.agents).filter(|agent| *agent as usize % SERVERS < self.gone).collect();
        let patience = ANSWERS_WITHIN.as_millis() as u64;
        let (mut free, mut due) = ([0_u64; SERVERS], BinaryHeap::new());
        let mut agents: Vec<(Turns, [usize; SERVERS])> = Vec::new();
        let (mut attempts, mut last) = (BTreeMap::new(), 0);
        let turn = |(turns, failed): &mut (Turns, [usize; SERVERS]), now: u64| {
            let pool: Vec<_> = names.iter().cloned().zip(failed.iter().copied()).collect();
            let (server, wait) = turns.next(&pool).unwrap_or_default();
            (now + wait.as_millis() as u64, server)
        };
        for (at, agent) in lost.iter().enumerate() {
            let jitter =
                Jitter::from_seed(seed.wrapping_mul(1_000_003).wrapping_add((*agent).into()));
            let mut agent = (Turns::new(jitter), [0; SERVERS]);
            let (when, server) = turn(&mut agent, 0);
            due.push(Reverse((when, at, server)));
            agents.push(agent);
        }
        while let Some(Reverse((now, at, server))) = due.pop() {
            *attempts.entry(now / 1000).or_default() += 1;
            let starts = free[server].max(now);
            let done = starts + 1000 / self.capacity.clamp(1, 1000);
            let failed_at = match (now < back(server), done > now + patience) {
                // Nobody listens: refused at once.
                (true, _) => Some(now),
                (false, true) => Some(now + patience),
                (false, false) => None,
            };
            match failed_at {
                None => (free[server], last) = (done, last.max(done)),
                Some(failed_at) => {
                    agents[at].1[server] += 1;
                    let (when, server) = turn(&mut agents[at], failed_at);
                    due.push(Reverse((when, at, server)));
                }
            }
        }
        Reconnected { outage: self, lost: lost.len(), attempts, last }
    }
}

impl Reconnected {
    /// What is promised, and how it came out.
    pub fn checks(&self) -> Vec<Check> {
        let Outage { gone, seconds, capacity, .. } = self.outage;
        // Where others are there, they are asked at once.
        let (from, takers) = match gone < SERVERS {
            true => (0, SERVERS - gone),
            false => (seconds, SERVERS),
        };
        // Waits have grown to their longest by then: as many attempts as that spreads evenly, and chance.
        let has_grown = from as f64 >= 2.0 * LONGEST;
        let busiest = self.attempts.range(from..).map(|(_, count)| *count).max().unwrap_or(0);
        let lost = self.lost as f64;
        let most = if has_grown { 4.0 * lost / LONGEST } else { 2.0 * lost };
        let ideal = lost / (capacity * takers as u64) as f64;
        let after = self.last as f64 / 1000.0 - from as f64;
        vec![
            Check { what: "attempts in the busiest second".into(), found: busiest as f64, most },
            Check {
                what: "seconds until all are connected".into(),
                found: after,
                most: 2.0 * (LONGEST + ideal),
            },
        ]
    }
}

impl fmt::Display for Reconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { agents, gone, seconds, capacity } = self.outage;
        write!(
            f,
            "{agents} fleet-agents, {gone} of {SERVERS} servers gone for {seconds} s, each takes {capacity} connections/s: {} \
             attempts of {} agents, all connected at {:.1} s",
            self.attempts.values().sum::<u64>(),
            self.lost,
            self.last as f64 / 1000.0
        )
    }
}

/// The rows of the feed, for so many agents.
pub fn rows(agents: u32, seed: u64) -> Vec<Reconnected> {
    let row = |gone, seconds, capacity| Outage { agents, gone, seconds, capacity }.run(seed);
    vec![row(1, 600, 200), row(3, 1, 200), row(3, 60, 200), row(3, 600, 50)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_thousand_agents_that_reconnect_at_once_are_spread_and_all_come_back() {
        for seed in 1..=5 {
            for row in rows(2000, seed) {
                for check in row.checks() {
                    assert!(check.kept(), "{row}: {} {} > {}", check.what, check.found, check.most);
                }
            }
        }
    }

    #[test]
    fn servers_that_take_nobody_are_found_out() {
        let mut row = Outage { agents: 300, gone: 3, seconds: 60, capacity: 200 }.run(1);
        row.last = 1_000_000;
        row.attempts.insert(61, 300);
        assert!(row.checks().iter().all(|check| !check.kept()));
    }
}
