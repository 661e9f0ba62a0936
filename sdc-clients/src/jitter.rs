// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Randomness as a value that is passed in: the same seed gives the same waits.

use std::time::Duration;

use rand::rngs::{StdRng, SysRng};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// A seedable source of waits and orders.
#[derive(Debug)]
pub struct Jitter(StdRng);

impl Jitter {
    /// The generator that this seed determines.
    pub fn from_seed(seed: u64) -> Jitter {
        Jitter(StdRng::seed_from_u64(seed))
    }

    /// A generator seeded by the operating system, or by the process id and
    /// the clock if that fails.
    pub fn from_entropy() -> Jitter {
        match StdRng::try_from_rng(&mut SysRng) {
            Ok(rng) => Jitter(rng),
            Err(_) => {
                let now = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |d| d.as_nanos() as u64);
                Jitter::from_seed(now ^ (u64::from(std::process::id()) << 32))
            }
        }
    }

    /// A wait between zero and `ceiling`, both included.
    pub fn full(&mut self, ceiling: Duration) -> Duration {
        self.uniform(Duration::ZERO, ceiling)
    }

    /// A wait between `low` and `high`, both included; swapped bounds are put right.
    pub fn uniform(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        let span = u64::try_from((high - low).as_nanos()).unwrap_or(u64::MAX);
        low + Duration::from_nanos(self.0.random_range(0..=span))
    }

    /// A wait within `fraction` (0 to 1) of `middle`, on either side.
    pub fn around(&mut self, middle: Duration, fraction: f64) -> Duration {
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        let spread = middle.mul_f64(fraction);
        self.uniform(middle.saturating_sub(spread), middle.saturating_add(spread))
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        items.shuffle(&mut self.0);
    }

    /// An independent generator, determined by this one.
    pub fn fork(&mut self) -> Jitter {
        Jitter::from_seed(self.0.random())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_seed_determines_everything() {
        let draw = |seed| {
            let mut jitter = Jitter::from_seed(seed);
            let mut items: Vec<u32> = (0..20).collect();
            jitter.shuffle(&mut items);
            (items, jitter.full(Duration::from_secs(9)), jitter.fork().full(Duration::from_secs(9)))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut one = Jitter::from_entropy();
        let mut two = Jitter::from_entropy();
        let year = Duration::from_secs(31_536_000);
        assert_ne!(one.full(year), two.full(year));
    }

    proptest! {
        #[test]
        fn waits_stay_in_bounds(seed: u64, a in 0u64..10_000_000, b in 0u64..10_000_000, fraction: f64) {
            let mut jitter = Jitter::from_seed(seed);
            let (a, b) = (Duration::from_micros(a), Duration::from_micros(b));
            prop_assert!(jitter.full(a) <= a);
            let wait = jitter.uniform(a, b);
            prop_assert!(a.min(b) <= wait && wait <= a.max(b));
            prop_assert!(jitter.around(a, fraction) <= a * 2 + Duration::from_nanos(1));
            let near = jitter.around(a, 0.1);
            prop_assert!(near >= a.mul_f64(0.899) && near <= a.mul_f64(1.101));
        }
    }
}
