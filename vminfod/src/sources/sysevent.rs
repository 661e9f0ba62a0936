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

use std::convert::Infallible;
use std::sync::Arc;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::vminfod::Lines;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use vm_model::parse::sysevent::{Garbage, Line, parse};

use super::helper::{End, Health, READY_LIMIT, supervise};
use super::inbox::Inbox;
use super::signal::Signal;
use crate::node::commands::{Commands, Tool};

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

impl Follower {
    /// Follows until the shutdown; a helper that ends is started again.
    pub async fn run(self, jitter: Jitter) {
        let name = self.channel.name();
        supervise(name, jitter, &self.health, &self.shutdown, || self.follow()).await;
    }

    async fn follow(&self) -> Result<Infallible, End> {
        let mut child = self.commands.follow(Tool::Sysevent, self.channel.args())?;
        let mut lines = Lines::new(LINE_CAP);
        let (mut out, mut complaint) = (vec![0; 64 << 10], vec![0; 1024]);
        let (mut is_ready, mut is_quiet) = (false, true);
        let ready_by = Instant::now() + READY_LIMIT;
        loop {
            // All arms are cancel-safe: a dropped read takes nothing; a restart is about this child.
            tokio::select! {
                biased;
                read = child.stdout.read(&mut out) => {
                    let count = read?;
                    if count == 0 {
                        return Err(End::of(child).await);
                    }
                    lines.push(out.get(..count).unwrap_or_default());
                    while let Some(line) = lines.next_line()? {
                        is_ready |= self.line(&line, is_ready)?;
                    }
                }
                read = child.stderr.read(&mut complaint), if is_quiet => match read {
                    Ok(0) | Err(_) => is_quiet = false,
                    Ok(count) => {
                        let text = String::from_utf8_lossy(complaint.get(..count).unwrap_or_default());
                        return Err(End::Stderr(text.trim().chars().take(200).collect()));
                    }
                },
                () = self.restart.notified() => return Err(End::Missed),
                () = sleep_until(ready_by), if !is_ready => return Err(End::NotReady),
            }
        }
    }

    /// Queues the signals of a line; returns true if it says that the helper is ready.
    fn line(&self, line: &[u8], was_ready: bool) -> Result<bool, Garbage> {
        if line.is_empty() {
            return Ok(false);
        }
        let Some(signals) = signals(line)? else {
            if !was_ready {
                tracing::info!(source = self.channel.name(), "event source is ready");
                // The signal comes first: a task that waits for the source finds it.
                self.inbox.put(Signal::Everything);
                (self.health)(true);
            }
            return Ok(true);
        };
        signals.into_iter().for_each(|signal| self.inbox.put(signal));
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
