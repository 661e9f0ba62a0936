// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Keeps a helper program running: starts it again when it ends.

use std::fmt::Display;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use std::time::Duration;
use tokio::time::Instant;

/// A run of at least this long resets the back-off.
const CALM: Duration = Duration::from_secs(60);

/// Called when the helper becomes ready (`true`) or ends (`false`).
pub type Health = Box<dyn Fn(bool) + Send + Sync>;

/// Runs the helper again and again until the shutdown. `run` returns why it ended; dropping its
/// future kills the helper.
pub async fn supervise<E, F>(
    name: &'static str,
    jitter: Jitter,
    health: &Health,
    shutdown: &Shutdown,
    run: impl Fn() -> F,
) where
    E: Display,
    F: Future<Output = E>,
{
    let (initial, max) = (Duration::from_secs(1), Duration::from_secs(30));
    let policy = Policy { initial, max, multiplier: 2.0, max_attempts: None, max_elapsed: None };
    let mut backoff = Backoff::new(&policy, jitter);
    loop {
        let began = Instant::now();
        let end = tokio::select! {
            end = run() => end,
            () = shutdown.wait() => return,
        };
        health(false);
        if began.elapsed() >= CALM {
            backoff.reset();
        }
        let pause = backoff.next_delay().unwrap_or(max);
        let pause_ms = pause.as_millis() as u64;
        tracing::warn!(source = name, reason = %end, pause_ms, "event source ended: it is started again");
        // Cancel-safe: nothing is held.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
    }
}
