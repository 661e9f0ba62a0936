// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The points of a run: each store write, each request, each command that changes a node. Before and after each of
//! them a party can die, stop, or lose what is said.
//!
//! All that a party does to the world goes through its [`Life`]. What a dead party asks is never done and never
//! answered, as with kill -9; what a stopped one asks waits until it goes on, as with SIGSTOP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use migration_core::intent::End;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults::{self, Plan};
pub use crate::faults::{Fault, Moment, Party};

/// A fault at the point of this number.
pub type Planned = faults::Planned<usize, Fault>;

/// What becomes of the one who is at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Goes,
    /// It is lost.
    Lost,
    /// It is done later.
    Late,
    /// It is refused.
    Fails,
    /// It is said to be done.
    Hollow,
}

#[derive(Default)]
struct State {
    /// One line for each point so far.
    labels: Vec<String>,
    /// When each of them began, and when it was done.
    times: Vec<(Instant, Option<Instant>)>,
    /// The points at which the commands began, and the last one ended.
    marks: Vec<usize>,
    plan: Plan<usize, Fault>,
    /// What the world has to do: deaths, reboots, stops.
    due: Vec<Fault>,
    /// What the world has not done yet.
    pending: usize,
    /// How often each party died.
    deaths: BTreeMap<Party, u64>,
    stopped: Vec<Party>,
    /// What is refused, or done in words alone, until it is healed.
    failing: Vec<(String, Fate)>,
    /// The nodes that the network has lost, and those that it ever had.
    cut: Vec<End>,
    was_cut: Vec<End>,
}

/// The label of a write to the store.
pub const STORE: &str = "a write to the store";

/// Returns what is asked, without the query, which has numbers that grow.
pub fn what(label: &str) -> &str {
    label.split('?').next().unwrap_or(label)
}

/// The points of one run.
#[derive(Clone, Default)]
pub struct Points {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

/// One life of a party: what it does is a point each.
#[derive(Clone)]
pub struct Life {
    points: Points,
    /// Whose it is.
    pub party: Party,
    number: u64,
}

impl Points {
    /// Faults will happen as planned.
    pub fn new(planned: Vec<Planned>) -> Points {
        let points = Points::default();
        points.state().plan = Plan::new(planned);
        points
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a fault is planned that restores the store.
    pub fn restores(&self) -> bool {
        self.state().plan.has(|it| matches!(it.fault, Fault::Older(_)))
    }

    /// Returns the points so far.
    pub fn labels(&self) -> Vec<String> {
        self.state().labels.clone()
    }

    /// Returns the points from this number on that are done, with the times of their beginning and their end.
    pub fn done_since(&self, at: usize) -> Vec<(String, Instant, Instant)> {
        let state = self.state();
        let all = state.labels.iter().zip(&state.times).skip(at);
        all.filter_map(|(label, (began, ended))| Some((label.clone(), *began, (*ended)?))).collect()
    }

    /// A command begins here, or the last one has ended.
    pub fn mark(&self) {
        let mut state = self.state();
        let at = state.labels.len();
        state.marks.push(at);
    }

    /// Returns the marks.
    pub fn marks(&self) -> Vec<usize> {
        self.state().marks.clone()
    }

    /// Returns the number of the next point.
    pub fn count(&self) -> usize {
        self.state().labels.len()
    }

    /// Returns how many faults have happened.
    pub fn happened(&self) -> usize {
        self.state().plan.happened()
    }

    /// Returns true if all faults are over.
    pub fn is_calm(&self) -> bool {
        let state = self.state();
        state.plan.is_over() && state.pending == 0
    }

    /// The world has done what a fault asked for.
    pub fn enacted(&self) {
        self.state().pending -= 1;
    }

    /// A party's life that begins now.
    pub fn life(&self, party: Party) -> Life {
        let number = self.state().deaths.get(&party).copied().unwrap_or(0);
        Life { points: self.clone(), party, number }
    }

    /// A node loses its power: the lives of all that run on it are over.
    pub fn cut_power(&self, end: End) {
        for party in Party::of_node(end) {
            *self.state().deaths.entry(party).or_default() += 1;
        }
        self.changed.notify_waiters();
    }

    /// The network loses a node.
    pub fn cut(&self, end: End) {
        let mut state = self.state();
        state.cut.push(end);
        state.was_cut.push(end);
    }

    /// What was refused is done again.
    pub fn heal(&self) {
        self.state().failing.clear();
    }

    /// The network has it again.
    pub fn mend(&self, end: End) {
        let mut state = self.state();
        if let Some(at) = state.cut.iter().position(|it| *it == end) {
            state.cut.remove(at);
        }
    }

    /// Returns true if nothing passes between the two, who are on these nodes, or elsewhere.
    pub fn is_cut(&self, from: Option<End>, to: Option<End>) -> bool {
        let state = self.state();
        from != to && [from, to].into_iter().flatten().any(|end| state.cut.contains(&end))
    }

    /// Returns true if the network once lost this node, and has it again.
    pub fn is_mended(&self, end: End) -> bool {
        let state = self.state();
        state.was_cut.contains(&end) && !state.cut.contains(&end)
    }

    /// A party stops.
    pub fn stop(&self, party: Party) {
        self.state().stopped.push(party);
    }

    /// A stopped party goes on.
    pub fn go_on(&self, party: Party) {
        self.state().stopped.retain(|it| *it != party);
        self.changed.notify_waiters();
    }

    /// Waits for something that the world has to do.
    pub async fn due(&self) -> Fault {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state();
                (!state.due.is_empty()).then(|| state.due.remove(0))
            };
            match due {
                Some(fault) => return fault,
                None => changed.await,
            }
        }
    }

