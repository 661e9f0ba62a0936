// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Strain: a service that is overloaded or down is sent one request at a time, less and less often,
//! and its answers may take longer. Strain decides only when the next request is sent and how long
//! its answer may take.
//!
//! An agent does not know how many others there are; it sees only its own answers. So each agent
//! controls its own rate, by rules that work for ten thousand of them together:
//!
//! * A time-out multiplies the wait (32 → 128 → 512 s): the load falls to about the capacity in two
//!   steps, whatever the capacity is. At the longest wait ten thousand agents send about twenty
//!   requests per second, which keeps a NAPI that can serve fifteen busy without a growing queue.
//! * An answer halves the wait and cuts it to four times what the answer took: a long queue keeps
//!   the agents slow, and a service that is fast again is asked at once.
//! * Under strain the deadline of each request is drawn from one to four times the usual. If all
//!   gave up after the same time, a queue of that length would serve no caller, since a request that
//!   reaches its head has just been given up. With different deadlines the longest are served, at
//!   full capacity; and a place in the queue costs the server less than the same request again.
//!
//! A connection that is not accepted in time costs the server almost nothing, a refusal or a 503
//! nothing: those waits grow too, but are shorter.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdc_clients::http::Response;
use sdc_clients::{Class, Error, Jitter, Phase};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::Window;

/// How waits grow after one kind of failure.
#[derive(Clone, Copy, Debug)]
struct Growth {
    /// The ceiling of the first wait.
    first: Duration,
    /// The factor from one wait to the next.
    times: u32,
    /// The longest wait.
    longest: Duration,
}

/// No answer in time.
const LATE: Growth =
    Growth { first: Duration::from_secs(32), times: 4, longest: Duration::from_secs(512) };
/// A connection that was not accepted in time.
const NOT_TAKEN: Growth =
    Growth { first: Duration::from_secs(8), times: 4, longest: Duration::from_secs(256) };
/// Refused, or 503.
const REFUSED: Growth =
    Growth { first: Duration::from_secs(2), times: 2, longest: Duration::from_secs(64) };
/// The wait after an answer, as a multiple of what it took.
const AFTER_ANSWER: u32 = 4;
/// Shorter ceilings end the strain.
const NONE: Duration = Duration::from_secs(1);
/// The longest patience under strain, as a multiple of the usual one.
const PATIENCE: u32 = 4;

/// The strain of one service.
#[derive(Debug)]
pub struct Strain {
    state: Mutex<State>,
    refused: Growth,
    alone: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    /// The ceiling of the last wait; zero without strain.
    ceiling: Duration,
    closed_until: Instant,
    jitter: Jitter,
}

impl State {
    /// Starts a wait below this ceiling; zero ends the strain.
    fn close(&mut self, ceiling: Duration, now: Instant) {
        self.ceiling = ceiling;
        self.closed_until = now + self.jitter.uniform(ceiling / 2, ceiling);
    }
}

/// Returns how waits grow after this outcome, if it is a sign of strain.
fn failed(outcome: &Result<Response, Error>, refused: Growth) -> Option<Growth> {
    match outcome {
        Ok(answer) => matches!(answer.status.as_u16(), 429 | 502..=504).then_some(refused),
        Err(err) => match err.class() {
            Class::Connect => Some(refused),
            Class::Timeout(Phase::Connect) => Some(NOT_TAKEN),
            Class::Timeout(_) => Some(LATE),
            _ => None,
        },
    }
}

/// The right to send a request; under strain there is only one.
#[derive(Debug)]
pub struct Ask {
    _alone: Option<OwnedSemaphorePermit>,
}

impl Strain {
    pub fn new(jitter: Jitter) -> Self {
        let state = State { ceiling: Duration::ZERO, closed_until: Instant::now(), jitter };
        Self { state: Mutex::new(state), refused: REFUSED, alone: Arc::new(Semaphore::new(1)) }
    }

    /// The same with these waits, which double, while the service refuses.
    #[must_use]
    pub fn refused_within(mut self, waits: Window) -> Self {
        self.refused = Growth { first: waits.min, times: 2, longest: waits.max };
        self
    }

    /// Waits until a request may go out. Cancel-safe.
    pub async fn ask(&self) -> Ask {
        if self.closed_until().is_none() {
            return Ask { _alone: None };
        }
        // The semaphore is never closed; were it, the waits alone would still hold.
        let alone = Arc::clone(&self.alone).acquire_owned().await.ok();
        while let Some(until) = self.closed_until() {
            if until <= Instant::now() {
                return Ask { _alone: alone };
            }
            tokio::time::sleep_until(until).await;
        }
        Ask { _alone: None }
    }

