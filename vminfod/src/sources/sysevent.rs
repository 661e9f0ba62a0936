// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two `sysevent` children: zone states and ZFS history.
//!
//! ```text
//!  start ──► waiting for ready ──ready──► following ──exit, garbage, complaint, restart asked──┐
//!    ▲            │ 30 s                                                                        │
//!    └── pause 1 s … 30 s ◄─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Reads lines and puts signals; must never wait for anything else, since a full pipe makes the
//! kernel drop events. Each time a child becomes ready, everything counts as stale.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use sdc_clients::Jitter;
use sdc_clients::vminfod::Lines;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::inbox::Inbox;
use super::{Signal, ZoneSignal, zfs};
use crate::commands::{CommandError, Commands, Follow, Tool};

/// A child says that it is ready within this, or it is started anew.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Longest line; real ones have some hundred bytes.
const LINE_CAP: usize = 1 << 20;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// Which events a child follows.
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

    /// The exact arguments.
    pub fn args(self) -> Vec<String> {
        let args: &[&str] = match self {
            Self::Zones => &["-rj", "-c", "com.sun:zones:status"],
            Self::Datasets => &["-rj", "EC_zfs", "ESC_ZFS_history_event"],
        };
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }
}

/// A line understood.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The child follows its events from here on.
    Ready,
    /// An event, and what it means; often nothing.
    Event(Vec<Signal>),
}

/// A line that `sysevent` cannot have printed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a line of sysevent: {0}")]
pub struct Garbage(String);

/// Understands one line of either channel.
pub fn parse(line: &[u8]) -> Result<Line, Garbage> {
    let text = String::from_utf8_lossy(line);
    let event: Value = serde_json::from_str(&text).map_err(|error| Garbage(error.to_string()))?;
    let field = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
    match field("type") {
        "ready" => return Ok(Line::Ready),
        "event" => {}
        other => return Err(Garbage(format!("type {other:?}, expected ready or event"))),
    }
    let Some(data) = event.get("data").and_then(Value::as_object) else {
        return Ok(Line::Event(Vec::new()));
    };
    let signals = match (field("class"), field("subclass")) {
        ("status", _) | ("init", "restart") => {
            let zone = data.get("zonename").and_then(Value::as_str).filter(|name| !name.is_empty());
            let newstate = data.get("newstate").and_then(Value::as_str).unwrap_or_default();
            let zoneid = data.get("zoneid").and_then(Value::as_i64).filter(|id| *id > 0);
            let signal = zone.map(|name| {
                Signal::Zone(ZoneSignal {
                    name: name.to_owned(),
                    newstate: newstate.to_owned(),
                    zoneid,
                })
            });
            signal.into_iter().collect()
        }
        ("EC_zfs", "ESC_ZFS_history_event") => {
            zfs::signals(data).into_iter().map(Signal::Dataset).collect()
        }
        _ => Vec::new(),
    };
    Ok(Line::Event(signals))
}

/// What a follower needs.
pub struct Follower {
    /// Which events.
    pub channel: Channel,
    /// Who starts the child.
    pub commands: Arc<dyn Commands>,
    /// Where signals go.
    pub inbox: Arc<Inbox>,
    /// Asks for a fresh child.
    pub restart: Arc<Notify>,
    /// Spreads restarts.
    pub jitter: Jitter,
    /// Told whenever the child becomes ready or ends.
    pub health: Box<dyn Fn(bool) + Send>,
    /// Ends the child.
    pub shutdown: Shutdown,
}

/// Why a child is no longer followed.
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
    #[error("it missed changes that others saw")]
    Missed,
}

impl Follower {
    /// Follows until the shutdown, whatever happens to the children.
    pub async fn run(mut self) {
        let name = self.channel.name();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let shutdown = self.shutdown.clone();
            // Dropping the child's future kills the child: that is what is wanted at shutdown.
            let end = tokio::select! {
                end = self.child() => end,
                () = shutdown.wait() => return,
            };
            (self.health)(false);
            if began.elapsed() > LAST_PAUSE * 2 {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(source = name, reason = %end, pause_ms = pause.as_millis() as u64, "event source ended: starting it anew");
            let wait = self.jitter.around(pause, 0.1);
            pause = (pause * 2).min(LAST_PAUSE);
            // Cancel-safe: nothing is held.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shutdown.wait() => return,
            }
        }
    }

    async fn child(&mut self) -> End {
        match self.commands.follow(Tool::Sysevent, self.channel.args()) {
            Ok(child) => self.follow(child).await,
            Err(error) => End::Start(error),
        }
    }

    async fn follow(&mut self, mut child: Follow) -> End {
        let mut deadline = Some(Instant::now() + READY_LIMIT);
        let mut lines = Lines::new(LINE_CAP);
        let (mut out, mut complaint) = (vec![0; 64 << 10], vec![0; 1024]);
        let mut quiet = true;
        loop {
            // All arms are cancel-safe: reads take nothing when they are dropped, a notice not
            // taken here is lost with the child that it was about.
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
                read = child.stderr.read(&mut complaint), if quiet => match read {
                    Ok(0) | Err(_) => quiet = false,
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

    fn lines(&mut self, lines: &mut Lines, deadline: &mut Option<Instant>) -> Result<(), End> {
        while let Some(line) = lines.next_line().map_err(|_| End::TooLong)? {
            if line.is_empty() {
                continue;
            }
            match parse(&line)? {
                Line::Ready if deadline.take().is_some() => {
                    tracing::info!(source = self.channel.name(), "event source is ready");
                    // In this order: whoever waits for the source reads everything anyway.
                    self.inbox.put(Signal::Everything);
                    (self.health)(true);
                }
                Line::Ready => {}
                Line::Event(signals) => {
                    signals.into_iter().for_each(|signal| self.inbox.put(signal))
                }
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
