// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A file system may hang, and whoever asks it then hangs with it, for ever and unkillable. So the
//! files of each zone are a lane of their own: one thread at a time is in it, and while that one
//! hangs nobody else goes in. What hangs costs its own zone's news and one thread, no more; when
//! the file system answers, the thread comes out and the lane is as good as new.
//!
//! Must never know what is read, nor wait in a thread that others need.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads at most in the lanes of one pool: as many hanging zones are the pool's fault, so that
/// what is still not asked of it would hang too, and other pools keep the rest of the threads.
const PER_POOL: usize = 32;
/// The same in all lanes: a part of the threads that the runtime has for blocking work (512).
const IN_ALL: usize = 128;

/// All lanes of a node; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<Vec<Taken>>,
    /// Somebody came out, or will not.
    news: Condvar,
    /// Threads that wait for it, changed by who holds the table. To tell them costs a question to
    /// the system, and nearly always there is nobody.
    waiting: AtomicUsize,
}

/// A lane that somebody is in. There are few at a time, so that nothing is quicker to search than a
/// list.
#[derive(Debug)]
struct Taken {
    place: Arc<str>,
    /// The one who is in there has outlasted the patience of those who wait.
    hangs: bool,
}

impl Shared {
    fn tell(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.news.notify_all();
        }
    }
}

/// The right to be in a lane.
#[derive(Debug)]
pub(crate) struct Inside {
    lanes: Lanes,
    place: Arc<str>,
}

impl Lanes {
    /// Goes into a lane, in a thread that may wait `limit` for whoever is in there; not at all
    /// where that one hangs, or has not come out by then.
    pub(crate) fn enter(&self, place: impl Into<Arc<str>>, limit: Duration) -> Option<Inside> {
        let place = place.into();
        let mut taken = self.lock();
        let is_busy = |taken: &mut Vec<Taken>| match lane(taken, &place) {
            Some(lane) => !lane.hangs,
            None => is_crowded(taken, &place) && !is_hopeless(taken, &place),
        };
        if is_busy(&mut taken) {
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            let waited = self.0.news.wait_timeout_while(taken, limit, is_busy);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if lane(&taken, &place).is_some() || is_crowded(&taken, &place) {
            return None;
        }
        taken.push(Taken { place: Arc::clone(&place), hangs: false });
        Some(Inside { lanes: self.clone(), place })
    }

    /// Whether there is no use in asking this place now.
    pub(crate) fn hangs(&self, place: &str) -> bool {
        let taken = self.lock();
        lane(&taken, place).map_or_else(|| is_hopeless(&taken, place), |lane| lane.hangs)
    }

    /// Whoever is in this lane will not come out in time: nobody waits for it any more.
    pub(crate) fn give_up(&self, place: &str) {
        let mut taken = self.lock();
        if let Some(lane) = taken.iter_mut().find(|lane| *lane.place == *place && !lane.hangs) {
            lane.hangs = true;
            tracing::warn!(place, "file system does not answer: left alone until it does");
        }
        self.0.tell();
    }

    /// Threads that are in some lane now, and those of them that hang.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> (usize, usize) {
        let taken = self.lock();
        (taken.len(), taken.iter().filter(|lane| lane.hangs).count())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut taken = self.lanes.lock();
        let at = taken.iter().position(|lane| *lane.place == *self.place);
        if at.is_some_and(|at| taken.swap_remove(at).hangs) {
            tracing::info!(place = &*self.place, "file system answers again");
        }
        self.lanes.0.tell();
    }
}

fn lane<'a>(taken: &'a [Taken], place: &str) -> Option<&'a Taken> {
    taken.iter().find(|lane| *lane.place == *place)
}

/// As many as may be are in this pool's lanes, or in all.
fn is_crowded(taken: &[Taken], place: &str) -> bool {
    taken.len() >= IN_ALL || taken.len() >= PER_POOL && of_pool(taken, place).count() >= PER_POOL
}

/// The same, and all of them hang.
fn is_hopeless(taken: &[Taken], place: &str) -> bool {
    of_pool(taken, place).filter(|lane| lane.hangs).count() >= PER_POOL
        || taken.iter().filter(|lane| lane.hangs).count() >= IN_ALL
}

fn of_pool<'a>(taken: &'a [Taken], place: &'a str) -> impl Iterator<Item = &'a Taken> {
    let pool = |place: &'a str| place.trim_start_matches('/').split('/').next();
    taken.iter().filter(move |lane| pool(&lane.place) == pool(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_lane_is_for_one_and_free_when_that_one_comes_out() {
        let lanes = Lanes::default();
        let first = lanes.enter("/zones/a", SOON).unwrap();
        let other = lanes.enter("/zones/b", SOON).unwrap();
        assert!(lanes.enter("/zones/a", SOON).is_none());
        assert!(!lanes.hangs("/zones/a"), "it may still come out");
        let waiting = {
            let lanes = lanes.clone();
            std::thread::spawn(move || lanes.enter("/zones/a", LONG).is_some())
        };
        drop(first);
        assert!(waiting.join().unwrap());
        drop(other);
        assert_eq!(lanes.inside(), (0, 0));
    }

    #[test]
    fn who_waits_for_one_that_hangs_is_sent_away_at_once() {
        let lanes = Lanes::default();
        let stuck = lanes.enter("/zones/a", SOON).unwrap();
        let waiting = {
            let lanes = lanes.clone();
            std::thread::spawn(move || lanes.enter("/zones/a", LONG).is_none())
        };
        lanes.give_up("/zones/a");
        assert!(waiting.join().unwrap());
        assert!(lanes.hangs("/zones/a") && lanes.enter("/zones/a", LONG).is_none());
        lanes.give_up("/zones/nobody-is-there");
        drop(stuck);
        assert!(!lanes.hangs("/zones/a") && lanes.enter("/zones/a", SOON).is_some());
    }

    #[test]
    fn a_pool_that_hangs_takes_its_share_of_the_threads_and_no_more() {
        let lanes = Lanes::default();
        let mut stuck = Vec::new();
        for nth in 0..PER_POOL {
            let place = format!("/zones/{nth}");
            stuck.push(lanes.enter(&*place, SOON).unwrap());
            lanes.give_up(&place);
        }
        assert!(lanes.hangs("/zones/one-more") && lanes.enter("/zones/one-more", LONG).is_none());
        assert!(!lanes.hangs("/tank/x") && lanes.enter("/tank/x", SOON).is_some());
        assert_eq!(lanes.inside(), (PER_POOL, PER_POOL));
        stuck.pop();
        assert!(lanes.enter("/zones/one-more", SOON).is_some());
        for nth in 0.. {
            let place = format!("/pool{nth}/x");
            let Some(inside) = lanes.enter(&*place, SOON) else { break };
            lanes.give_up(&place);
            stuck.push(inside);
        }
        assert_eq!(lanes.inside(), (IN_ALL, IN_ALL));
        assert!(lanes.enter("/another/x", LONG).is_none(), "a wait for nothing");
    }
}
