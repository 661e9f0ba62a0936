// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What to do when a service is overloaded or down: ask one request at a time, and ever less
//! often. Ten thousand agents that each go on asking every minute keep a slow NAPI from ever
//! answering anybody; the waits here grow until all of them together ask less than it can serve.
//! It decides only when the next request may go out, never which, and never gives one up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdc_clients::http::Response;
use sdc_clients::{Class, Error, Jitter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The first wait's ceiling.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait after refusals: they cost the service next to nothing.
const REFUSED: Duration = Duration::from_secs(64);
/// The longest wait after time-outs: each was work that nobody had anything of. Long enough that
/// ten thousand agents ask less than fifteen times a second, and reached in three steps: what is
/// asked on the way there only keeps the service from serving anybody.
const TIMED_OUT: Duration = Duration::from_secs(1024);
/// How fast the waits get there.
const TIMED_OUT_GROWTH: u32 = 16;

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

    /// Takes note of how a request came out.
    pub fn heard(&self, outcome: &Result<Response, Error>) {
        let (growth, longest) = match outcome {
            Ok(answer) if matches!(answer.status.as_u16(), 429 | 502..=504) => (2, REFUSED),
            Err(err) if err.is_timeout() => (TIMED_OUT_GROWTH, TIMED_OUT),
            Err(err) if err.class() == Class::Connect => (2, REFUSED),
            // Any other answer, and a lost one, tell of a service that works.
            Ok(_) | Err(_) => {
                self.state().ceiling = Duration::ZERO;
                return;
            }
        };
        let now = Instant::now();
        let mut state = self.state();
        if state.ceiling > Duration::ZERO && now < state.closed_until {
            // Sent before the last failure was known: it tells nothing new.
            return;
        }
        let ceiling = (state.ceiling * growth).max(FIRST).min(longest.max(state.ceiling));
        state.ceiling = ceiling;
        state.closed_until = now + state.jitter.uniform(ceiling / 2, ceiling);
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
    use sdc_clients::Phase;

    fn late() -> Result<Response, Error> {
        Err(Error::timed_out(Phase::Answer, &Method::GET, "/nics", Duration::from_secs(30)))
    }

    fn good() -> Result<Response, Error> {
        let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
        Ok(Response { status, headers, body: "[]".into() })
    }

    #[tokio::test(start_paused = true)]
    async fn under_strain_one_asks_at_a_time_and_ever_later_and_an_answer_ends_it() {
        let strain = Arc::new(Strain::new(Jitter::from_seed(1)));
        let (_one, _two) = (strain.ask().await, strain.ask().await);
        strain.heard(&late());
        strain.heard(&late());
        let mut gaps = Vec::new();
        for _ in 0..6 {
            let before = Instant::now();
            let asked = strain.ask().await;
            gaps.push(before.elapsed().as_secs_f64());
            let other = tokio::time::timeout(Duration::from_secs(9000), strain.ask()).await;
            assert!(other.is_err(), "two at once");
            strain.heard(&late());
            drop(asked);
        }
        let ceilings = [2.0, 32.0, 512.0, 1024.0, 1024.0, 1024.0];
        for (gap, ceiling) in gaps.iter().zip(ceilings) {
            assert!((ceiling / 2.0..=ceiling + 0.1).contains(gap), "{gaps:?}");
        }
        let asked = strain.ask().await;
        strain.heard(&good());
        drop(asked);
        let before = Instant::now();
        let _all = [strain.ask().await, strain.ask().await, strain.ask().await];
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_asked_about_every_minute_at_least() {
        let strain = Strain::new(Jitter::from_seed(2));
        let refused = || Err(Error::connect(&Method::GET, "/nics", "refused"));
        for _ in 0..20 {
            let before = Instant::now();
            drop(strain.ask().await);
            assert!(before.elapsed() <= Duration::from_millis(64_100));
            strain.heard(&refused());
        }
    }
}
