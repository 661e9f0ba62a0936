// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Named tasks and the shutdown signal that they share. A task that panics is logged with its name;
//! what else happens is chosen where the task is started.
//!
//! A bare `tokio::spawn` loses a panic and outlives the shutdown. Here each task has a name for the log and is waited
//! for at the end; a test finds those that are started otherwise.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the tasks may take to end after the shutdown.
const DRAIN_LIMIT: Duration = Duration::from_millis(4500);

/// The signal to stop, which every loop waits for; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Makes a signal that is not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// Returns true once it has been given.
    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is given. Cancel-safe.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Makes SIGTERM and SIGINT give this signal.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let shutdown = self.clone();
        // No `Tasks` exist yet, and nothing waits for this task.
        tokio::spawn(async move {
            // Both arms are cancel-safe: a signal that is not taken here stays pending.
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
            shutdown.trigger();
        });
        Ok(())
    }
}

/// The tasks of a program.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: Shutdown,
}

impl Tasks {
    /// Makes an empty set; all its tasks will share `shutdown`.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { tracker: TaskTracker::new(), shutdown }
    }

    /// Starts a task that the program can do without: a panic is logged, nothing else happens.
    pub fn spawn<F>(&self, name: &'static str, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(async move {
            caught(name, work).await;
        })
    }

    /// Starts a task that the program cannot do without: its end stops the program.
    pub fn spawn_vital<F>(&self, name: &'static str, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        self.tracker.spawn(async move {
            caught(name, work).await;
            if !shutdown.is_triggered() {
                tracing::error!(task = name, "a vital task ended: stopping");
                shutdown.trigger();
            }
        })
    }

    /// Starts a vital task that the shutdown drops at whatever it awaits.
    pub fn spawn_dropped<F>(&self, name: &'static str, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.shutdown.clone();
        self.spawn_vital(name, async move {
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = work => {}
            }
        })
    }

    /// Waits for the shutdown, then for all tasks, at most 4.5 s; returns whether they have ended.
    pub async fn ended(&self) -> bool {
        self.shutdown.wait().await;
        self.drain(DRAIN_LIMIT).await
    }

    /// Gives the signal and waits for all tasks: for a daemon that cannot start.
    pub async fn stop(&self) {
        self.shutdown.trigger();
        self.drain(DRAIN_LIMIT).await;
    }

    /// Waits until all tasks have ended, at most `deadline`; returns whether they have.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok()
    }
}

/// Runs work and returns its result; `None` if it panicked, which is logged.
pub async fn caught<T>(name: &'static str, work: impl Future<Output = T>) -> Option<T> {
    let result = AssertUnwindSafe(work).catch_unwind().await.ok();
    if result.is_none() {
        tracing::error!(
            task = name,
            "a task panicked, and what it was doing is lost; report the panic's text, which is before this line"
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_vital_task_that_panics_stops_the_program() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.spawn_vital("doomed", async { panic!("on purpose") });
        tasks.shutdown.wait().await;
        assert!(tasks.drain(Duration::from_secs(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_optional_task_may_panic_and_drain_has_a_deadline() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.spawn("doomed", async { panic!("on purpose") });
        tasks.spawn("endless", std::future::pending());
        assert!(!tasks.drain(Duration::from_secs(5)).await);
        assert!(!tasks.shutdown.is_triggered());
    }
}