    /// Returns what becomes of what is asked at this point, if the same was refused before.
    fn failing(&self, at: usize) -> Option<Fate> {
        let state = self.state();
        let of = what(&state.labels[at]);
        state.failing.iter().find(|(it, _)| it == of).map(|(_, fate)| *fate)
    }

    /// Counts a point, and lets happen what is planned for it.
    fn meet(&self, at: usize, moment: Moment) -> Fate {
        let mut fate = Fate::Goes;
        let mut state = self.state();
        for fault in state.plan.meet(&at, moment) {
            match fault {
                Fault::Loses => fate = Fate::Lost,
                Fault::Late => fate = Fate::Late,
                Fault::Fails | Fault::Lasts | Fault::Hollow => {
                    fate = if fault == Fault::Hollow { Fate::Hollow } else { Fate::Fails };
                    let label = what(&state.labels[at]).to_owned();
                    if !label.ends_with(STORE) {
                        state.failing.push((label, fate));
                    }
                }
                Fault::Hand => {}
                Fault::Dies(party) => *state.deaths.entry(party).or_default() += 1,
                Fault::Stops(party) => state.stopped.push(party),
                Fault::Cut(end) => {
                    state.cut.push(end);
                    state.was_cut.push(end);
                }
                Fault::Empty | Fault::Older(_) => {
                    for party in [1, 2].map(Party::Service) {
                        *state.deaths.entry(party).or_default() += 1;
                    }
                }
                Fault::Reboots(end) => {
                    for party in Party::of_node(end) {
                        *state.deaths.entry(party).or_default() += 1;
                    }
                }
                Fault::Away(_) | Fault::Stale | Fault::Unseen => {
                    unreachable!("invariant: the explorer does not plan that {fault}")
                }
            }
            if !matches!(fault, Fault::Loses | Fault::Late) {
                state.due.push(fault);
                state.pending += 1;
            }
        }
        drop(state);
        self.changed.notify_waiters();
        fate
    }
}

impl Life {
    /// Returns false if this life is over.
    pub fn lives(&self) -> bool {
        self.points.state().deaths.get(&self.party).copied().unwrap_or(0) == self.number
    }

    fn is_stopped(&self) -> bool {
        self.points.state().stopped.contains(&self.party)
    }

    /// Waits until this life is over.
    pub async fn death(&self) {
        loop {
            let changed = self.points.changed.notified();
            if !self.lives() {
                return;
            }
            changed.await;
        }
    }

    /// Waits while the party is stopped; does not return if it is dead.
    pub async fn pass(&self) {
        loop {
            let changed = self.points.changed.notified();
            if self.lives() && !self.is_stopped() {
                return;
            }
            changed.await;
        }
    }

    /// Returns the number of points so far.
    pub fn count(&self) -> usize {
        self.points.count()
    }

    /// Begins a point: what is about to be done has this number.
    pub async fn begin(&self, label: impl FnOnce() -> String) -> (usize, Fate) {
        self.pass().await;
        let at = {
            let mut state = self.points.state();
            state.labels.push(format!("{}: {}", self.party, label()));
            state.times.push((Instant::now(), None));
            state.labels.len() - 1
        };
        let fate = match self.points.meet(at, Moment::Before) {
            Fate::Goes => self.points.failing(at).unwrap_or(Fate::Goes),
            fate => fate,
        };
        self.pass().await;
        (at, fate)
    }

    /// Ends a point: it is done.
    pub async fn end(&self, at: usize) -> Fate {
        if let Some((_, ended)) = self.points.state().times.get_mut(at) {
            *ended = Some(Instant::now());
        }
        let fate = self.points.meet(at, Moment::After);
        self.pass().await;
        fate
    }
}
