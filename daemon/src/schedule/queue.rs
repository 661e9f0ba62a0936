// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When each of many is due. Pure: it runs under any clock.
//!
//! * What is due begins at once, if fewer than `at_once` are busy and it is not busy itself; what is due at the same
//!   time begins in the order in which it was wanted.
//! * All that is wanted while it is busy, or within `gap` after it began, is one more turn, `gap` after it began.
//! * An earlier time replaces a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::time::Duration;

/// The queue: keys, and times of a clock.
#[derive(Clone, Debug)]
pub struct Queue<K, T> {
    gap: Duration,
    at_once: usize,
    /// When each is due, and the number that orders what is due at the same time.
    due: BTreeSet<(T, u64, K)>,
    turns: BTreeMap<K, Turn<T>>,
    busy: usize,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn<T> {
    due: Option<(T, u64)>,
    began: Option<T>,
    is_busy: bool,
}

impl<K: Ord + Clone, T: Ord + Copy + Add<Duration, Output = T>> Queue<K, T> {
    /// An empty queue. `gap`: the least time between the beginnings of two turns of a key.
    pub fn new(gap: Duration, at_once: usize) -> Self {
        let (due, turns) = (BTreeSet::new(), BTreeMap::new());
        Self { gap, at_once: at_once.max(1), due, turns, busy: 0, count: 0 }
    }

    /// Wants a turn of this key at this time or earlier.
    pub fn want(&mut self, key: &K, at: T) {
        let new = Turn { due: None, began: None, is_busy: false };
        let turn = self.turns.entry(key.clone()).or_insert(new);
        let at = turn.began.map_or(at, |began| at.max(began + self.gap));
        if turn.due.is_none_or(|(due, _)| at < due) {
            self.count += 1;
            if let Some((due, count)) = turn.due.replace((at, self.count)) {
                self.due.remove(&(due, count, key.clone()));
            }
            self.due.insert((at, self.count, key.clone()));
        }
    }

    /// Takes the next key that is due, unless `at_once` are busy. Its turn begins now.
    pub fn take(&mut self, now: T) -> Option<K> {
        let first = self.first().filter(|(at, ..)| *at <= now)?.clone();
        self.due.remove(&first);
        let (.., key) = first;
        self.turns.insert(key.clone(), Turn { due: None, began: Some(now), is_busy: true });
        self.busy += 1;
        Some(key)
    }

    /// Returns when [`Queue::take`] returns a key; none if that depends on the end of a turn.
    pub fn next_due(&self) -> Option<T> {
        self.first().map(|(at, ..)| *at)
    }

    fn first(&self) -> Option<&(T, u64, K)> {
        let mut free = self.due.iter().filter(|(.., key)| !self.is_busy(key));
        if self.busy < self.at_once { free.next() } else { None }
    }

    /// The turn of a key has ended.
    pub fn ended(&mut self, key: &K) {
        let Some(turn) = self.turns.get_mut(key) else { return };
        self.busy -= usize::from(std::mem::take(&mut turn.is_busy));
        if self.gap.is_zero() && turn.due.is_none() {
            self.turns.remove(key);
        }
    }

    /// Removes a key that is not busy.
    pub fn forget(&mut self, key: &K) {
        if !self.is_busy(key)
            && let Some(Turn { due: Some((at, count)), .. }) = self.turns.remove(key)
        {
            self.due.remove(&(at, count, key.clone()));
        }
    }

    /// Returns true while the turn of a key has not ended.
    pub fn is_busy(&self, key: &K) -> bool {
        self.turns.get(key).is_some_and(|turn| turn.is_busy)
    }

    /// Returns when a key that is not busy is due.
    pub fn due(&self, key: &K) -> Option<T> {
        let turn = self.turns.get(key).filter(|turn| !turn.is_busy)?;
        turn.due.map(|(at, _)| at)
    }

    /// Returns when the last turn of a key began.
    pub fn began(&self, key: &K) -> Option<T> {
        self.turns.get(key)?.began
    }

    /// Returns all that are due, the first one first.
    pub fn waiting(&self) -> impl Iterator<Item = (&K, T)> {
        self.due.iter().map(|(at, _, key)| (key, *at))
    }

