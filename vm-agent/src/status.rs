// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees: the state of each task, counters, and what was last decided about each VM.
//! It decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::health::Health;
use daemon::log::clip;
use daemon::timing::Clock;
use daemon::wall;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::plan::Reason;

/// The tasks whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Follows vminfod's events.
    Events,
    /// Reads sysinfo.
    Identity,
    /// Compares with VMAPI's list.
    Start,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum State {
    /// It is working.
    #[error("working")]
    Working,
    /// It has nothing to do until something changes.
    #[error("resting")]
    Resting,
    /// The whole agent is off.
    #[error("no_rabbit is false: the feature is off, and VMAPI is left alone")]
    Off,
    /// The stream is not connected yet.
    #[error("waiting for vminfod")]
    Connecting,
    /// vminfod does not answer.
    #[error("waiting for vminfod: {0}")]
    NoAnswer(String),
    /// Nothing may be written now.
    #[error("{0}")]
    Refused(Reason),
    /// Before the first list.
    #[error("startup delay, {} s", .0.as_secs())]
    StartupDelay(Duration),
    /// The last comparison failed.
    #[error("retrying: {0}")]
    Retrying(String),
}

macro_rules! counts {
    ($($variant:ident, $name:literal, $help:literal;)+) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Count { $(#[doc = $help] $variant),+ }

        impl Count {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns its name and its help.
            pub fn metric(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($name, $help)),+ }
            }
        }
    };
}

// The name and the help of each counter.
counts! {
    Turns, "turns", "Turns of VMs";
    Puts, "puts", "Records replaced, one by one";
    Batches, "batches", "Requests that replaced several records";
    Batched, "vms_batched", "Records replaced by such requests";
    Destroyed, "vms_destroyed", "Records that were told to be destroyed";
    Same, "turns_same", "Turns that found nothing that differs";
    Deferred, "deferrals", "Times that a VM had to wait";
    Reported, "writes_reported", "Writes that the report mode only logged";
    Starts, "comparisons", "Comparisons with VMAPI's list";
    Errors, "errors", "Requests and comparisons that failed";
    FromFuture, "records_from_the_future", "Records whose last_modified was found ahead of the clock";
    StreamsLost, "streams_lost", "Times that vminfod's stream was lost";
}

/// What was last decided about a VM.
#[derive(Clone, Debug)]
struct Line {
    at: Timestamp,
    action: &'static str,
    why: Reason,
    waits: bool,
}

/// VMs about which something is remembered.
const LINES: usize = 4096;
/// Writes that are remembered.
const PUTS: usize = 20;

