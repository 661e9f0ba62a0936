// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What one generation of an instance has said, reduced to what a verdict needs (C1–C5). Pure, without a
//! clock. All times are since boot, so that a history survives a restart of the daemon and a step of the
//! wall clock moves no window (R12).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::qmp::{Event, EventName, holds_quoted};

/// A RESET this soon after another is the firmware resetting again.
const ECHO: Duration = Duration::from_millis(250);
/// A RESET this soon after WAKEUP belongs to it.
const WAKING: Duration = Duration::from_secs(1);
/// A POWERDOWN this soon after WATCHDOG{shutdown} is the watchdog's (C1).
const WATCHDOG_ASKS: Duration = Duration::from_secs(1);
/// Pieces of evidence that are kept.
const EVIDENCE: usize = 32;

/// Who asked for the power-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// An operator or an admin tool.
    Host,
    /// The machine's watchdog.
    Watchdog,
}

/// A request to power off that the guest has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Who asked.
    pub by: Asker,
    /// When.
    pub at: Duration,
}

/// The data of SHUTDOWN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Whether the guest asked for it; absent before QEMU 2.10.
    pub guest: Option<bool>,
    /// The reason; absent before QEMU 4.0.
    pub reason: Option<String>,
    /// QEMU's wall clock in microseconds, for the record.
    pub at_us: Option<i64>,
}

/// The shipped daemon's three flags, which stay set as long as the connection lives (K6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// A line held `"SHUTDOWN"`.
    pub shutdown: bool,
    /// A line held `"POWERDOWN"`.
    pub powerdown: bool,
    /// A line held `"STOP"`.
    pub stop: bool,
}

impl Words {
    /// Joins the flags of two connections of one life.
    pub fn join(&mut self, other: Words) {
        self.shutdown |= other.shutdown;
        self.powerdown |= other.powerdown;
        self.stop |= other.stop;
    }
}

/// The history of one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The open request to power off.
    pub pending: Option<Pending>,
    /// Whether its processors run, if known.
    pub running: Option<bool>,
    /// Its guest has migrated to another node.
    pub migrated: bool,
    /// What the watchdog did, until the guest ran again.
    pub watchdog: Option<String>,
    /// Its guest's kernel panicked and has not run since.
    pub panicked: bool,
    /// Its guest suspends to disk.
    pub hibernating: bool,
    /// The first SHUTDOWN (C5).
    pub shutdown: Option<Cause>,
    /// The guest had ended before it was watched; only its process was left.
    pub ended_unseen: bool,
    /// Watched without interruption since then; `None`: since its start.
    pub watched_since: Option<Duration>,
    /// The shipped daemon's flags.
    pub words: Words,
    /// What was seen, in order.
    pub evidence: Vec<String>,
    last_watchdog: Option<Duration>,
    last_reset: Option<Duration>,
    last_wakeup: Option<Duration>,
    stopped_since_shutdown: bool,
}

impl History {
    /// Processes a raw line for the shipped rule.
    pub fn raw(&mut self, line: &[u8]) {
        let words = &mut self.words;
        words.shutdown = words.shutdown || holds_quoted(line, "SHUTDOWN");
        words.powerdown = words.powerdown || holds_quoted(line, "POWERDOWN");
        words.stop = words.stop || holds_quoted(line, "STOP");
    }

    /// Processes an event that came at `at`.
    pub fn event(&mut self, at: Duration, event: &Event) {
        let action = event.data.action.as_deref();
        match event.name {
            EventName::Powerdown => self.powerdown(at),
            EventName::Reset => self.reset(at, event),
            EventName::Stop => {
                self.running = Some(false);
                self.stopped_since_shutdown |= self.shutdown.is_some();
                self.saw("STOP");
            }
            EventName::Resume => {
                self.alive();
                self.running = Some(true);
                self.migrated = false;
                self.saw("RESUME");
            }
            EventName::Migration => self.migration(event.data.status.as_deref()),
            EventName::GuestPanicked => {
                self.panicked = true;
                self.saw(with("GUEST_PANICKED", action));
            }
            EventName::Watchdog => {
                self.watchdog = Some(action.unwrap_or_default().to_owned());
                self.last_watchdog = Some(at);
                self.saw(with("WATCHDOG", action));
            }
            EventName::Shutdown => self.shutdown(event),
            EventName::SuspendDisk => {
                self.hibernating = true;
                self.saw("SUSPEND_DISK");
            }
            EventName::Wakeup => self.last_wakeup = Some(at),
            EventName::Suspend | EventName::GuestCrashloaded | EventName::Other => {}
        }
    }

