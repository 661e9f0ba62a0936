// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The orders that run or have ended: one of a migration at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use migration_core::protocol::{Doing, Failure, Progress, State, What};
use migration_core::stream::Meter;

/// A rate is that of so long.
const RATE: Duration = Duration::from_secs(2);
/// The most warnings that one order reports.
const WARNINGS: usize = 20;

/// One order.
#[derive(Debug)]
pub struct Work {
    /// What is done.
    pub what: What,
    /// Bytes of its streams.
    pub meter: Meter,
    /// The service's last request for it: the same order at higher revisions.
    revision: watch::Sender<u64>,
    state: watch::Sender<State>,
    cancel: CancellationToken,
    total: AtomicU64,
    no_room: AtomicBool,
    rate: Mutex<Sample>,
    received: Received,
    warnings: Mutex<BTreeSet<String>>,
}

/// The streams that an order `Receive` takes.
#[derive(Debug)]
struct Received {
    /// Ends those of now.
    cut: Mutex<CancellationToken>,
    running: watch::Sender<usize>,
    failed: Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    bytes: u64,
    rate: u64,
}

/// A stream that is being received.
#[derive(Debug)]
pub struct Stream {
    work: Arc<Work>,
    cut: CancellationToken,
}

impl Stream {
    /// Waits until the stream has to end. Cancel-safe.
    pub async fn cut(&self) {
        self.cut.cancelled().await;
    }

