// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Keeps a helper program running: starts it again when it ends.

use std::convert::Infallible;
use std::time::Duration;

use daemon::Shutdown;
use daemon::command::{CommandError, Running};
use sdc_clients::Jitter;
use sdc_clients::retry::{Backoff, Policy};
use sdc_clients::vminfod::LineTooLong;
use tokio::time::{Instant, timeout};
use vm_model::parse::sysevent::Garbage;

use super::watched::Complaint;

/// A helper that is not ready within this time is started again.
pub const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long a helper that closed its output may take to exit.
pub const EXIT_LIMIT: Duration = Duration::from_secs(1);
/// A run of at least this long resets the back-off.
const CALM: Duration = Duration::from_secs(60);

/// Called when the helper becomes ready (`true`) or ends (`false`).
pub type Health = Box<dyn Fn(bool) + Send + Sync>;

/// Why a helper is no longer followed.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// It cannot be started.
    #[error(transparent)]
    Start(#[from] CommandError),
    /// It did not become ready.
    #[error("not ready within {} s", READY_LIMIT.as_secs())]
    NotReady,
    /// It exited.
    #[error("exited with status {0}")]
    Exit(i32),
    /// `sysevent` printed something on stderr.
    #[error("complained: {0}")]
    Stderr(String),
    /// A line that `sysevent` cannot have printed.
    #[error(transparent)]
    Garbage(#[from] Garbage),
    /// A line that `fswatcher` cannot have printed, or its report of a failure.
    #[error(transparent)]
    Watch(#[from] Complaint),
    /// A line without an end.
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
    /// Its output cannot be read, or it reads no requests.
    #[error("pipe failed: {0}")]
    Pipe(#[from] std::io::Error),
    /// The reconciler asked for a new helper.
    #[error("sweeps found changes that it did not announce")]
    Missed,
}

impl End {
    /// The end of a helper that closed its output.
    pub async fn of(child: &mut Running) -> End {
        End::Exit(timeout(EXIT_LIMIT, child.wait()).await.unwrap_or(-1))
    }
}

/// Runs the helper again and again until the shutdown. `run` returns why it ended; dropping its
/// future kills the helper.
pub async fn supervise<F>(
    name: &'static str,
    jitter: Jitter,
    health: &Health,
    shutdown: &Shutdown,
    run: impl Fn() -> F,
) where
    F: Future<Output = Result<Infallible, End>>,
{
    let (initial, max) = (Duration::from_secs(1), Duration::from_secs(30));
    let policy = Policy { initial, max, multiplier: 2.0, max_attempts: None, max_elapsed: None };
    let mut backoff = Backoff::new(&policy, jitter);
    loop {
        let began = Instant::now();
        let Err(end) = tokio::select! {
            end = run() => end,
            () = shutdown.wait() => return,
        };
        health(false);
        if began.elapsed() >= CALM {
            backoff.reset();
        }
        let pause = backoff.next_delay().unwrap_or(max);
        let pause_ms = pause.as_millis() as u64;
        tracing::warn!(source = name, reason = %end, pause_ms, "an event source ended; starting it again");
        // Cancel-safe: nothing is held.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.wait() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_helper_that_closed_its_output_is_not_waited_for_long() {
        let pipe = || Box::new(tokio::io::empty());
        let mut endless = Running::new(pipe(), pipe(), Box::pin(std::future::pending()));
        let end = timeout(2 * EXIT_LIMIT, End::of(&mut endless)).await.unwrap();
        assert_eq!(end.to_string(), "exited with status -1");
    }
}
