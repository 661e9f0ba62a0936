// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A rate limit: a token bucket for whose tokens requests wait.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// A rate limit with a burst of two seconds' worth. No request is refused: the shipped services make their
/// clients wait, too, and a client that asks without a pause must not make requests of others fail.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    /// Tokens, and when they were counted. Who waits for a token holds the lock; others queue in their order.
    bucket: Mutex<(f64, Instant)>,
}

impl Pace {
    /// Allows `rate` per second in the long run; 0 means no limit.
    pub fn per_second(rate: u32) -> Self {
        let per_second = f64::from(rate);
        Self { per_second, bucket: Mutex::new((per_second * 2.0, Instant::now())) }
    }

    /// Waits for a token and takes it. Cancel-safe.
    pub async fn turn(&self) {
        if self.per_second == 0.0 {
            return;
        }
        let mut bucket = self.bucket.lock().await;
        loop {
            let now = Instant::now();
            let grown = bucket.0 + (now - bucket.1).as_secs_f64() * self.per_second;
            *bucket = (grown.min(self.per_second * 2.0), now);
            if bucket.0 >= 1.0 {
                break;
            }
            sleep(Duration::from_secs_f64((1.0 - bucket.0) / self.per_second)).await;
        }
        bucket.0 -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_taken_at_once_and_the_rest_waits_its_turn() {
        let began = Instant::now();
        let pace = Pace::per_second(10);
        for (count, ms) in [(20, 0..=0), (5, 500..=510), (100, 10_500..=10_700)] {
            for _ in 0..count {
                pace.turn().await;
            }
            let spent = began.elapsed().as_millis();
            assert!(ms.contains(&spent), "{count}: {spent} ms");
        }
        tokio::time::advance(Duration::from_secs(3600)).await;
        let rested = Instant::now();
        for _ in 0..20 {
            pace.turn().await;
        }
        assert!(rested.elapsed().is_zero());
        let free = Pace::per_second(0);
        for _ in 0..100_000 {
            free.turn().await;
        }
        assert!(rested.elapsed().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_a_turn_in_order_and_who_leaves_takes_none() {
        let pace = Pace::per_second(1);
        pace.turn().await;
        pace.turn().await;
        let began = Instant::now();
        let turn = async |name: &'static str| {
            pace.turn().await;
            (name, began.elapsed().as_secs())
        };
        let gone = async { tokio::time::timeout(Duration::from_millis(500), pace.turn()).await };
        let (a, left, b) = tokio::join!(turn("a"), gone, turn("b"));
        assert!(left.is_err());
        assert_eq!((a, b), (("a", 1), ("b", 2)));
    }
}