#[derive(Debug, Default)]
struct Board {
    counts: BTreeMap<Count, u64>,
    states: BTreeMap<Task, State>,
    last_error: Option<(Timestamp, String)>,
    last_start: Option<Timestamp>,
    lines: BTreeMap<String, Line>,
    puts: VecDeque<(Timestamp, String, &'static str)>,
    /// The VMs whose record is from the future.
    ahead: BTreeSet<String>,
}

/// The counters, states and decisions. The lock is held for a few instructions and never over an
/// await.
#[derive(Debug)]
pub struct Status {
    clock: Clock,
    vmapi: Arc<Health>,
    board: Mutex<Board>,
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(clock: Clock, vmapi: Arc<Health>) -> Self {
        Self { clock, vmapi, board: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts one.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts some.
    pub fn add(&self, what: Count, n: usize) {
        self.with(|b| *b.counts.entry(what).or_default() += n as u64);
    }

    /// Returns a counter.
    pub fn get(&self, what: Count) -> u64 {
        self.with(|b| b.counts.get(&what).copied().unwrap_or_default())
    }

    /// Stores the state of a task.
    pub fn is(&self, task: Task, state: State) {
        self.with(|b| b.states.insert(task, state));
    }

    /// Counts a failure and keeps it as the last one. Returns it as a reason.
    pub fn failed(&self, error: &(dyn std::error::Error + 'static)) -> Reason {
        let text = clip(&daemon::log::chain(error));
        self.count(Count::Errors);
        self.with(|b| b.last_error = Some((wall::now(), text.clone())));
        Reason::Request(text)
    }

    /// A comparison with VMAPI's list ended well.
    pub fn started(&self) {
        self.count(Count::Starts);
        self.with(|b| {
            b.last_start = Some(wall::now());
            b.last_error = None;
        });
    }

    /// Returns when the last comparison ended well.
    pub fn last_start(&self) -> Option<Timestamp> {
        self.with(|b| b.last_start)
    }

    /// Stores what was decided about a VM; `waits` if it is not settled.
    pub fn decided(&self, vm: &str, action: &'static str, why: Reason, waits: bool) {
        self.with(|b| {
            if b.lines.len() >= LINES && !b.lines.contains_key(vm) {
                b.lines.pop_first();
            }
            b.lines.insert(vm.to_owned(), Line { at: wall::now(), action, why, waits });
        });
    }

    /// Stores whether VMAPI's record of a VM is from the future.
    pub fn ahead(&self, vm: &str, is_ahead: bool) {
        let is_news = self.with(|b| {
            let room = b.ahead.len() < LINES;
            if !is_ahead {
                b.ahead.remove(vm);
            }
            is_ahead && room && b.ahead.insert(vm.to_owned())
        });
        if is_news {
            self.count(Count::FromFuture);
            tracing::warn!(vm, "VMAPI's record is from the future: a clock was or is ahead");
        }
    }

    /// Returns how many records are from the future.
    pub fn records_ahead(&self) -> usize {
        self.with(|b| b.ahead.len())
    }

    /// Returns true if the brake blocks this VM.
    pub fn is_braked(&self, vm: &str) -> bool {
        self.with(|b| b.lines.get(vm).is_some_and(|line| line.why.is_brake()))
    }

    /// Returns why the brake is on, for people, or none.
    pub fn brake(&self) -> Option<String> {
        self.with(|b| {
            let on = b.lines.values().find(|line| line.why.is_brake());
            on.map(|line| line.why.to_string())
        })
    }

    /// Returns the number of VMs that wait.
    pub fn held(&self) -> usize {
        self.with(|b| b.lines.values().filter(|line| line.waits).count())
    }

    /// A write was sent and answered.
    pub fn wrote(&self, vm: &str, what: &'static str) {
        self.with(|b| {
            b.puts.truncate(PUTS - 1);
            b.puts.push_front((wall::now(), vm.to_owned(), what));
        });
    }

    /// Returns what the agent waits for, for people.
    pub fn waiting_for(&self) -> Vec<String> {
        let is_waiting = |state: &&State| !matches!(state, State::Working | State::Resting);
        let tasks: Vec<String> = self.with(|b| {
            b.states.values().filter(is_waiting).map(|it| clip(&it.to_string())).collect()
        });
        tasks.into_iter().chain(self.brake()).chain(self.vmapi.sentence()).collect()
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let mut page = json!({"waiting_for": self.waiting_for(), "brake": self.brake()});
        let trouble = self.vmapi.trouble().map(|trouble| (trouble.at, clip(&trouble.text)));
        self.with(|b| {
            let (at, error) = trouble.or(b.last_error.clone()).unzip();
            let put = |(at, vm, what): &(Timestamp, String, &str)| {
                json!({"at": format!("{at:.3}"), "vm": vm, "what": what})
            };
            page["last_error"] = error.into();
            page["last_error_at"] = at.map(|at| format!("{at:.3}")).into();
            page["last_start"] = b.last_start.map(|at| at.to_string()).into();
            page["records_ahead"] = b.ahead.iter().take(PUTS).cloned().collect();
            page["last_puts"] = b.puts.iter().map(put).collect();
            for count in Count::ALL.iter().copied() {
                let n = b.counts.get(&count).copied().unwrap_or_default();
                page[count.metric().0] = n.into();
            }
        });
        page["held"] = self.held().into();
        page["uptime_s"] = self.clock.now().as_secs().into();
        page
    }

    /// Returns what was last decided about each VM.
    pub fn decisions(&self) -> Vec<Value> {
        let line = |(vm, line): (&String, &Line)| {
            json!({"vm": vm, "action": line.action, "reason": clip(&line.why.to_string()),
                "waits": line.waits, "at": format!("{:.3}", line.at)})
        };
        self.with(|b| b.lines.iter().map(line).collect())
    }
}