    /// Returns how long the answer to the next request may take; `usual` without strain.
    pub fn patience(&self, usual: Duration) -> Duration {
        let mut state = self.state();
        if state.ceiling.is_zero() {
            return usual;
        }
        state.jitter.uniform(usual, usual.saturating_mul(PATIENCE))
    }

    /// Records the outcome of a request, and how long it took.
    pub fn record(&self, outcome: &Result<Response, Error>, took: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(growth) = failed(outcome, self.refused) else {
            // After any other answer, and a lost one, the service is considered to work.
            if !state.ceiling.is_zero() {
                let ceiling = (state.ceiling / 2).min(took.saturating_mul(AFTER_ANSWER));
                state.close(if ceiling < NONE { Duration::ZERO } else { ceiling }, now);
            }
            return;
        };
        if !state.ceiling.is_zero() && now < state.closed_until {
            // It was sent before the last failure was known.
            return;
        }
        let ceiling = state.ceiling.saturating_mul(growth.times).max(growth.first);
        let ceiling = ceiling.min(growth.longest.max(state.ceiling));
        state.close(ceiling, now);
    }

    /// Returns when the next request may be sent, under strain.
    fn closed_until(&self) -> Option<Instant> {
        let state = self.state();
        (!state.ceiling.is_zero()).then_some(state.closed_until)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    const S: Duration = Duration::from_secs(1);

    fn late(phase: Phase) -> Result<Response, Error> {
        Err(Error::timed_out(phase, &Method::GET, "/nics", 30 * S))
    }

    fn good() -> Result<Response, Error> {
        let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
        Ok(Response { status, headers, body: "[]".into() })
    }

    /// Waits for the next turn, in seconds.
    async fn wait(strain: &Strain) -> (f64, Ask) {
        let before = Instant::now();
        let asked = strain.ask().await;
        (before.elapsed().as_secs_f64(), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn asks_alone_and_later_under_strain() {
        let strain = Arc::new(Strain::new(Jitter::from_seed(1)));
        let (_one, _two) = (strain.ask().await, strain.ask().await);
        strain.record(&late(Phase::Answer), 30 * S);
        strain.record(&late(Phase::Answer), 30 * S);
        let mut gaps = Vec::new();
        for _ in 0..5 {
            let (gap, asked) = wait(&strain).await;
            gaps.push(gap);
            let other = tokio::time::timeout(9000 * S, strain.ask()).await;
            assert!(other.is_err(), "two at once");
            strain.record(&late(Phase::Answer), 30 * S);
            drop(asked);
        }
        let ceilings = [32.0, 128.0, 512.0, 512.0, 512.0];
        for (gap, ceiling) in gaps.iter().zip(ceilings) {
            assert!((ceiling / 2.0..=ceiling + 0.1).contains(gap), "{gaps:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_ease_the_strain() {
        let strain = Strain::new(Jitter::from_seed(1));
        for _ in 0..3 {
            strain.record(&late(Phase::Answer), 30 * S);
            drop(strain.ask().await);
        }
        for ceiling in [80.0, 40.0, 20.0] {
            strain.record(&good(), 20 * S);
            let (gap, _asked) = wait(&strain).await;
            assert!((ceiling / 2.0..=ceiling + 0.1).contains(&gap), "{gap} of {ceiling}");
        }
        strain.record(&good(), Duration::from_millis(20));
        let before = Instant::now();
        let _all = [strain.ask().await, strain.ask().await, strain.ask().await];
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_varies_only_under_strain() {
        let strain = Strain::new(Jitter::from_seed(1));
        assert_eq!(strain.patience(30 * S), 30 * S);
        strain.record(&late(Phase::Body), 30 * S);
        let drawn: std::collections::BTreeSet<_> =
            (0..100).map(|_| strain.patience(30 * S)).collect();
        assert!(drawn.iter().all(|p| (30 * S..=120 * S).contains(p)), "{drawn:?}");
        assert!(drawn.first() < Some(&(40 * S)) && drawn.last() > Some(&(110 * S)), "{drawn:?}");
        strain.record(&good(), S / 100);
        assert_eq!(strain.patience(30 * S), 30 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn cheap_failures_are_retried_sooner() {
        for (phase, longest) in [(None, 64.1), (Some(Phase::Connect), 256.1)] {
            let strain = Strain::new(Jitter::from_seed(2));
            let mut waited: f64 = 0.0;
            for _ in 0..20 {
                let (gap, _asked) = wait(&strain).await;
                waited = waited.max(gap);
                strain.record(
                    &phase.map_or_else(
                        || Err(Error::connect(&Method::GET, "/nics", "refused")),
                        late,
                    ),
                    5 * S,
                );
            }
            assert!((longest / 2.0..=longest).contains(&waited), "{waited}");
        }
    }
}
