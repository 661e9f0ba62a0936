// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Named tasks and the one shutdown signal they share. A task that panics is logged with its
//! name; what that means (restart it, or end the program) is the caller's choice, made where the
//! task is started.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The signal to stop: cheap to clone, waited for by every loop, given once.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// A signal that nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// Has it been given?
    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is given. Cancel-safe.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Lets SIGTERM and SIGINT give this signal, from a task of its own.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            // Both arms are cancel-safe: a signal not taken here stays pending.
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
    /// No tasks yet; all will share `shutdown`.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { tracker: TaskTracker::new(), shutdown }
    }

    /// Starts a task that the program can do without: a panic is logged, nothing else happens.
    pub fn spawn<F>(&self, name: &'static str, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let inner = tokio::spawn(work);
        self.tracker.spawn(async move {
            if let Err(err) = inner.await {
                log_end(name, &err);
            }
        })
    }

    /// Starts a task that the program cannot do without: when it ends, however, before the
    /// shutdown, the whole program is told to stop.
    pub fn spawn_vital<F>(&self, name: &'static str, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        let inner = tokio::spawn(work);
        self.tracker.spawn(async move {
            if let Err(err) = inner.await {
                log_end(name, &err);
            }
            if !shutdown.is_triggered() {
                tracing::error!(task = name, "a vital task ended: stopping");
                shutdown.trigger();
            }
        })
    }

    /// Waits until all tasks have ended, at most `deadline`; says whether they did.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok()
    }
}

fn log_end(name: &'static str, err: &tokio::task::JoinError) {
    if err.is_panic() {
        tracing::error!(task = name, "task panicked");
    }
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
    async fn an_optional_one_does_not_and_drain_has_a_deadline() {
        let tasks = Tasks::new(Shutdown::new());
        tasks.spawn("doomed", async { panic!("on purpose") });
        tasks.spawn("endless", std::future::pending());
        assert!(!tasks.drain(Duration::from_secs(5)).await);
        assert!(!tasks.shutdown.is_triggered());
    }
}
