// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The retry policy: attempts, exponential back-off with full jitter, a budget.
//!
//! The `backoff` crate is used here only, for the sequence of ceilings; [`Jitter`] draws the waits,
//! which pass on tokio's clock. [`Error::is_retryable`] decides which errors are retried.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backoff::backoff::Backoff as _;
use tokio::time::Instant;

use crate::error::Error;
use crate::jitter::Jitter;

/// Longest `Retry-After` that is waited for; a longer one is returned as an error.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A named schedule of attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Ceiling of the first wait.
    pub initial: Duration,
    /// No ceiling grows beyond this.
    pub max: Duration,
    /// Growth from one ceiling to the next.
    pub multiplier: f64,
    /// Attempts in all, the first included; `None` for no limit.
    pub max_attempts: Option<u32>,
    /// No wait begins that would end later than this after the first attempt.
    pub max_elapsed: Option<Duration>,
}

impl Policy {
    /// For services of this node: short waits, soon given up.
    pub fn local() -> Policy {
        Policy {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(2),
            multiplier: 2.0,
            max_attempts: Some(4),
            max_elapsed: Some(Duration::from_secs(10)),
        }
    }

    /// For one request to NAPI or VMAPI.
    pub fn napi() -> Policy {
        Policy {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(8),
            multiplier: 2.0,
            max_attempts: Some(5),
            max_elapsed: Some(Duration::from_secs(90)),
        }
    }

    /// For waiting until a service is back: without an end.
    pub fn probe() -> Policy {
        Policy {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(60),
            multiplier: 2.0,
            max_attempts: None,
            max_elapsed: None,
        }
    }

    /// One attempt, no second.
    pub fn once() -> Policy {
        Policy { max_attempts: Some(1), ..Policy::local() }
    }
}

/// The waits of one run of failures.
#[derive(Debug)]
pub struct Backoff {
    ceilings: backoff::ExponentialBackoff,
    policy: Policy,
    jitter: Jitter,
    attempts: u32,
    started: Instant,
}

impl Backoff {
    /// A fresh run under `policy`.
    pub fn new(policy: &Policy, jitter: Jitter) -> Backoff {
        let ceilings = backoff::ExponentialBackoffBuilder::new()
            .with_initial_interval(policy.initial.min(policy.max))
            .with_max_interval(policy.max)
            .with_multiplier(policy.multiplier.max(1.0))
            .with_randomization_factor(0.0)
            .with_max_elapsed_time(None)
            .build();
        Backoff { ceilings, policy: policy.clone(), jitter, attempts: 1, started: Instant::now() }
    }

    /// Returns the wait before the next attempt, or `None` when the policy is exhausted.
    pub fn next_delay(&mut self) -> Option<Duration> {
        self.next_delay_after(Duration::ZERO)
    }

    /// The same, but at least half of the ceiling, so that successive waits grow.
    pub fn next_growing_delay(&mut self) -> Option<Duration> {
        if self.policy.max_attempts.is_some_and(|max| self.attempts >= max) {
            return None;
        }
        let ceiling = self.ceilings.next_backoff()?.min(self.policy.max);
        self.attempts += 1;
        Some(self.jitter.uniform(ceiling / 2, ceiling))
    }

    /// The same, added to what the service asked for.
    fn next_delay_after(&mut self, asked: Duration) -> Option<Duration> {
        if self.policy.max_attempts.is_some_and(|max| self.attempts >= max) {
            return None;
        }
        let ceiling = self.ceilings.next_backoff()?.min(self.policy.max);
        // Jitter is added because all clients got the same answer.
        let delay = asked + self.jitter.full(ceiling);
        if self.policy.max_elapsed.is_some_and(|max| self.started.elapsed() + delay > max) {
            return None;
        }
        self.attempts += 1;
        Some(delay)
    }

    /// Begins again, as after a success.
    pub fn reset(&mut self) {
        self.ceilings.reset();
        self.attempts = 1;
        self.started = Instant::now();
    }

    /// Attempts made so far, the running one included.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// A bound on retries across all calls of one client: while a service is down, retries only add to its
/// load. Each first attempt earns a tenth of a retry.
#[derive(Debug)]
pub(crate) struct Budget(Mutex<u32>);

impl Budget {
    /// Retries that may be saved up, in tenths; a new budget starts full.
    const FULL: u32 = 200;
    const RETRY: u32 = 10;

