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

use bytes::Bytes;
use daemon::Shutdown;
use daemon::command::{CommandError, Commands, Launch, Pipes, Program, Running};
use sdc_clients::Jitter;
use sdc_clients::vminfod::Lines;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use vm_model::parse::sysevent::{Garbage, Line, parse};

use super::helper::{EXIT_LIMIT, End, Health, READY_LIMIT, supervise};
use super::inbox::Inbox;
use super::signal::Signal;

/// Longest line; real ones have some hundred bytes.
const LINE_CAP: usize = 1 << 20;

/// Which events a helper follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Zone states, on their own channel.
    Zones,
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

/// A running `sysevent`.
pub struct Helper {
    child: Running,
    lines: Lines,
    out: Vec<u8>,
    complaint: Vec<u8>,
    is_quiet: bool,
}

impl Helper {
    /// Starts one that follows this channel.
    pub fn start(commands: &dyn Commands, channel: Channel) -> Result<Self, CommandError> {
        let child = commands.start(Launch::new(Program::Sysevent, channel.args(), Pipes::Out))?;
        let (lines, out, complaint) = (Lines::new(LINE_CAP), vec![0; 64 << 10], vec![0; 1024]);
        Ok(Self { child, lines, out, complaint, is_quiet: true })
    }

    /// Returns its next line that is not empty. Cancel-safe: a dropped read takes nothing.
    /// Errors: it ended or complained, or the line is too long.
    pub async fn line(&mut self) -> Result<Bytes, End> {
        loop {
            while let Some(line) = self.lines.next_line()? {
                if !line.is_empty() {
                    return Ok(line);
                }
            }
            tokio::select! {
                biased;
                read = self.child.stdout.read(&mut self.out) => match read? {
                    0 => return Err(self.end().await),
                    count => self.lines.push(self.out.get(..count).unwrap_or_default()),
                },
                read = self.child.stderr.read(&mut self.complaint), if self.is_quiet => match read {
                    Ok(0) | Err(_) => self.is_quiet = false,
                    Ok(count) => return Err(self.complained(count)),
                },
            }
        }
    }

    /// Why it closed its output: what it complains of, or its exit status.
    async fn end(&mut self) -> End {
        let complaint = self.child.stderr.read(&mut self.complaint);
        match timeout(EXIT_LIMIT, complaint).await {
            Ok(Ok(count @ 1..)) => self.complained(count),
            _ => End::of(&mut self.child).await,
        }
    }

    fn complained(&self, count: usize) -> End {
        let text = String::from_utf8_lossy(self.complaint.get(..count).unwrap_or_default());
        End::Stderr(text.trim().chars().take(200).collect())
    }
}

/// Follows one channel.
pub struct Follower {
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
        let mut helper = Helper::start(&*self.commands, self.channel)?;
        let mut is_ready = false;
        let ready_by = Instant::now() + READY_LIMIT;
        loop {
            // All arms are cancel-safe: a restart is about this child.
            tokio::select! {
                biased;
                line = helper.line() => is_ready |= self.line(&line?, is_ready)?,
                () = self.restart.notified() => return Err(End::Missed),
                () = sleep_until(ready_by), if !is_ready => return Err(End::NotReady),
            }
        }
    }

    /// Queues the signals of a line; returns true if it says that the helper is ready.
    fn line(&self, line: &[u8], was_ready: bool) -> Result<bool, Garbage> {
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
