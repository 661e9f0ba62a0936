// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The board on which all tasks write what the operator sees: counters, the prototype's history
//! names, what is waited for, the last plan with its evidence. Nothing here decides or changes
//! anything, and the agent works without ever being asked.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::MacAddr;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::plan::evidence::{Answer, Evidence};

/// Steps of a start, by the names the prototype of RFD 58 had.
pub mod history {
    /// The process is up.
    pub const SERVER: &str = "InitializingServer";
    /// Before the watch of vminfod.
    pub const WATCHER: &str = "InitializingEventWatcher";
    /// The watch exists.
    pub const WATCHER_DONE: &str = "InitializedEventWatcher";
    /// Connecting.
    pub const STARTING: &str = "StartingEventWatcher";
    /// The first snapshot is read.
    pub const STARTED: &str = "StartedEventWatcher";
    /// The list is read and the reap begun.
    pub const REAP: &str = "StartedReapNics";
    /// NAPI cannot list by node: later again.
    pub const BACKED_OFF: &str = "BackedOffReapNics";
    /// Nothing may be reaped (identity, mode, brake).
    pub const SKIPPED: &str = "SkippedReapNics";
}

/// What the tasks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// Records listed by the last pass.
    Listed,
    /// `cn_uuid` written.
    Backfilled,
    /// `state` written.
    StateFixed,
    /// Server NICs claimed.
    Claimed,
    /// Other fields written.
    Mirrored,
    /// Records deleted.
    Reaped,
    /// Already gone when we came.
    AlreadyGone,
    /// Deletes put off.
    Deferred,
    /// Records left alone on purpose.
    Skipped,
    /// Addresses of ours that NAPI does not know.
    Missing,
    /// Records of a foreign owner on an address of ours.
    ForeignOwner,
    /// 412 and unknown outcomes read again.
    Conflicts,
    /// Requests that failed.
    Errors,
    /// Comparisons with a fresh view.
    Resyncs,
    /// Differences no event had told.
    MissedEvents,
    /// Times the stream of vminfod was lost.
    StreamsLost,
    /// Writes without an etag, to a NAPI that has none.
    Unconditional,
    /// Written about only, in report mode.
    Reported,
}

impl Count {
    /// Its name in `/status` and `/metrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Backfilled => "backfilled",
            Self::StateFixed => "state_fixed",
            Self::Claimed => "claimed",
            Self::Mirrored => "mirrored",
            Self::Reaped => "reaped",
            Self::AlreadyGone => "already_gone",
            Self::Deferred => "deferred",
            Self::Skipped => "skipped",
            Self::Missing => "missing_in_napi",
            Self::ForeignOwner => "foreign_owner",
            Self::Conflicts => "conflicts",
            Self::Errors => "errors",
            Self::Resyncs => "resyncs",
            Self::MissedEvents => "missed_events",
            Self::StreamsLost => "streams_lost",
            Self::Unconditional => "unconditional",
            Self::Reported => "reported",
        }
    }

    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Listed,
        Self::Backfilled,
        Self::StateFixed,
        Self::Claimed,
        Self::Mirrored,
        Self::Reaped,
        Self::AlreadyGone,
        Self::Deferred,
        Self::Skipped,
        Self::Missing,
        Self::ForeignOwner,
        Self::Conflicts,
        Self::Errors,
        Self::Resyncs,
        Self::MissedEvents,
        Self::StreamsLost,
        Self::Unconditional,
        Self::Reported,
    ];
}

