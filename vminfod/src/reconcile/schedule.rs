// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The queue of VMs to read, with one entry per VM.
//!
//! Pure: the caller gives the times. Rules:
//! * a VM is due at once, and its reading begins if fewer than `at_once` VMs are being read;
//! * all that is wanted while the VM is being read, or within `gap` after its reading began, is one
//!   reading, `gap` after the last one began;
//! * an earlier time replaces a later one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The queue.
#[derive(Debug)]
pub struct Schedule {
    /// The least time between the beginnings of two readings of a VM.
    gap: Duration,
    at_once: usize,
    due: BTreeSet<(Instant, u64, Arc<str>)>,
    entries: HashMap<Arc<str>, Entry>,
    running: usize,
    /// Keeps the order of what is due at the same time.
    count: u64,
}

#[derive(Debug, Default)]
struct Entry {
    due: Option<(Instant, u64)>,
    began: Option<Instant>,
    is_running: bool,
    /// When it is wanted again after the reading under way.
    again: Option<Instant>,
}

impl Schedule {
    pub fn new(gap: Duration, at_once: usize) -> Self {
        let (due, entries) = Default::default();
        Self { gap, at_once: at_once.max(1), due, entries, running: 0, count: 0 }
    }

    /// Wants a reading at this time or earlier. Returns when it is due, unless one is under way.
    pub fn want(&mut self, name: &Arc<str>, at: Instant) -> Option<Instant> {
        let entry = self.entries.entry(Arc::clone(name)).or_default();
        if entry.is_running {
            entry.again = Some(entry.again.map_or(at, |again| again.min(at)));
            return None;
        }
        let at = entry.began.map_or(at, |began| at.max(began + self.gap));
        match entry.due {
            Some((due, _)) if due <= at => return Some(due),
            Some((due, count)) => drop(self.due.remove(&(due, count, Arc::clone(name)))),
            None => {}
        }
        self.count += 1;
        entry.due = Some((at, self.count));
        self.due.insert((at, self.count, Arc::clone(name)));
        Some(at)
    }

    /// Takes the next VM that is due, unless `at_once` are being read. Its reading begins now.
    pub fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        if self.running >= self.at_once || self.due.first().is_none_or(|(at, ..)| *at > now) {
            return None;
        }
        let (_, _, name) = self.due.pop_first()?;
        let entry = self.entries.entry(Arc::clone(&name)).or_default();
        (entry.due, entry.began, entry.is_running) = (None, Some(now), true);
        self.running += 1;
        Some(name)
    }

    /// A reading has ended. Returns when the next one is due, if one was wanted meanwhile.
    pub fn ended(&mut self, name: &Arc<str>) -> Option<Instant> {
        let entry = self.entries.get_mut(name)?;
        if std::mem::take(&mut entry.is_running) {
            self.running = self.running.saturating_sub(1);
        }
        let again = entry.again.take()?;
        self.want(name, again)
    }

    /// When [`Schedule::next`] returns a VM; `None` if it depends on the end of a reading.
    pub fn deadline(&self) -> Option<Instant> {
        let (at, ..) = self.due.first().filter(|_| self.running < self.at_once)?;
        Some(*at)
    }

    /// Returns true if a reading of this VM waits to begin.
    pub fn is_due(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.due.is_some())
    }

    /// Removes a VM that is not being read.
    pub fn remove(&mut self, name: &Arc<str>) {
        if let Some(Entry { due: Some((at, count)), .. }) = self.entries.remove(name) {
            self.due.remove(&(at, count, Arc::clone(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GAP: Duration = Duration::from_millis(10);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn first_signal_is_due_at_once_and_a_burst_once_per_gap() {
        let (mut schedule, t, vm) = (Schedule::new(GAP, 8), Instant::now(), Arc::from("a"));
        assert_eq!(schedule.want(&vm, t), Some(t));
        assert_eq!(schedule.next(t), Some(Arc::clone(&vm)));
        // During the reading, and after it within the gap: one more, a gap after the first.
        assert_eq!(schedule.want(&vm, t + ms(1)), None);
        assert_eq!(schedule.ended(&vm), Some(t + GAP));
        assert_eq!(schedule.want(&vm, t + ms(5)), Some(t + GAP));
        assert_eq!((schedule.next(t + ms(9)), schedule.deadline()), (None, Some(t + GAP)));
        assert_eq!(schedule.next(t + GAP), Some(Arc::clone(&vm)));
        assert_eq!(schedule.ended(&vm), None);
        // Later than that: at once.
        assert_eq!(schedule.want(&vm, t + ms(50)), Some(t + ms(50)));
    }

    #[test]
    fn signal_precedes_a_retry() {
        let (mut schedule, t, vm) = (Schedule::new(GAP, 8), Instant::now(), Arc::from("a"));
        assert_eq!(schedule.want(&vm, t + ms(5000)), Some(t + ms(5000)));
        assert_eq!(schedule.want(&vm, t + ms(20)), Some(t + ms(20)));
        assert_eq!(schedule.want(&vm, t + ms(6000)), Some(t + ms(20)));
        assert!(schedule.is_due("a") && !schedule.is_due("b"));
        schedule.remove(&vm);
        assert_eq!((schedule.deadline(), schedule.next(t + ms(9000))), (None, None));
    }

    #[test]
    fn runs_a_limited_number_in_signal_order() {
        let (mut schedule, t) = (Schedule::new(GAP, 2), Instant::now());
        let names: Vec<Arc<str>> = ["c", "a", "b"].map(Arc::from).to_vec();
        for name in &names {
            schedule.want(name, t);
        }
        assert_eq!([schedule.next(t), schedule.next(t)], [Some("c".into()), Some("a".into())]);
        assert_eq!((schedule.next(t), schedule.deadline()), (None, None));
        schedule.ended(&names[0]);
        assert_eq!(schedule.next(t), Some("b".into()));
    }

    proptest! {
        /// Every wanted VM is read, but not twice at once, not twice within the gap, and no more than
        /// `at_once` at once.
        #[test]
        fn every_want_leads_to_a_reading(steps in proptest::collection::vec((0..4_usize, 0..3_u8, 0..15_u64), 1..80)) {
            let (mut schedule, start) = (Schedule::new(GAP, 2), Instant::now());
            let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).to_vec();
            let (mut now, mut running, mut wanted) = (start, Vec::new(), vec![None; 4]);
            let mut began = [None; 4];
            for (vm, step, pause) in steps {
                now += ms(pause);
                match step {
                    0 => {
                        schedule.want(&names[vm], now);
                        wanted[vm].get_or_insert(now);
                    }
                    1 => while let Some(name) = schedule.next(now) {
                        let at = names.iter().position(|one| *one == name).unwrap();
                        prop_assert!(!running.contains(&at) && running.len() < 2);
                        prop_assert!(began[at].is_none_or(|before| now - before >= GAP));
                        (began[at], wanted[at]) = (Some(now), None);
                        running.push(at);
                    },
                    _ => if let Some(at) = running.pop() {
                        schedule.ended(&names[at]);
                    },
                }
            }
            while let Some(at) = running.pop() {
                schedule.ended(&names[at]);
            }
            now += ms(1000);
            while let Some(name) = schedule.next(now) {
                wanted[names.iter().position(|one| *one == name).unwrap()] = None;
                schedule.ended(&name);
            }
            prop_assert!(wanted.iter().all(Option::is_none));
        }
    }
}
