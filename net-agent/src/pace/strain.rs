// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What to do when a service is overloaded or down: ask one request at a time, ever less often,
//! and wait for its answer longer. It decides only when the next request may go out and how long
//! its answer may take, never which, and never gives one up.
//!
//! No agent knows how many others ask; all it sees is its own answers. So each is a controller of
//! its own rate, and the rules are chosen for what ten thousand of them do together:
//!
//! * A time-out multiplies the wait (32 → 128 → 512 s): the load falls to about the capacity in
//!   two steps, whatever the capacity is. The longest wait lets ten thousand agents ask some
//!   twenty times a second, so that a NAPI of fifteen is kept busy and not buried.
//! * An answer halves the wait, and cuts it to four times what the answer took: a queue that is
//!   still long keeps its askers slow, and a service that is quick again is asked at once.
//! * Under strain the patience is drawn anew for each request, from one to four times the usual.
//!   When all give up after the same time, a queue that long serves nobody: whatever reaches its
//!   head has just been given up. With patience of all lengths the longest are served, at the full
//!   capacity; and a place kept in the queue costs a server less than the same question again.
//!
//! A connection that is not taken in time cost the server next to nothing, a refusal or a 503
//! nothing: such waits grow alike but are shorter, for when the service comes back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdc_clients::http::Response;
use sdc_clients::{Class, Error, Jitter, Phase};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How waits grow after one kind of failure.
struct Growth {
    /// The first wait's ceiling.
    first: Duration,
    /// Each next one is as many times as long, ...
    times: u32,
    /// ... up to this.
    longest: Duration,
}

/// No answer in time: work that nobody had anything of.
const LATE: Growth =
    Growth { first: Duration::from_secs(32), times: 4, longest: Duration::from_secs(512) };
/// A connection that was not taken in time.
const NOT_TAKEN: Growth =
    Growth { first: Duration::from_secs(8), times: 4, longest: Duration::from_secs(256) };
/// Refused, or 503.
const REFUSED: Growth =
    Growth { first: Duration::from_secs(2), times: 2, longest: Duration::from_secs(64) };
/// An answer allows a wait of at most as many times what it took.
const AFTER_ANSWER: u32 = 4;
/// A shorter ceiling than this is none.
const NONE: Duration = Duration::from_secs(1);
/// The longest patience under strain, as a multiple of the usual one.
const PATIENCE: u32 = 4;

/// How one service bears us.
#[derive(Debug)]
pub struct Strain {
    state: Mutex<State>,
    alone: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    /// The ceiling of the last wait; zero when all is well.
    ceiling: Duration,
    closed_until: Instant,
    jitter: Jitter,
}

impl State {
    /// Nothing goes out for a while below this ceiling; zero is no strain.
    fn close(&mut self, ceiling: Duration, now: Instant) {
        self.ceiling = ceiling;
        self.closed_until = now + self.jitter.uniform(ceiling / 2, ceiling);
    }
}

/// What kind of failure this is, if it tells of strain.
fn failed(outcome: &Result<Response, Error>) -> Option<&'static Growth> {
    match outcome {
        Ok(answer) => matches!(answer.status.as_u16(), 429 | 502..=504).then_some(&REFUSED),
        Err(err) => match err.class() {
            Class::Connect => Some(&REFUSED),
            Class::Timeout(Phase::Connect) => Some(&NOT_TAKEN),
            Class::Timeout(_) => Some(&LATE),
            _ => None,
        },
    }
}

/// The right to ask; under strain, the only one.
#[derive(Debug)]
pub struct Ask {
    _alone: Option<OwnedSemaphorePermit>,
}

