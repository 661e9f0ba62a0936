// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees of every agent: the state of each task, counters, the last failure. It decides nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::gate::{Gate, Refusal};
use crate::health::Health;
use crate::log::{chain, clip};
use crate::tasks::Shutdown;
use crate::wall;

/// The state of a task; `S` has those that only one agent knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum State<S = Infallible> {
    #[error("working")]
    Working,
    /// It has nothing to do until something changes.
    #[error("resting")]
    Resting,
    /// The whole agent is off, and leaves this service alone.
    #[error("no_rabbit is false: the feature is off, and {0} is left alone")]
    Off(&'static str),
    /// The stream is not connected yet.
    #[error("waiting for vminfod")]
    Connecting,
    /// vminfod does not answer.
    #[error("waiting for vminfod: {0}")]
    NoAnswer(String),
    /// Nothing may be written now.
    #[error("{0}")]
    Refused(Refusal),
    /// Before the first list.
    #[error("startup delay, {} s", .0.as_secs())]
    StartupDelay(Duration),
    /// The last attempt failed.
    #[error("retrying: {0}")]
    Retrying(String),
    /// One of the agent's own.
    #[error("{0}")]
    Own(S),
}

/// The counters of an agent, which [`crate::counters!`] makes.
pub trait Counter: Copy + Ord + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// Returns its name in `/status`.
    fn name(self) -> &'static str;

    /// Returns its name in `/metrics`, empty if it is a gauge there, and its help.
    fn metric(self) -> (&'static str, &'static str);
}

/// A failure of the agent's work.
#[derive(Clone, Debug)]
struct Failure {
    /// For people.
    at: Timestamp,
    seen: Instant,
    text: String,
}

#[derive(Debug)]
struct Board<T, C, S> {
    counts: BTreeMap<C, u64>,
    states: BTreeMap<T, State<S>>,
    last_error: Option<Failure>,
}

/// States, counters and the last failure. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Status<T, C, S = Infallible> {
    services: Vec<Arc<Health>>,
    board: Mutex<Board<T, C, S>>,
}

impl<T: Ord, C: Counter, S: Display> Status<T, C, S> {
    /// Nothing has happened yet; `services` are those that are written to.
    pub fn new(services: Vec<Arc<Health>>) -> Self {
        let (counts, states, last_error) = (BTreeMap::new(), BTreeMap::new(), None);
        Self { services, board: Mutex::new(Board { counts, states, last_error }) }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Board<T, C, S>) -> R) -> R {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn count(&self, what: C) {
        self.add(what, 1);
    }

    /// Counts some.
    pub fn add(&self, what: C, n: usize) {
        self.with(|b| *b.counts.entry(what).or_default() += n as u64);
    }

    /// Sets a counter.
    pub fn set(&self, what: C, n: usize) {
        self.with(|b| b.counts.insert(what, n as u64));
    }

    /// Returns a counter.
    pub fn get(&self, what: C) -> u64 {
        self.with(|b| b.counts.get(&what).copied().unwrap_or_default())
    }

    /// Stores the state of a task.
    pub fn is(&self, task: T, state: State<S>) {
        self.with(|b| b.states.insert(task, state));
    }

    /// Returns the state of a task.
    pub fn state(&self, task: T) -> Option<State<S>>
    where
        S: Clone,
    {
        self.with(|b| b.states.get(&task).cloned())
    }

    /// The feature flag is off: the task says so and leaves the service alone until the shutdown.
    pub async fn off(&self, task: T, service: &'static str, shutdown: &Shutdown) {
        let off = State::Off(service);
        tracing::warn!("{off}");
        self.is(task, off);
        shutdown.wait().await;
    }

    /// Waits until something may be written, or until only the report mode forbids it; meanwhile the status says
    /// what the task waits for.
    pub async fn ready(&self, task: T, gate: &Gate)
    where
        T: Copy,
    {
        gate.until_writable(|why| self.is(task, State::Refused(why))).await;
        self.is(task, State::Working);
    }

    /// A task has lost vminfod's stream: counts that, and closes the gate until it is back.
    pub fn stream_lost(&self, gate: &Gate, (task, what): (T, C), error: &sdc_clients::Error) {
        let why = chain(error);
        if gate.sync(false) {
            let reason = &why;
            tracing::warn!(reason, "lost vminfod's stream: nothing is written until it is back");
            self.count(what);
        }
        self.is(task, State::NoAnswer(why));
    }

    /// Counts a failure as this and keeps it as the last one. Returns it for people.
    pub fn failed(&self, what: C, error: &(dyn std::error::Error + 'static)) -> String {
        let text = clip(&chain(error));
        self.count(what);
        let failure = Failure { at: wall::now(), seen: Instant::now(), text: text.clone() };
        self.with(|b| b.last_error = Some(failure));
        text
    }

    /// Work succeeds: forgets the last failure if it was seen within this time.
    pub fn recovered(&self, time: impl RangeBounds<Instant>) {
        self.with(|b| b.last_error = b.last_error.take().filter(|it| !time.contains(&it.seen)));
    }

    /// Returns what the tasks and the services wait for, for people.
    pub fn waiting_for(&self) -> Vec<String> {
        let is_waiting = |state: &&State<S>| !matches!(state, State::Working | State::Resting);
        let mut all: Vec<String> = self.with(|b| {
            b.states.values().filter(is_waiting).map(|it| clip(&it.to_string())).collect()
        });
        all.extend(self.services.iter().filter_map(|service| service.sentence()));
        all
    }

    /// Returns the last failure of a service or of work, unless the service has recovered since.
    fn last_error(&self) -> Option<(Timestamp, String)> {
        let troubles = self.services.iter().filter_map(|service| service.trouble());
        let troubles = troubles.map(|t| Failure { at: t.at, seen: t.seen, text: t.text });
        let work = self.with(|b| b.last_error.clone()).filter(|failure| {
            self.services.iter().all(|service| !service.has_recovered_from(failure.seen))
        });
        let last = troubles.chain(work).max_by_key(|failure| failure.seen)?;
        Some((last.at, clip(&last.text)))
    }

    /// Returns the numbers for `/metrics`, without those that are gauges there.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let counted = C::ALL.iter().map(|count| (count.metric(), self.get(*count)));
        let counted = counted.filter(|((name, _), _)| !name.is_empty());
        counted.map(|((name, help), n)| (name, help, n))
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let (at, error) = self.last_error().unzip();
        let at = at.map(|at| format!("{at:.3}"));
        let waiting_for = self.waiting_for();
        let mut page =
            json!({"waiting_for": waiting_for, "last_error": error, "last_error_at": at});
        for count in C::ALL.iter().copied() {
            page[count.name()] = self.get(count).into();
        }
        page
    }
}