#[derive(Debug, Default)]
struct Board {
    history: Vec<(&'static str, Duration)>,
    counts: BTreeMap<Count, u64>,
    waiting: BTreeMap<&'static str, String>,
    /// By who keeps: a pass, or the departures.
    brakes: BTreeMap<&'static str, String>,
    memory: Option<String>,
    pass: u64,
    last_pass: Option<Timestamp>,
    last_error: Option<String>,
    last_plan: Option<(Timestamp, Plan)>,
    /// What became of the plan's lines so far.
    outcomes: BTreeMap<MacAddr, String>,
}

impl Board {
    fn braked(&self) -> Option<String> {
        let all: Vec<&str> = self.brakes.values().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Who holds the brake of a NAPI that lost its records.
pub const EMPTIED: &str = "napi";
/// Who holds the brake of what left the node.
pub const DEPARTURES: &str = "departures";

/// The board all tasks write on.
#[derive(Debug)]
pub struct Status {
    started: tokio::time::Instant,
    board: Mutex<Board>,
}

impl Default for Status {
    fn default() -> Self {
        Self { started: tokio::time::Instant::now(), board: Mutex::default() }
    }
}

impl Status {
    fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Time since the start: the agent's clock.
    pub fn clock(&self) -> Duration {
        self.started.elapsed()
    }

    /// A step of the start; repeated ones are noted once.
    pub fn step(&self, name: &'static str) {
        let now = self.clock();
        self.with(|b| {
            if b.history.iter().all(|(known, _)| *known != name) {
                b.history.push((name, now));
            }
        });
    }

    /// Counts one.
    pub fn count(&self, what: Count) {
        self.with(|b| *b.counts.entry(what).or_default() += 1);
    }

    /// Sets a count.
    pub fn set(&self, what: Count, value: usize) {
        self.with(|b| b.counts.insert(what, value as u64));
    }

    /// Reads a count.
    pub fn get(&self, what: Count) -> u64 {
        self.with(|b| b.counts.get(&what).copied().unwrap_or_default())
    }

    /// What `task` waits for; none when it does not.
    pub fn waiting(&self, task: &'static str, what: Option<String>) {
        self.with(|b| match what {
            Some(what) => b.waiting.insert(task, what),
            None => b.waiting.remove(task),
        });
    }

    /// What is waited for.
    pub fn waiting_for(&self) -> Vec<String> {
        self.with(|b| b.waiting.values().cloned().collect())
    }

    /// The brake's reason, or none, as `who` sees it.
    pub fn brake(&self, who: &'static str, why: Option<String>) {
        self.with(|b| match why {
            Some(why) => b.brakes.insert(who, why),
            None => b.brakes.remove(who),
        });
    }

    /// Why this one holds the brake, if it does.
    pub fn brake_of(&self, who: &str) -> Option<String> {
        self.with(|b| b.brakes.get(who).cloned())
    }

    /// Is the brake on?
    pub fn braked(&self) -> Option<String> {
        self.with(|b| b.braked())
    }

    /// What is wrong with the memory on the disk, if anything.
    pub fn memory(&self, what: Option<String>) {
        self.with(|b| b.memory = what);
    }

    /// As noted by [`Status::memory`].
    pub fn memory_fault(&self) -> Option<String> {
        self.with(|b| b.memory.clone())
    }

    /// A pass ended well.
    pub fn passed(&self) -> u64 {
        self.with(|b| {
            b.pass += 1;
            b.last_pass = Some(Timestamp::now());
            b.pass
        })
    }

    /// When the last pass ended well.
    pub fn last_pass(&self) -> Option<Timestamp> {
        self.with(|b| b.last_pass)
    }

    /// How many passes ended well.
    pub fn passes(&self) -> u64 {
        self.with(|b| b.pass)
    }

    /// Something failed.
    pub fn failed(&self, text: String) {
        self.count(Count::Errors);
        self.with(|b| b.last_error = Some(text));
    }

    /// Keeps the last plan for `/plan`.
    pub fn planned(&self, plan: &Plan) {
        self.with(|b| {
            b.last_plan = Some((Timestamp::now(), plan.clone()));
            b.outcomes.clear();
        });
    }

    /// What became of one line of the plan.
    pub fn outcome(&self, mac: MacAddr, what: String) {
        self.with(|b| b.outcomes.insert(mac, what));
    }

    /// Keeps a plan of a few records in the place of what the last one said of them.
    pub fn replanned(&self, plan: &Plan) {
        self.with(|b| match &mut b.last_plan {
            None => b.last_plan = Some((Timestamp::now(), plan.clone())),
            Some((made, all)) => {
                b.outcomes.retain(|mac, _| plan.decisions.iter().all(|new| new.mac != *mac));
                *made = Timestamp::now();
                all.brake.clone_from(&plan.brake);
                all.decisions.retain(|old| plan.decisions.iter().all(|new| new.mac != old.mac));
                all.decisions.extend(plan.decisions.iter().cloned());
            }
        });
    }

    /// `/status`.
    pub fn to_json(&self) -> Value {
        let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let now = micros(self.clock());
        self.with(|b| {
            let mut all = json!({
                "now": now,
                "init_history": b.history.iter()
                    .map(|(name, at)| json!({"h_name": name, "h_time": micros(*at)}))
                    .collect::<Vec<_>>(),
                "waiting_for": b.waiting.values().collect::<Vec<_>>(),
                "pass": b.pass,
                "last_pass": b.last_pass.map(|at| at.to_string()),
                "brake": b.braked(),
                "memory": b.memory,
                "last_error": b.last_error,
            });
            if let Some(all) = all.as_object_mut() {
                for what in Count::ALL {
                    let value = b.counts.get(&what).copied().unwrap_or_default();
                    all.insert(what.name().to_owned(), value.into());
                }
            }
            all
        })
    }

    /// `/plan`.
    pub fn plan_json(&self) -> Value {
        self.with(|b| match &b.last_plan {
            None => json!({"made": null, "brake": null, "decisions": [],
                "waiting_for": b.waiting.values().collect::<Vec<_>>()}),
            Some((made, plan)) => json!({
                "made": format!("{made:.3}"),
                "brake": plan.brake,
                "decisions": plan.decisions.iter()
                    .map(|d| decision_json(d, b.outcomes.get(&d.mac))).collect::<Vec<_>>(),
            }),
        })
    }
}

fn decision_json(decision: &crate::plan::Decision, outcome: Option<&String>) -> Value {
    json!({
        "mac": decision.mac.to_string(),
        "vm": decision.vm,
        "action": decision.action.name(),
        "reason": decision.reason,
        "napi": decision.napi,
        "outcome": outcome,
        "evidence": decision.evidence.iter().map(evidence_json).collect::<Vec<_>>(),
    })
}

/// One guard's answer, as pages show it.
pub fn evidence_json(evidence: &Evidence) -> Value {
    json!({
        "guard": evidence.guard.to_string(),
        "answer": match evidence.answer {
            Answer::Pass => "pass",
            Answer::Later => "later",
            Answer::Never => "never",
        },
        "said": evidence.said,
    })
}
