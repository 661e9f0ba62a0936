// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A rate limit: a token bucket.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// A rate limit with a burst of two seconds' worth.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    bucket: Mutex<(f64, Instant)>,
}

impl Pace {
    /// Allows `rate` per second in the long run; 0 means no limit.
    pub fn per_second(rate: u32) -> Self {
        let per_second = f64::from(rate);
        Self { per_second, bucket: Mutex::new((per_second * 2.0, Instant::now())) }
    }

    /// Takes a token; returns false if there is none.
    pub fn take(&self) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let grown = bucket.0 + (now - bucket.1).as_secs_f64() * self.per_second;
        bucket.1 = now;
        bucket.0 = grown.min(self.per_second * 2.0);
        let there = bucket.0 >= 1.0;
        if there {
            bucket.0 -= 1.0;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn allows_a_burst_and_then_the_rate() {
        let pace = Pace::per_second(10);
        assert_eq!((0..100).filter(|_| pace.take()).count(), 20);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!((0..100).filter(|_| pace.take()).count(), 5);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..100).filter(|_| pace.take()).count(), 20);
        let free = Pace::per_second(0);
        assert!((0..100_000).all(|_| free.take()));
    }
}
