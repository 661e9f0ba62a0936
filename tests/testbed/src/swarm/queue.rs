// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI's capacity: one server that serves a fixed number of requests per second, first come, first
//! served. Under overload it either drops requests whose client gave up, or does all work that it
//! accepted and lets connections time out when its backlog is full: it is unknown which a given
//! NAPI does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

/// Requests a server takes on before connections are left waiting (node's own default).
pub const BACKLOG: u32 = 511;

/// What a server does with a request whose client has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Overload {
    /// It notices, and goes on with the next.
    Drops,
    /// It serves it all the same; a full backlog refuses by silence.
    Wastes,
}

/// The server.
#[derive(Debug)]
pub struct Queue {
    spacing: Duration,
    overload: Overload,
    turn: Semaphore,
    /// When everything taken on so far is done.
    free_at: Mutex<Instant>,
}

/// Why a request was not taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Queue {
    /// A server of `per_second` requests.
    pub fn new(per_second: f64, overload: Overload) -> Self {
        Self {
            spacing: Duration::from_secs_f64(1.0 / per_second),
            overload,
            turn: Semaphore::new(1),
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for the request's turn and its service. Dropping the future is the client's giving up.
    pub async fn serve(&self) -> Result<(), Full> {
        let arrived = Instant::now();
        // The semaphore is never closed, and fair: first come, first served.
        let _turn = match self.overload {
            Overload::Drops => self.turn.acquire().await.ok(),
            Overload::Wastes => None,
        };
        let done = {
            let mut free_at = self.free_at();
            let backlog = free_at.saturating_duration_since(arrived);
            if self.overload == Overload::Wastes && backlog > self.spacing * BACKLOG {
                return Err(Full);
            }
            // Counted from when it could have begun: the timer's coarseness costs no capacity.
            *free_at = (*free_at).max(arrived) + self.spacing;
            *free_at
        };
        sleep_until(done).await;
        Ok(())
    }

    fn free_at(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
