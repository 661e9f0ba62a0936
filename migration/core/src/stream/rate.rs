// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The limit that all streams of a node share, in both directions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// What is saved up while nothing moves, as time at the limit.
const BURST: Duration = Duration::from_millis(50);
/// Bytes per second of one Mbit/s.
const MBIT: f64 = 125_000.0;

/// A limit in Mbit/s, or none.
#[derive(Debug)]
pub struct Rate {
    mbps: watch::Sender<Option<u32>>,
    account: Mutex<Account>,
    /// One waits for credit; the others wait in line.
    turn: Semaphore,
    /// What passes here has to pass there too.
    within: Option<Arc<Rate>>,
}

/// Bytes that may pass now; negative while a frame that has passed is paid off.
#[derive(Debug)]
struct Account {
    credit: f64,
    at: Instant,
}

impl Account {
    /// Books what was earned until now, and returns how long it is until something may pass.
    fn settle(&mut self, mbps: u32, now: Instant) -> Duration {
        let rate = f64::from(mbps) * MBIT;
        let earned = now.duration_since(self.at).as_secs_f64() * rate;
        self.credit = (self.credit + earned).min(BURST.as_secs_f64() * rate);
        self.at = now;
        Duration::from_secs_f64((-self.credit / rate).max(0.0))
    }
}

impl Rate {
    /// A rate with this limit in Mbit/s; none or 0 is no limit.
    pub fn new(mbps: Option<u32>) -> Rate {
        Rate {
            mbps: watch::Sender::new(mbps.filter(|mbps| *mbps > 0)),
            account: Mutex::new(Account { credit: 0.0, at: Instant::now() }),
            turn: Semaphore::new(1),
            within: None,
        }
    }

    /// The rate of one migration, within that of the node.
    pub fn within(all: &Arc<Rate>, mbps: Option<u32>) -> Rate {
        Rate { within: Some(Arc::clone(all)), ..Rate::new(mbps) }
    }

    /// Changes the limit, for what waits already too.
    pub fn set(&self, mbps: Option<u32>) {
        if let Some(old) = *self.mbps.borrow() {
            // What was earned so far was earned at the old limit.
            self.settle(old);
        }
        self.mbps.send_replace(mbps.filter(|mbps| *mbps > 0));
    }

    /// The limit in Mbit/s.
    pub fn mbps(&self) -> Option<u32> {
        *self.mbps.borrow()
    }

    /// Waits until `bytes` may pass.
    pub(super) async fn pass(&self, bytes: usize) {
        self.pass_here(bytes).await;
        if let Some(all) = &self.within {
            all.pass_here(bytes).await;
        }
    }

    async fn pass_here(&self, bytes: usize) {
        let _turn = self.turn.acquire().await;
        let mut changes = self.mbps.subscribe();
        loop {
            let Some(mbps) = *changes.borrow_and_update() else { return };
            let wait = self.settle(mbps);
            if wait.is_zero() {
                let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
                account.credit -= bytes as f64;
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn settle(&self, mbps: u32) -> Duration {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.settle(mbps, Instant::now())
    }
}
