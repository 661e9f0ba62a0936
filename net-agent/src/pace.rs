// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How fast: at most so many requests in flight and so many per second, for NAPI and VMAPI
//! together, all through this one place. Reads take their turn inside the transport; a write
//! takes it first and looks at holds and node once more after the wait, so nothing decided long
//! ago is ever sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The agent's budget.
#[derive(Debug)]
pub struct Pace {
    slots: Arc<Semaphore>,
    spacing: Duration,
    next: Mutex<Option<Instant>>,
}

/// One request's turn; keep it until the answer is there.
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
        }
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
        Turn { _slot: slot }
    }
}

/// A transport whose every request takes its turn.
pub struct Paced {
    inner: Arc<dyn Transport>,
    pace: Arc<Pace>,
}

impl Paced {
    /// Puts the budget before `inner`.
    pub fn new(inner: Arc<dyn Transport>, pace: Arc<Pace>) -> Self {
        Self { inner, pace }
    }
}

impl Transport for Paced {
    fn send(&self, req: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let _turn = self.pace.turn().await;
            self.inner.send(req).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_second_sees_more_than_its_share_and_no_more_are_in_flight() {
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
        assert!(fifth.is_err(), "a fifth was let through");
        held.pop();
        pace.turn().await;
    }
}
