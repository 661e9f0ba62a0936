// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Wakes the loop at a moment exactly. The runtime's timers count in milliseconds and are up to two
//! of them late, which is more than all else that happens to a file's change after its fold.
//!
//! Only a hint: what is due is decided by the runtime's clock alone, whoever woke the loop. So a
//! loop without an alarm does the same, a little later; simulated time has none.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long before a moment to ask for it: the thread sleeps a little longer than it asked for
/// (on Linux by its timer slack), and the loop needs a while to wake up.
pub const AHEAD: Duration = Duration::from_micros(100);

/// A thread that waits for one moment at a time; it ends when this is dropped.
#[derive(Debug, Default)]
pub struct Alarm(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    news: Condvar,
    rings: Notify,
}

#[derive(Debug, Default)]
struct Wanted {
    at: Option<Instant>,
    ends: bool,
}

impl Alarm {
    /// No alarm: the runtime's timers have to do.
    pub fn none() -> Self {
        Self(None)
    }

    /// One that rings; none where the system gives no thread.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let waits = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("alarm".to_owned());
        match thread.stack_size(STACK).spawn(move || waits.wait()) {
            Ok(_) => Self(Some(shared)),
            Err(error) => {
                tracing::warn!(%error, "no thread for exact times: changes are told up to 2 ms later");
                Self::none()
            }
        }
    }

    /// Is time simulated, or are there no exact times?
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Rings at this moment, and no more at any that was asked for before.
    pub fn set(&self, at: Instant) {
        let Some(shared) = &self.0 else { return };
        let mut wanted = shared.lock();
        let sooner = wanted.at.is_none_or(|before| at < before);
        wanted.at = Some(at);
        drop(wanted);
        // Who is woken too soon looks again by itself.
        if sooner {
            shared.news.notify_one();
        }
    }

    /// Waits until it rings. Cancel-safe: a ring that nobody waits for is kept.
    pub async fn rings(&self) {
        match &self.0 {
            Some(shared) => shared.rings.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().ends = true;
            shared.news.notify_one();
        }
    }
}

/// It calls nearly nothing.
const STACK: usize = 64 * 1024;

impl Shared {
    fn wait(&self) {
        let mut wanted = self.lock();
        while !wanted.ends {
            let Some(at) = wanted.at else {
                wanted = self.news.wait(wanted).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = at.saturating_duration_since(Instant::now());
            if left > Duration::ZERO {
                let waited = self.news.wait_timeout(wanted, left);
                wanted = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            wanted.at = None;
            self.rings.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rings_at_the_moment_that_was_asked_for_last_and_not_before() {
        let alarm = Alarm::start();
        let began = Instant::now();
        alarm.set(began + Duration::from_secs(3600));
        alarm.set(began + Duration::from_millis(3));
        alarm.rings().await;
        assert!(began.elapsed() >= Duration::from_millis(3));
        // What is past already.
        alarm.set(Instant::now() + Duration::from_secs(3600));
        alarm.set(began);
        alarm.rings().await;
    }

    #[tokio::test]
    async fn its_thread_ends_with_it() {
        let alarm = Alarm::start();
        let shared = alarm.0.clone().unwrap();
        alarm.set(Instant::now() + Duration::from_secs(3600));
        drop(alarm);
        while Arc::strong_count(&shared) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