impl Strain {
    /// Nothing known: all is well.
    pub fn new(jitter: Jitter) -> Self {
        let state = State { ceiling: Duration::ZERO, closed_until: Instant::now(), jitter };
        Self { state: Mutex::new(state), alone: Arc::new(Semaphore::new(1)) }
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

    /// How long the answer to the next request may take, where `usual` is enough without strain.
    pub fn patience(&self, usual: Duration) -> Duration {
        let mut state = self.state();
        if state.ceiling.is_zero() {
            return usual;
        }
        state.jitter.uniform(usual, usual.saturating_mul(PATIENCE))
    }

    /// Takes note of how a request came out, and how long that took.
    pub fn heard(&self, outcome: &Result<Response, Error>, took: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(growth) = failed(outcome) else {
            // Any other answer, and a lost one, tell of a service that works.
            if !state.ceiling.is_zero() {
                let ceiling = (state.ceiling / 2).min(took.saturating_mul(AFTER_ANSWER));
                state.close(if ceiling < NONE { Duration::ZERO } else { ceiling }, now);
            }
            return;
        };
        if !state.ceiling.is_zero() && now < state.closed_until {
            // Sent before the last failure was known: it tells nothing new.
            return;
        }
        let ceiling = state.ceiling.saturating_mul(growth.times).max(growth.first);
        let ceiling = ceiling.min(growth.longest.max(state.ceiling));
        state.close(ceiling, now);
    }

    /// When the next request may go out, if the service is under strain.
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
    async fn under_strain_one_asks_at_a_time_and_ever_later() {
        let strain = Arc::new(Strain::new(Jitter::from_seed(1)));
        let (_one, _two) = (strain.ask().await, strain.ask().await);
        strain.heard(&late(Phase::Answer), 30 * S);
        strain.heard(&late(Phase::Answer), 30 * S);
        let mut gaps = Vec::new();
        for _ in 0..5 {
            let (gap, asked) = wait(&strain).await;
            gaps.push(gap);
            let other = tokio::time::timeout(9000 * S, strain.ask()).await;
            assert!(other.is_err(), "two at once");
            strain.heard(&late(Phase::Answer), 30 * S);
            drop(asked);
        }
        let ceilings = [32.0, 128.0, 512.0, 512.0, 512.0];
        for (gap, ceiling) in gaps.iter().zip(ceilings) {
            assert!((ceiling / 2.0..=ceiling + 0.1).contains(gap), "{gaps:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_ease_the_strain_and_a_quick_one_ends_it() {
        let strain = Strain::new(Jitter::from_seed(1));
        for _ in 0..3 {
            strain.heard(&late(Phase::Answer), 30 * S);
            drop(strain.ask().await);
        }
        for ceiling in [80.0, 40.0, 20.0] {
            strain.heard(&good(), 20 * S);
            let (gap, _asked) = wait(&strain).await;
            assert!((ceiling / 2.0..=ceiling + 0.1).contains(&gap), "{gap} of {ceiling}");
        }
        strain.heard(&good(), Duration::from_millis(20));
        let before = Instant::now();
        let _all = [strain.ask().await, strain.ask().await, strain.ask().await];
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_differs_from_request_to_request_under_strain_only() {
        let strain = Strain::new(Jitter::from_seed(1));
        assert_eq!(strain.patience(30 * S), 30 * S);
        strain.heard(&late(Phase::Body), 30 * S);
        let drawn: std::collections::BTreeSet<_> =
            (0..100).map(|_| strain.patience(30 * S)).collect();
        assert!(drawn.iter().all(|p| (30 * S..=120 * S).contains(p)), "{drawn:?}");
        assert!(drawn.first() < Some(&(40 * S)) && drawn.last() > Some(&(110 * S)), "{drawn:?}");
        strain.heard(&good(), S / 100);
        assert_eq!(strain.patience(30 * S), 30 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cost_the_service_nothing_is_asked_about_every_minute_or_every_four() {
        for (phase, longest) in [(None, 64.1), (Some(Phase::Connect), 256.1)] {
            let strain = Strain::new(Jitter::from_seed(2));
            let mut waited: f64 = 0.0;
            for _ in 0..20 {
                let (gap, _asked) = wait(&strain).await;
                waited = waited.max(gap);
                strain.heard(
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