    /// Returns those that are busy.
    pub fn busy(&self) -> impl Iterator<Item = &K> {
        self.turns.iter().filter(|(_, turn)| turn.is_busy).map(|(key, _)| key)
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

    type Keys = Queue<&'static str, Duration>;

    fn want(keys: &mut Keys, key: &'static str, at: u64) -> Option<Duration> {
        keys.want(&key, ms(at));
        keys.due(&key)
    }

    #[test]
    fn the_first_is_due_at_once_and_a_burst_once_per_gap() {
        let mut keys = Keys::new(GAP, 8);
        assert_eq!(want(&mut keys, "a", 0), Some(ms(0)));
        assert_eq!(keys.take(ms(0)), Some("a"));
        // During the turn, and after it within the gap: one more, a gap after the first.
        assert_eq!(want(&mut keys, "a", 1), None);
        keys.ended(&"a");
        assert_eq!(keys.due(&"a"), Some(GAP));
        assert_eq!(want(&mut keys, "a", 5), Some(GAP));
        assert_eq!((keys.take(ms(9)), keys.next_due()), (None, Some(GAP)));
        assert_eq!(keys.take(GAP), Some("a"));
        keys.ended(&"a");
        assert_eq!(keys.due(&"a"), None);
        // Later than that: at once.
        assert_eq!(want(&mut keys, "a", 50), Some(ms(50)));
    }

    #[test]
    fn an_earlier_time_replaces_a_later_one() {
        let mut keys = Keys::new(GAP, 8);
        assert_eq!(want(&mut keys, "a", 5000), Some(ms(5000)));
        assert_eq!(want(&mut keys, "a", 20), Some(ms(20)));
        assert_eq!(want(&mut keys, "a", 6000), Some(ms(20)));
        assert_eq!((keys.next_due(), keys.waiting().count()), (Some(ms(20)), 1));
        keys.forget(&"a");
        assert_eq!((keys.take(ms(9000)), keys.next_due()), (None, None));
    }

    #[test]
    fn a_limited_number_is_busy_in_the_order_of_wants() {
        let mut keys = Keys::new(Duration::ZERO, 2);
        for key in ["c", "a", "b"] {
            want(&mut keys, key, 0);
        }
        assert_eq!([keys.take(ms(0)), keys.take(ms(0))], [Some("c"), Some("a")]);
        assert_eq!((keys.take(ms(0)), keys.next_due()), (None, None));
        keys.ended(&"c");
        assert_eq!(keys.take(ms(0)), Some("b"));
        assert_eq!(keys.turns.len(), 2, "what is neither due nor busy is forgotten");
    }

    proptest! {
        /// Every key that is wanted has a turn, but not two at once, not two within the gap, and no more than `at_once`
        /// are busy.
        #[test]
        fn every_want_leads_to_a_turn(steps in prop::collection::vec((0..4_usize, 0..3_u8, 0..15_u64), 1..80)) {
            let (mut keys, names) = (Keys::new(GAP, 2), ["a", "b", "c", "d"]);
            let (mut now, mut busy, mut wanted, mut began) = (0, Vec::new(), [None; 4], [None; 4]);
            for (key, step, pause) in steps {
                now += pause;
                match step {
                    0 => {
                        want(&mut keys, names[key], now);
                        wanted[key].get_or_insert(now);
                    }
                    1 => while let Some(name) = keys.take(ms(now)) {
                        let at = names.iter().position(|one| *one == name).unwrap();
                        prop_assert!(!busy.contains(&at) && busy.len() < 2);
                        prop_assert!(began[at].is_none_or(|before| ms(now - before) >= GAP));
                        (began[at], wanted[at]) = (Some(now), None);
                        busy.push(at);
                    },
                    _ => if let Some(at) = busy.pop() {
                        keys.ended(&names[at]);
                    },
                }
            }
            while let Some(at) = busy.pop() {
                keys.ended(&names[at]);
            }
            while let Some(name) = keys.take(ms(now + 1000)) {
                wanted[names.iter().position(|one| *one == name).unwrap()] = None;
                keys.ended(&name);
            }
            prop_assert!(wanted.iter().all(Option::is_none));
        }
    }
}
