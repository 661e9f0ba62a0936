// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which server is asked next, and when. Pure.

use std::time::Duration;

use crate::jitter::Jitter;

/// The longest wait between two attempts to connect: 2,000 agents then make 70 attempts a second.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The turns of the servers.
#[derive(Debug)]
pub struct Turns {
    waits: Vec<Duration>,
    drawn: usize,
    last: Option<String>,
}

impl Turns {
    /// Draws the waits, and the first server.
    pub fn new(mut jitter: Jitter) -> Turns {
        let waits = (0..64).map(|_| jitter.full(LONGEST_WAIT)).collect();
        Turns { waits, drawn: 0, last: None }
    }

    /// Returns the next server and the wait before it: of those that failed least often the one behind the last one. A
    /// server that was left is not asked again at once.
    pub fn next(&mut self, servers: &[(String, usize)]) -> Option<(usize, Duration)> {
        let count = servers.len();
        let drawn = self.waits.get(self.drawn % self.waits.len().max(1)).copied();
        let drawn = drawn.unwrap_or(LONGEST_WAIT);
        self.drawn += 1;
        let known = servers.iter().position(|(name, _)| Some(name) == self.last.as_ref());
        let last = known.unwrap_or((drawn.as_millis() % 1000) as usize);
        let order = (1..=count).map(|step| (last + step) % count);
        let next = order.min_by_key(|nth| servers.get(*nth).map(|(_, failed)| *failed))?;
        let (name, failed) = servers.get(next)?;
        self.last = Some(name.clone());
        Some((next, wait(drawn, *failed)))
    }
}

/// The wait before an attempt after so many: drawn, from a ceiling that doubles from 500 ms.
fn wait(drawn: Duration, failed: usize) -> Duration {
    let ceiling = Duration::from_millis(500 << failed.min(10)).min(LONGEST_WAIT);
    drawn.mul_f64(ceiling.as_secs_f64() / LONGEST_WAIT.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(failed: &[usize]) -> Vec<(String, usize)> {
        failed.iter().enumerate().map(|(nth, failed)| (format!("n{nth}"), *failed)).collect()
    }

    #[test]
    fn the_next_server_is_another_one_and_those_that_failed_come_last() {
        // N24
        for seed in 0..20 {
            let mut turns = Turns::new(Jitter::from_seed(seed));
            let mut next = |failed: &[usize]| turns.next(&pool(failed)).unwrap().0;
            let first = next(&[0, 0, 0]);
            assert_eq!(next(&[0, 0, 0]), (first + 1) % 3);
            assert_eq!(next(&[0, 0, 0]), (first + 2) % 3);
            assert_eq!(next(&[3, 0, 3]), 1);
            assert_eq!(next(&[0, 0, 3]), 0);
            assert_eq!(next(&[0, 0, 3]), 1);
            assert_eq!(next(&[7]), 0);
        }
        assert_eq!(Turns::new(Jitter::from_seed(1)).next(&[]), None);
    }

    #[test]
    fn waits_grow_are_drawn_and_end_at_the_longest() {
        let mut turns = Turns::new(Jitter::from_seed(1));
        let mut waits = Vec::new();
        for failed in 0..200 {
            let (_, wait) = turns.next(&pool(&[failed])).unwrap();
            assert!(wait <= Duration::from_millis(500 << failed.min(10)).min(LONGEST_WAIT));
            waits.push(wait);
        }
        let late = &waits[20..84];
        assert!(late.iter().any(|wait| *wait < LONGEST_WAIT / 4));
        assert!(late.iter().any(|wait| *wait > LONGEST_WAIT / 2));
    }
}