    /// Processes an answer of `query-status`.
    pub fn status(&mut self, status: &str) {
        match status {
            "running" => self.running = Some(true),
            "postmigrate" => {
                (self.migrated, self.running) = (true, Some(false));
            }
            "shutdown" => self.ended_unseen |= self.shutdown.is_none(),
            "guest-panicked" => self.panicked = true,
            "watchdog" => self.watchdog = Some("pause".to_owned()),
            "paused" | "prelaunch" | "inmigrate" | "finish-migrate" => self.running = Some(false),
            _ => return,
        }
        self.saw(format!("status {status}"));
    }

    /// Records an interruption: the connection broke, or the daemon was restarted.
    pub fn hole(&mut self, at: Duration) {
        self.watched_since = Some(at);
        self.saw("not watched for a while");
    }

    /// C1.
    fn powerdown(&mut self, at: Duration) {
        let watchdogs = self.watchdog.as_deref() == Some("shutdown")
            && self.last_watchdog.is_some_and(|seen| at.saturating_sub(seen) < WATCHDOG_ASKS);
        if watchdogs {
            // An operator's earlier request wins.
            self.pending.get_or_insert(Pending { by: Asker::Watchdog, at });
            self.saw("POWERDOWN by the watchdog");
        } else {
            self.pending = Some(Pending { by: Asker::Host, at });
            self.saw("POWERDOWN");
        }
    }

    /// C2: after a reset the guest is alive, and earlier requests are void.
    fn reset(&mut self, at: Duration, event: &Event) {
        let soon = |before: Option<Duration>, span| {
            before.is_some_and(|before| at.saturating_sub(before) < span)
        };
        let by_guest = event.data.guest != Some(false);
        let echo = by_guest && (soon(self.last_reset, ECHO) || soon(self.last_wakeup, WAKING));
        if echo {
            return;
        }
        self.last_reset = Some(at);
        self.pending = None;
        self.watchdog = None;
        self.hibernating = false;
        self.ended_unseen = false;
        self.alive();
        self.saw(with("RESET", event.data.reason.as_deref()));
    }

    /// C3, C4: drops what a running guest disproves.
    fn alive(&mut self) {
        self.panicked = false;
        if self.watchdog.as_deref() == Some("pause") {
            self.watchdog = None;
        }
        // A machine that stays when its guest ends (-no-shutdown) was started anew.
        if self.stopped_since_shutdown {
            self.shutdown = None;
            self.stopped_since_shutdown = false;
        }
    }

    /// The source's processors stand still when its migration completes, the target's run.
    fn migration(&mut self, status: Option<&str>) {
        if status == Some("completed") && self.running != Some(true) {
            self.migrated = true;
            self.saw("MIGRATION completed");
        }
    }

    /// C5.
    fn shutdown(&mut self, event: &Event) {
        let data = &event.data;
        let detail = match (&data.reason, data.guest) {
            (Some(reason), _) => Some(reason.as_str()),
            (None, Some(true)) => Some("guest"),
            (None, Some(false)) => Some("host"),
            (None, None) => None,
        };
        if self.shutdown.is_some() {
            self.saw(with("a later SHUTDOWN", detail));
            return;
        }
        self.saw(with("SHUTDOWN", detail));
        self.shutdown =
            Some(Cause { guest: data.guest, reason: data.reason.clone(), at_us: event.at_us });
    }

    fn saw(&mut self, what: impl Into<String>) {
        let what = what.into();
        if self.evidence.last() == Some(&what) {
            return;
        }
        if self.evidence.len() >= EVIDENCE {
            // The end matters more than the beginning.
            self.evidence.remove(0);
        }
        self.evidence.push(what);
    }
}

fn with(name: &str, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("{name} {detail}"),
        None => name.to_owned(),
    }
}