    /// A full budget.
    pub(crate) fn new() -> Budget {
        Budget(Mutex::new(Budget::FULL))
    }

    fn earn(&self) {
        let mut tenths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *tenths = (*tenths + 1).min(Budget::FULL);
    }

    fn spend(&self) -> bool {
        let mut tenths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match tenths.checked_sub(Budget::RETRY) {
            Some(rest) => {
                *tenths = rest;
                true
            }
            None => false,
        }
    }
}

/// Runs `op` until it succeeds, fails for good, or the policy is exhausted. Retries are paid from
/// `budget`, if there is one.
pub(crate) async fn with_retry<T, F, Fut>(
    policy: &Policy,
    jitter: &mut Jitter,
    budget: Option<&Budget>,
    mut op: F,
) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let mut backoff = Backoff::new(policy, jitter.fork());
    if let Some(budget) = budget {
        budget.earn();
    }
    loop {
        let error = match op().await {
            Ok(value) => return Ok(value),
            Err(error) => error.with_attempts(backoff.attempts()),
        };
        if !error.is_retryable() {
            return Err(error);
        }
        let asked = error.retry_after().unwrap_or_default();
        if asked > LONGEST_RETRY_AFTER {
            return Err(error);
        }
        let Some(delay) = backoff.next_delay_after(asked) else { return Err(error) };
        if budget.is_some_and(|b| !b.spend()) {
            tracing::warn!(error = %error, "giving up a request: the retry budget is empty");
            return Err(error);
        }
        tracing::debug!(error = %error, delay_ms = delay.as_millis() as u64, "trying again");
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;
    use ::http::Method;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_never_exceed_their_ceilings(
            seed: u64, initial in 1u64..5_000, max in 1u64..60_000, multiplier in 0.5f64..4.0, attempts in 1u32..12,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let _guard = runtime.enter();
            let policy = Policy {
                initial: Duration::from_millis(initial),
                max: Duration::from_millis(max),
                multiplier,
                max_attempts: Some(attempts),
                max_elapsed: None,
            };
            let mut backoff = Backoff::new(&policy, Jitter::from_seed(seed));
            for round in 0..2 {
                let mut ceiling = policy.initial.min(policy.max);
                for n in 1..attempts {
                    let delay = backoff.next_delay();
                    prop_assert!(delay.is_some(), "round {} attempt {}", round, n);
                    // A little more than the ceiling: the crate counts in floats.
                    prop_assert!(delay.unwrap_or_default() <= ceiling.mul_f64(1.001) + Duration::from_micros(1));
                    ceiling = ceiling.mul_f64(multiplier.max(1.0)).min(policy.max);
                }
                prop_assert_eq!(backoff.next_delay(), None);
                backoff.reset();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_ends_after_the_deadline_of_the_policy() {
        let policy = Policy {
            max_attempts: None,
            max_elapsed: Some(Duration::from_secs(20)),
            ..Policy::napi()
        };
        let started = Instant::now();
        let mut jitter = Jitter::from_seed(5);
        let outcome: Result<(), Error> = with_retry(&policy, &mut jitter, None, || async {
            Err(Error::connect(&Method::GET, "/x", "refused"))
        })
        .await;
        assert!(outcome.unwrap_err().attempts() > 3);
        assert!(started.elapsed() <= Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_be_repeated_is() {
        for (class, method, tries) in [
            (Class::Connect, Method::DELETE, 4),
            (Class::Unavailable, Method::GET, 4),
            (Class::Unavailable, Method::DELETE, 1),
            (Class::UnknownOutcome, Method::PUT, 1),
            (Class::NotFoundRoute, Method::GET, 1),
            (Class::Protocol, Method::GET, 1),
        ] {
            let mut count = 0;
            let outcome: Result<(), Error> =
                with_retry(&Policy::local(), &mut Jitter::from_seed(1), None, || {
                    count += 1;
                    let error = Error::new(class, &method, "/x", "");
                    async { Err(error) }
                })
                .await;
            assert_eq!(outcome.unwrap_err().attempts(), tries, "{class:?} {method}");
            assert_eq!(count, tries);
        }
    }
}
