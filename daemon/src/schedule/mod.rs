// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMs that are to be worked on: one job at a time for each, a few at once. A wake carries no
//! work; the job looks at the node as it is when it starts. A VM that is woken while its job runs
//! runs again afterwards.

mod queue; // when each is due

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdc_clients::Jitter;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::config::Window;
use crate::tasks::caught;
use crate::timing::{Clock, HOUR, Retry};

pub use queue::Queue;

/// Jobs at once.
const AT_ONCE: usize = 4;

/// What a job is to do besides reading the node; two wakes of one VM fold into one job that does both.
pub trait Work: Copy + std::fmt::Debug {
    /// Returns the work of both.
    #[must_use]
    fn and(self, other: Self) -> Self;
}

impl Work for () {
    fn and(self, (): Self) -> Self {}
}

/// The schedule. The lock is held for a few instructions and never over an await.
pub struct Schedule<W> {
    turns: Mutex<Turns<W>>,
    woken: Notify,
}

struct Turns<W> {
    queue: Queue<String, Duration>,
    /// What is to be done for the VMs that are due.
    work: BTreeMap<String, W>,
    /// The back-offs of VMs whose work failed.
    retries: BTreeMap<String, Retry>,
    retry: Window,
    long: Duration,
    jitter: Jitter,
}

/// For the explorer, which compares what an agent means to do.
impl<W: Work> std::fmt::Debug for Schedule<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (due, busy) = self.queued();
        self.with(|turns| write!(f, "Schedule {due:?} {:?} {busy:?}", turns.work))
    }
}

impl<W: Work> Schedule<W> {
    /// An empty schedule. Failed work is retried within `retry`, later every `long`.
    pub fn new(retry: Window, long: Duration, jitter: Jitter) -> Self {
        let (work, retries) = (BTreeMap::new(), BTreeMap::new());
        let queue = Queue::new(Duration::ZERO, AT_ONCE);
        let turns = Turns { queue, work, retries, retry, long, jitter };
        Self { turns: Mutex::new(turns), woken: Notify::new() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Turns<W>) -> T) -> T {
        change(&mut self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes a VM at this time on the agent's clock. Wakes fold: the earlier time wins, and work once asked for stays.
    pub fn wake(&self, vm: &str, at: Duration, work: W) {
        self.with(|turns| {
            let folded = turns.work.entry(vm.to_owned()).or_insert(work);
            *folded = folded.and(work);
            turns.queue.want(&vm.to_owned(), at);
        });
        self.woken.notify_one();
    }

    /// Wakes a VM that has changed: its back-off starts again.
    pub fn wake_changed(&self, vm: &str, now: Duration, work: W) {
        self.succeeded(vm);
        self.wake(vm, now, work);
    }

    /// The work on a VM failed: wakes it after the next wait of its back-off.
    pub fn wake_later(&self, vm: &str, now: Duration, work: W) {
        let wait = self.with(|turns| {
            let Turns { retries, retry, long, jitter, .. } = turns;
            let new = || Retry::new(*retry, *long, jitter.fork());
            retries.entry(vm.to_owned()).or_insert_with(new).next_delay()
        });
        self.wake(vm, now + wait, work);
    }

    /// The work on a VM succeeded: its back-off starts again.
    pub fn succeeded(&self, vm: &str) {
        self.with(|turns| turns.retries.remove(vm));
    }

    /// Takes the next VM that is due and not busy.
    /// Fails if there is none now: when to look again, or none if only a wake or the end of a job helps.
    pub fn take(&self, now: Duration) -> Result<(String, W), Option<Duration>> {
        self.with(|turns| {
            let vm = turns.queue.take(now).ok_or_else(|| turns.queue.next_due())?;
            let work = turns.work.remove(&vm);
            work.map(|work| (vm, work)).ok_or(Some(now))
        })
    }

    /// The job of a VM ended.
    pub fn release(&self, vm: &str) {
        self.with(|turns| turns.queue.ended(&vm.to_owned()));
        self.woken.notify_one();
    }

    /// Returns the VMs that are to be worked on, with the time when each is due, and those that are
    /// worked on.
    pub fn queued(&self) -> (Vec<(String, Duration)>, Vec<String>) {
        self.with(|turns| {
            let due = turns.queue.waiting().map(|(vm, at)| (vm.clone(), at));
            (due.collect(), turns.queue.busy().cloned().collect())
        })
    }
}

impl<W: Work + Send + 'static> Schedule<W> {
    /// Runs a job for each VM that is due, for ever: a few at once and one for each VM. A job that
    /// panics is logged, and given to `panicked`.
    pub async fn work<F>(
        self: &Arc<Self>,
        clock: Clock,
        job: impl Fn(String, W) -> F,
        panicked: impl Fn(),
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut jobs = JoinSet::new();
        loop {
            let now = clock.now();
            let until = match self.take(now) {
                Ok((vm, work)) => {
                    let (schedule, job) = (Arc::clone(self), job(vm.clone(), work));
                    jobs.spawn(async move {
                        let done = caught("the job of a VM", job).await;
                        schedule.release(&vm);
                        done.is_none()
                    });
                    continue;
                }
                Err(until) => until,
            };
            let nap = until.map_or(HOUR, |at| at.saturating_sub(now));
            // All arms are cancel-safe: a wake is kept, a finished job stays in the set.
            // One order, so that a simulated run can be repeated.
            tokio::select! {
                biased;
                Some(ended) = jobs.join_next() => {
                    if ended.unwrap_or(true) {
                        panicked();
                    }
                }
                () = self.woken.notified() => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Whole(bool);

    impl Work for Whole {
        fn and(self, other: Self) -> Self {
            Self(self.0 || other.0)
        }
    }

    #[test]
    fn folds_wakes_and_holds_a_busy_vm() {
        let s = Duration::from_secs;
        let window = Window { min: s(2), max: s(64) };
        let schedule = Schedule::new(window, s(300), Jitter::from_seed(1));
        let wake = |at, whole| schedule.wake("a", s(at), Whole(whole));
        wake(3, true);
        wake(9, false);
        assert_eq!(schedule.take(s(2)), Err(Some(s(3))));
        assert_eq!(schedule.take(s(3)), Ok(("a".to_owned(), Whole(true))));
        wake(0, true);
        assert_eq!(schedule.take(s(9)), Err(None), "never two jobs for one VM");
        schedule.release("a");
        assert!(schedule.take(s(9)).is_ok());
    }
}
