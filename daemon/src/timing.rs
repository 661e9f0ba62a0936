// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A monotonic clock, the source of random waits, and back-off.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use tokio::time::Instant;

use crate::config::Window;

pub const HOUR: Duration = Duration::from_secs(3600);
/// After this many failures in a row a task retries only at the long interval.
const PATIENCE: u32 = 30;

/// Monotonic time since the start of the program.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Something that is said only once in a while, however often it happens.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Returns true if it was not said for this time; then it is said now.
    pub fn is_due(&self, pause: Duration) -> bool {
        let (now, mut last) =
            (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let is_due = last.is_none_or(|at| now - at >= pause);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// The generator from which all tasks draw; cheap to clone.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<Jitter>>);

impl Random {
    /// Uses `seed` if one is configured.
    pub fn new(seed: Option<u64>) -> Self {
        Self(Arc::new(Mutex::new(seed.map_or_else(Jitter::from_entropy, Jitter::from_seed))))
    }

    fn with<T>(&self, draw: impl FnOnce(&mut Jitter) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a generator of its own for one owner.
    pub fn fork(&self) -> Jitter {
        self.with(Jitter::fork)
    }

    /// Draws a time from the window.
    pub fn within(&self, window: Window) -> Duration {
        self.with(|jitter| jitter.uniform(window.min, window.max))
    }

    /// Draws a time around `middle`, at most `fraction` of it away.
    pub fn around(&self, middle: Duration, fraction: f64) -> Duration {
        self.with(|jitter| jitter.around(middle, fraction))
    }
}

/// Returns the policy whose first and longest waits are the window's.
pub fn policy(window: Window, max_attempts: Option<u32>) -> Policy {
    let (initial, max) = (window.min, window.max);
    Policy { initial, max, multiplier: 2.0, max_attempts, max_elapsed: None }
}

/// The waits of a task that retries for ever: exponential, then a long interval, since what a
/// service can never serve is no reason for steady traffic.
#[derive(Debug)]
pub struct Retry {
    backoff: Backoff,
    jitter: Jitter,
    long: Duration,
}

impl Retry {
    /// Waits within `window`, and later about every `long`.
    pub fn new(window: Window, long: Duration, mut jitter: Jitter) -> Self {
        let backoff = Backoff::new(&policy(window, None), jitter.fork());
        Self { backoff, jitter, long: long.max(window.max) }
    }

    /// Returns the next wait.
    pub fn next_delay(&mut self) -> Duration {
        match self.backoff.next_delay().filter(|_| self.backoff.attempts() <= PATIENCE) {
            Some(delay) => delay,
            None => self.jitter.around(self.long, 0.25),
        }
    }

    /// Begins again, as after a success.
    pub fn reset(&mut self) {
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happens_to_hundreds_at_once_is_said_once() {
        let (seldom, pause) = (Seldom::default(), HOUR);
        assert_eq!((0..750).filter(|_| seldom.is_due(pause)).count(), 1);
        tokio::time::advance(pause).await;
        assert!(seldom.is_due(pause) && !seldom.is_due(pause));
    }
}
