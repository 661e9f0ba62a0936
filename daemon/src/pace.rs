// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The budget of requests: a rate and a number in flight, for all services together. A read takes
//! its turn before each attempt, retries included, and the wait does not count against its deadline.
//! A write takes its turn before its permit is made, so the checks come after the wait.

mod strain;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use strain::Strain;

use futures_util::future::BoxFuture;
use sdc_clients::http::{Permit, Request, Response, Switched, Transport};
use sdc_clients::{Error, Jitter};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::Window;

/// The budget.
#[derive(Debug)]
pub struct Pace {
    slots: Arc<Semaphore>,
    spacing: Duration,
    next: Mutex<Option<Instant>>,
    taken: AtomicU64,
}

/// The turn of one request; keep it until the answer has arrived.
#[derive(Debug)]
pub struct Turn {
    _slot: Option<OwnedSemaphorePermit>,
}

impl Pace {
    /// A budget of `per_second` requests, `in_flight` at a time.
    pub fn new(per_second: u64, in_flight: u64) -> Self {
        let per_second = u32::try_from(per_second.max(1)).unwrap_or(u32::MAX);
        Self {
            slots: Arc::new(Semaphore::new(usize::try_from(in_flight.max(1)).unwrap_or(1))),
            spacing: Duration::from_secs(1) / per_second,
            next: Mutex::new(None),
            taken: AtomicU64::new(0),
        }
    }

    /// Returns the number of turns taken since the start.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Waits for a slot and for the rate.
    pub async fn turn(&self) -> Turn {
        // The semaphore is never closed; were it, the rate alone would still hold.
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        let mut next = self.next.lock().await;
        if let Some(at) = *next {
            tokio::time::sleep_until(at).await;
        }
        *next = Some(Instant::now() + self.spacing);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Turn { _slot: slot }
    }
}

/// A transport to one service: each request takes its turn before its deadline begins, and a service
/// that is overloaded or down is asked less.
pub struct Paced {
    inner: Arc<dyn Transport>,
    pace: Arc<Pace>,
    strain: Strain,
}

impl Paced {
    /// Puts the budget before `inner`; `jitter` spreads the requests to a service under strain.
    pub fn new(inner: Arc<dyn Transport>, pace: Arc<Pace>, jitter: Jitter) -> Self {
        Self { inner, pace, strain: Strain::new(jitter) }
    }

    /// The same with these waits, which double, while the service refuses.
    #[must_use]
    pub fn refused_within(self, waits: Window) -> Self {
        Self { strain: self.strain.refused_within(waits), ..self }
    }
}

/// The same service for a caller that holds the permit of [`Paced::admit`] already and sends several
/// requests with it.
pub struct Admitted(pub Arc<Paced>);

impl Transport for Admitted {
    fn patience(&self, usual: Duration) -> Duration {
        self.0.patience(usual)
    }

    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        self.0.send(request)
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        self.0.upgrade(request)
    }
}

impl Transport for Paced {
    fn admit(&self) -> BoxFuture<'_, Permit> {
        Box::pin(async move {
            let ask = self.strain.ask().await;
            Permit::holding((ask, self.pace.turn().await))
        })
    }

    fn patience(&self, usual: Duration) -> Duration {
        self.strain.patience(usual)
    }

    fn send(&self, req: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let asked = Instant::now();
            let outcome = self.inner.send(req).await;
            self.strain.record(&outcome, asked.elapsed());
            outcome
        })
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        self.inner.upgrade(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keeps_rate_and_concurrency() {
        let pace = Arc::new(Pace::new(5, 4));
        let started = Instant::now();
        for _ in 0..26 {
            drop(pace.turn().await);
        }
        assert!(started.elapsed() >= Duration::from_secs(5), "{:?}", started.elapsed());
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(pace.turn().await);
        }
        let fifth = tokio::time::timeout(Duration::from_secs(60), pace.turn()).await;
        assert!(fifth.is_err(), "a fifth got a turn");
        held.pop();
        pace.turn().await;
    }

    /// Answers as slowly as a NAPI under load.
    struct Slow(Duration);

    impl Transport for Slow {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, Error>> {
            Box::pin(async move {
                tokio::time::sleep(self.0).await;
                let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
                Ok(Response { status, headers, body: "[]".into() })
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_turn_costs_no_deadline() {
        let pace = Arc::new(Pace::new(5, 1));
        let slow: Arc<dyn Transport> = Arc::new(Slow(Duration::from_secs(20)));
        let paced = Arc::new(Paced::new(slow, Arc::clone(&pace), Jitter::from_seed(1)));
        let http = sdc_clients::Http::with_transport("http://napi.lab", "t/1", paced).unwrap();
        let calls = (0..6).map(|_| {
            let http = http.clone();
            async move { http.execute(sdc_clients::http::Call::get(&["nics"])).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|a| a.attempts() == 1)));
    }
}
