// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two `sysevent` helpers: zone states and ZFS history.
//!
//! ```text
//!  start ──► waiting for ready ──ready──► following ──exit, garbage, complaint, restart asked──┐
//!    ▲            │ 30 s                                                                        │
//!    └── back-off ◄─┴───────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The task only reads lines and queues signals: a full pipe makes the kernel drop events. Each time a
//! helper becomes ready, everything counts as stale.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::vminfod::Lines;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use vm_model::parse::sysevent::{Garbage, Line, parse};

use super::helper::{Health, supervise};
use super::inbox::Inbox;
use super::signal::Signal;
use crate::node::commands::{CommandError, Commands, Follow, Tool};

/// A helper that is not ready within this time is started again.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Longest line; real ones have some hundred bytes.
const LINE_CAP: usize = 1 << 20;

/// Which events a helper follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Zone states, on their own channel.
    Zones,
    /// ZFS history.
    Datasets,
}

impl Channel {
    /// The name in logs and `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zones => "zone events",
            Self::Datasets => "zfs events",
        }
    }

    /// The arguments of the helper.
    pub fn args(self) -> Vec<String> {
        let args: &[&str] = match self {
            Self::Zones => &["-rj", "-c", "com.sun:zones:status"],
            Self::Datasets => &["-rj", "EC_zfs", "ESC_ZFS_history_event"],
        };
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }
}

/// The signals of a line; `None` for the line that says that the helper is ready.
/// Errors: `sysevent` cannot have printed it.
pub fn signals(line: &[u8]) -> Result<Option<Vec<Signal>>, Garbage> {
    Ok(match parse(line)? {
        Line::Ready => None,
        Line::Zone(event) => Some(vec![Signal::Zone(event)]),
        Line::Datasets(events) => Some(events.into_iter().map(Signal::Dataset).collect()),
        Line::Other => Some(Vec::new()),
    })
}

/// Follows one channel.
pub struct Follower {
    /// Which events.
    pub channel: Channel,
    /// Starts the helper.
    pub commands: Arc<dyn Commands>,
    /// Where signals go.
    pub inbox: Arc<Inbox>,
    /// Asks for a new helper.
    pub restart: Arc<Notify>,
    /// Called when the helper becomes ready or ends.
    pub health: Health,
    /// Ends the helper.
    pub shutdown: Shutdown,
}

/// Why a helper is no longer followed.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Start(#[from] CommandError),
    #[error("not ready within {} s", READY_LIMIT.as_secs())]
    NotReady,
    #[error("exited with status {0}")]
    Exit(i32),
    #[error("complained: {0}")]
    Complaint(String),
    #[error(transparent)]
    Garbage(#[from] Garbage),
    #[error("a line longer than {LINE_CAP} bytes")]
    TooLong,
    #[error("output cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("sweeps found changes that it did not announce")]
    Missed,
}

impl Follower {
    /// Follows until the shutdown; a helper that ends is started again.
    pub async fn run(self, jitter: Jitter) {
        let name = self.channel.name();
        supervise(name, jitter, &self.health, &self.shutdown, || self.child()).await;
    }

    async fn child(&self) -> End {
        match self.commands.follow(Tool::Sysevent, self.channel.args()) {
            Ok(child) => self.follow(child).await,
            Err(error) => End::Start(error),
        }
    }

    async fn follow(&self, mut child: Follow) -> End {
        let mut deadline = Some(Instant::now() + READY_LIMIT);
        let mut lines = Lines::new(LINE_CAP);
        let (mut out, mut complaint) = (vec![0; 64 << 10], vec![0; 1024]);
        let mut is_quiet = true;
        loop {
            // All arms are cancel-safe: a dropped read takes nothing; a restart is about this child.
            tokio::select! {
                biased;
                read = child.stdout.read(&mut out) => match read {
                    Ok(0) => break,
                    Ok(count) => {
                        lines.push(out.get(..count).unwrap_or_default());
                        if let Err(end) = self.lines(&mut lines, &mut deadline) {
                            return end;
                        }
                    }
                    Err(error) => return End::Read(error),
                },
                read = child.stderr.read(&mut complaint), if is_quiet => match read {
                    Ok(0) | Err(_) => is_quiet = false,
                    Ok(count) => {
                        let text = String::from_utf8_lossy(complaint.get(..count).unwrap_or_default());
                        return End::Complaint(text.trim().chars().take(200).collect());
                    }
                },
                () = self.restart.notified() => return End::Missed,
                () = at(deadline) => return End::NotReady,
            }
        }
        let status = timeout_at(Instant::now() + Duration::from_secs(1), child.wait()).await;
        End::Exit(status.unwrap_or(-1))
    }

    fn lines(&self, lines: &mut Lines, deadline: &mut Option<Instant>) -> Result<(), End> {
        while let Some(line) = lines.next_line().map_err(|_| End::TooLong)? {
            if line.is_empty() {
                continue;
            }
            match signals(&line)? {
                None if deadline.take().is_some() => {
                    tracing::info!(source = self.channel.name(), "event source is ready");
                    // The signal comes first: a task that waits for the source finds it.
                    self.inbox.put(Signal::Everything);
                    (self.health)(true);
                }
                None => {}
                Some(signals) => signals.into_iter().for_each(|signal| self.inbox.put(signal)),
            }
        }
        Ok(())
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