    pub fn work(&self) -> &Work {
        &self.work
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.work.received.running.send_modify(|running| *running -= 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    fn new(what: What, revision: u64) -> Work {
        let state = if what.is_receive() { State::Done } else { State::Running };
        let cancel = CancellationToken::new();
        Work {
            what,
            meter: Meter::default(),
            revision: watch::Sender::new(revision),
            state: watch::Sender::new(state),
            total: AtomicU64::new(0),
            rate: Mutex::new(Sample { at: Instant::now(), bytes: 0, rate: 0 }),
            received: Received {
                cut: Mutex::new(cancel.child_token()),
                running: watch::Sender::new(0),
                failed: Mutex::default(),
            },
            warnings: Mutex::default(),
            no_room: AtomicBool::new(false),
            cancel,
        }
    }

    /// The revision of the order, as it rises.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits until a later order replaced this one. Cancel-safe.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Returns true once a later order replaced this one.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Adds to what is expected.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Tells people of something that the order did not do, and is done without.
    pub fn warn(&self, text: String) {
        let mut warnings = lock(&self.warnings);
        let is_new = warnings.len() < WARNINGS && warnings.insert(text.clone());
        if is_new {
            tracing::warn!(text, "an order succeeded with a warning");
        }
    }

    /// Stores that the other node has no room.
    pub fn found_no_room(&self) {
        self.no_room.store(true, Ordering::Relaxed);
    }

    /// Stores how it ended.
    pub fn finish(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Waits for the end of the order and of its streams. Cancel-safe.
    async fn ended(&self) {
        let mut state = self.state.subscribe();
        // Neither fails: their senders are here.
        let _ = state.wait_for(|state| *state != State::Running).await;
        let _ = self.received.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// Waits for the end of the order, at most so long.
    pub async fn wait(&self, most: Duration) {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| *state != State::Running);
        let _late = tokio::time::timeout(most, ended).await.is_err();
    }

    /// Ends the streams of now, and waits for it.
    pub async fn cut_streams(&self) {
        {
            let mut cut = lock(&self.received.cut);
            cut.cancel();
            *cut = self.cancel.child_token();
        }
        let _ = self.received.running.subscribe().wait_for(|running| *running == 0).await;
        *lock(&self.received.failed) = None;
    }

    /// Begins a stream, unless it has to end already.
    pub fn stream(self: &Arc<Work>) -> Option<Stream> {
        let cut = lock(&self.received.cut).clone();
        self.received.running.send_modify(|running| *running += 1);
        let stream = Stream { work: Arc::clone(self), cut };
        (!stream.cut.is_cancelled()).then_some(stream)
    }

    /// Stores why a stream was not taken.
    pub fn stream_failed(&self, failure: Failure) {
        *lock(&self.received.failed) = Some(failure);
    }

    /// Waits for the end of the streams of now, at most so long, and returns why the last one was not taken.
    pub async fn why_streams_ended(&self, most: Duration) -> Option<Failure> {
        let mut running = self.received.running.subscribe();
        // It does not fail: its sender is here.
        let _late = tokio::time::timeout(most, running.wait_for(|running| *running == 0)).await;
        self.last_failure()
    }

    /// Returns why the last stream was not taken.
    pub fn last_failure(&self) -> Option<Failure> {
        lock(&self.received.failed).clone()
    }

    /// Returns how it goes.
    pub fn doing(&self) -> Doing {
        let current = self.meter.bytes();
        let mut sample = lock(&self.rate);
        let passed = sample.at.elapsed();
        if passed >= RATE {
            let moved = u128::from(current - sample.bytes) * 1000 / passed.as_millis();
            let rate = u64::try_from(moved).unwrap_or(u64::MAX);
            *sample = Sample { at: Instant::now(), bytes: current, rate };
        }
        let total = self.total.load(Ordering::Relaxed).max(current);
        let progress = Progress { current, total, rate: sample.rate };
        let has_streams = match self.what {
            What::Send { .. } | What::SendImage { .. } => true,
            What::Rehearse { .. } => total > 0,
            _ => false,
        };
        let failed = self.last_failure();
        let is_full = failed.as_ref().is_some_and(|failure| failure.full);
        let failed = failed.map(|Failure { error, fatal, .. }| State::Failed { error, fatal });
        Doing {
            order: self.what.clone(),
            state: failed.unwrap_or_else(|| self.state.borrow().clone()),
            progress: has_streams.then_some(progress),
            warnings: lock(&self.warnings).iter().cloned().collect(),
            runs: None,
            no_room: is_full || self.no_room.load(Ordering::Relaxed),
        }
    }
}

/// The orders of all migrations.
#[derive(Debug, Default)]
pub struct Works(Mutex<HashMap<Uuid, Arc<Slot>>>);

/// The order of one migration.
#[derive(Debug, Default)]
struct Slot {
    /// One order at a time is taken in.
    intake: tokio::sync::Mutex<()>,
    now: Mutex<Option<Arc<Work>>>,
}

impl Works {
    /// Returns the last order of a migration.
    pub fn of(&self, migration: Uuid) -> Option<Arc<Work>> {
        let slot = lock(&self.0).get(&migration).cloned()?;
        lock(&slot.now).clone()
    }

    /// Joins the order if it is the same and runs, or has ended and is asked about again; else stops it, waits for its
    /// end, and returns a new one with true. `is_newest` is asked after each wait.
    pub async fn join<E>(
        &self,
        migration: Uuid,
        what: What,
        revision: u64,
        is_newest: impl Fn() -> Result<(), E>,
    ) -> Result<(Arc<Work>, bool), E> {
        let slot = Arc::clone(lock(&self.0).entry(migration).or_default());
        let _one_at_a_time = slot.intake.lock().await;
        is_newest()?;
        let running = lock(&slot.now).clone();
        if let Some(work) = running {
            let goes_on = work.what.is_receive() || *work.state.borrow() == State::Running;
            let is_asked_again = *work.revision.borrow() == revision;
            if work.what == what && (goes_on || is_asked_again) {
                *lock(&work.received.failed) = None;
                work.revision.send_replace(revision);
                return Ok((work, false));
            }
            work.cancel.cancel();
            work.ended().await;
            is_newest()?;
        }
        let work = Arc::new(Work::new(what, revision));
        *lock(&slot.now) = Some(Arc::clone(&work));
        Ok((work, true))
    }

    /// Forgets the orders of a migration.
    pub fn forget(&self, migration: Uuid) {
        lock(&self.0).remove(&migration);
    }

    /// Returns how each migration's last order goes.
    pub fn all(&self) -> Vec<(Uuid, Doing)> {
        let slots: Vec<(Uuid, Arc<Slot>)> =
            lock(&self.0).iter().map(|(id, slot)| (*id, Arc::clone(slot))).collect();
        let doing =
            |(id, slot): (Uuid, Arc<Slot>)| lock(&slot.now).as_ref().map(|work| (id, work.doing()));
        slots.into_iter().filter_map(doing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_why_a_stream_ended_waits_for_its_last_word() {
        let from = Uuid::from_u128(1);
        let work = Arc::new(Work::new(What::Receive { from, image: None }, 1));
        let running = work.stream().unwrap();
        let full = Failure { error: "out of space".to_owned(), fatal: true, full: true };
        let says = async {
            tokio::time::sleep(MOST / 2).await;
            running.work().stream_failed(full.clone());
            drop(running);
        };
        let (why, ()) = tokio::join!(work.why_streams_ended(MOST), says);
        assert_eq!(why, Some(full));
        assert!(
            work.doing().no_room,
            "the service hears why, whichever of the two nodes says it first"
        );
        let _never_ends = work.stream().unwrap();
        work.why_streams_ended(MOST).await;
    }
}
