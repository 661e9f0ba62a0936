// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees besides the frame's part: what was last decided about each VM. It decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::agent;
use daemon::health::Health;
use daemon::log::clip;
use daemon::wall;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

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

// The name in `/status`, the name in `/metrics`, and the help of each counter.
daemon::counters! {
    Turns, "turns", "turns", "Turns of VMs";
    Puts, "puts", "puts", "Records replaced, one by one";
    Batches, "batches", "batches", "Requests that replaced several records";
    Batched, "vms_batched", "vms_batched", "Records replaced by such requests";
    Destroyed, "vms_destroyed", "vms_destroyed", "Records reported destroyed";
    Same, "turns_same", "turns_same", "Turns that found nothing that differs";
    Deferred, "deferrals", "deferrals", "Times that a VM had to wait";
    Reported, "writes_reported", "writes_reported", "Writes that the report mode only logged";
    Starts, "comparisons", "comparisons", "Comparisons with VMAPI's list";
    Errors, "errors", "errors", "Requests and comparisons that failed";
    FromFuture, "records_from_the_future", "records_from_the_future", "Records whose last_modified was found ahead of the clock";
    StreamsLost, "streams_lost", "streams_lost", "Times that vminfod's stream was lost";
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
    last_start: Option<Timestamp>,
    lines: BTreeMap<String, Line>,
    puts: VecDeque<(Timestamp, String, &'static str)>,
    /// The VMs whose record is from the future.
    ahead: BTreeSet<String>,
}

/// The frame's part, and the decisions. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Status {
    agent: agent::Status<Task, Count>,
    board: Mutex<Board>,
}

impl Deref for Status {
    type Target = agent::Status<Task, Count>;

    fn deref(&self) -> &Self::Target {
        &self.agent
    }
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(vmapi: Arc<Health>) -> Self {
        Self { agent: agent::Status::new(vec![vmapi]), board: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A comparison with VMAPI's list, which began then, ended well.
    pub fn started(&self, began: Instant) {
        self.count(Count::Starts);
        self.recovered(..began);
        self.with(|b| b.last_start = Some(wall::now()));
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
        self.agent
            .waiting_for()
            .into_iter()
            .chain(self.brake())
            .chain(self.held_by_datasets())
            .collect()
    }

    /// Returns the first VMs that are held by a dataset that is left of them.
    fn held_by_datasets(&self) -> Vec<String> {
        let is_held = |(_, line): &(&String, &Line)| matches!(line.why, Reason::Left(_));
        let says = |(vm, line): (&String, &Line)| format!("VM {vm}: {}", line.why);
        self.with(|b| b.lines.iter().filter(is_held).take(PUTS).map(says).collect())
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let mut page = self.agent.to_json();
        (page["waiting_for"], page["brake"]) = (self.waiting_for().into(), self.brake().into());
        self.with(|b| {
            let put = |(at, vm, what): &(Timestamp, String, &str)| {
                json!({"at": format!("{at:.3}"), "vm": vm, "what": what})
            };
            page["last_start"] = b.last_start.map(|at| at.to_string()).into();
            page["records_ahead"] = b.ahead.iter().take(PUTS).cloned().collect();
            page["last_puts"] = b.puts.iter().map(put).collect();
        });
        page["held"] = self.held().into();
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
