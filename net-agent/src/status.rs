// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees: the state of each task, counters, the last plan with its evidence. It
//! decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::health::Health;
use daemon::log::clip;
use daemon::timing::Clock;
use daemon::wall;
use jiff::Timestamp;
use sdc_clients::MacAddr;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::listing::NicListing;
use crate::outcome::Outcome;
use crate::plan::{Action, Decision, Evidence, Plan, Reason, Refusal};

/// The tasks whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Follows vminfod's events.
    Events,
    /// Reads sysinfo.
    Identity,
    /// Keeps the node's own NICs.
    OwnNics,
    /// The pass over NAPI's list.
    Pass,
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
    #[error("no_rabbit is false: the feature is off, and NAPI is left alone")]
    Off,
    /// The stream is not connected yet.
    #[error("waiting for vminfod")]
    Connecting,
    /// vminfod does not answer.
    #[error("waiting for vminfod: {0}")]
    NoAnswer(String),
    /// Nothing may be written now.
    #[error("{0}")]
    Refused(Refusal),
    /// Before the first list.
    #[error("startup delay, {} s", .0.as_secs())]
    StartupDelay(Duration),
    /// Between the two looks of a pass.
    #[error("second look, in {} s", .0.as_secs_f64())]
    SecondLook(Duration),
    /// Candidates wait for a guard.
    #[error("{count} candidates not decided yet, the first because of {first}")]
    Undecided {
        /// How many.
        count: usize,
        /// Why the first waits.
        first: Box<Reason>,
    },
    /// NAPI cannot list by node.
    #[error("{0}")]
    Unsupported(String),
    /// The last pass failed.
    #[error("retrying: {0}")]
    Retrying(String),
}

impl State {
    fn is_waiting(&self) -> bool {
        !matches!(self, Self::Working | Self::Resting)
    }
}

/// Steps of a start, with the names of RFD 58's prototype.
pub(crate) mod history {
    pub(crate) const SERVER: &str = "InitializingServer";
    pub(crate) const WATCHER: &str = "InitializingEventWatcher";
    pub(crate) const WATCHER_DONE: &str = "InitializedEventWatcher";
    pub(crate) const STARTING: &str = "StartingEventWatcher";
    /// The first snapshot is read.
    pub(crate) const STARTED: &str = "StartedEventWatcher";
    /// The list is read.
    pub(crate) const REAP: &str = "StartedReapNics";
    /// NAPI cannot list by node.
    pub(crate) const BACKED_OFF: &str = "BackedOffReapNics";
    /// The list is read, in report mode.
    pub(crate) const SKIPPED: &str = "SkippedReapNics";
}

macro_rules! counts {
    ($($variant:ident, $name:literal, $metric:literal, $help:literal;)+) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Count { $(#[doc = $help] $variant),+ }

        impl Count {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns its name in `/status`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns its name in `/metrics`, empty if it is a gauge there, and its help.
            pub(crate) fn metric(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($metric, $help)),+ }
            }
        }
    };
}

// The name in `/status`, the name in `/metrics`, and the help of each counter.
counts! {
    Listed, "listed", "", "Zone records of the last list";
    Unreadable, "unreadable", "", "Records of the last list that cannot be read";
    Backfilled, "backfilled", "nics_backfilled", "Records whose cn_uuid was written";
    StateFixed, "state_fixed", "nic_states_written", "Records whose state was written";
    Claimed, "claimed", "nics_claimed", "Own NICs claimed as server NICs";
    Mirrored, "mirrored", "nics_mirrored", "Records whose owner or primary flag was written";
    Reaped, "reaped", "nics_deleted", "Records deleted";
    AlreadyGone, "already_gone", "nics_already_gone", "Deletes that found the record gone";
    Deferred, "deferred", "deferrals", "Times that a write was deferred";
    Skipped, "skipped", "nics_left_alone", "Records left alone for good reason";
    Missing, "missing_in_napi", "nics_missing_in_napi", "Local NICs that NAPI has no record of";
    ForeignOwner, "foreign_owner", "nics_of_foreign_owner", "Local NICs whose record belongs to another owner";
    Conflicts, "conflicts", "conflicts", "Writes that found the record changed, or whose outcome is unknown";
    Errors, "errors", "errors", "Requests and passes that failed";
    Resyncs, "resyncs", "comparisons", "Comparisons with a fresh view of the node";
    MissedEvents, "missed_events", "missed_events", "Differences that no event reported";
    StreamsLost, "streams_lost", "streams_lost", "Times that vminfod's stream was lost";
    Unconditional, "unconditional", "unconditional_writes", "Writes without an etag, to a NAPI that has none";
    Reported, "reported", "writes_reported", "Writes that the report mode only logged";
}

/// The counters, states and the plan. The lock is held for a few instructions and never over an
/// await.
#[derive(Debug)]
pub struct Status {
    clock: Clock,
    services: Vec<Arc<Health>>,
    board: Mutex<Board>,
}

/// A failure of the agent's work.
#[derive(Clone, Debug)]
struct Failure {
    /// For people.
    at: Timestamp,
    seen: Instant,
    text: String,
}

#[derive(Debug, Default)]
struct Board {
    history: Vec<(&'static str, Duration)>,
    counts: BTreeMap<Count, u64>,
    states: BTreeMap<Task, State>,
    passes: u64,
    last_pass: Option<Timestamp>,
    last_error: Option<Failure>,
    /// What is wrong with the first records that cannot be read.
    unreadable: Vec<String>,
    last_plan: Option<(Timestamp, Plan)>,
    /// What came of the plan's lines so far.
    outcomes: BTreeMap<MacAddr, Outcome>,
    /// How many records of an offer are read, and how many are to be read.
    reading: Option<(usize, usize)>,
}

impl Board {
    fn waiting_for(&self, services: &[Arc<Health>]) -> Vec<String> {
        let tasks = self.states.values().filter(|s| s.is_waiting()).map(|s| clip(&s.to_string()));
        tasks.chain(services.iter().filter_map(|service| service.sentence())).collect()
    }

    /// Returns the last failure of a service or of work, unless the service has recovered since.
    fn last_error(&self, services: &[Arc<Health>]) -> Option<(Timestamp, String)> {
        let troubles = services.iter().filter_map(|service| service.trouble());
        let troubles = troubles.map(|t| Failure { at: t.at, seen: t.seen, text: t.text });
        let work = self.last_error.clone().filter(|failure| {
            services.iter().all(|service| !service.has_recovered_from(failure.seen))
        });
        let last = troubles.chain(work).max_by_key(|failure| failure.seen)?;
        Some((last.at, clip(&last.text)))
    }
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(clock: Clock, services: Vec<Arc<Health>>) -> Self {
        Self { clock, services, board: Mutex::default() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a step of the start, once.
    pub fn step(&self, name: &'static str) {
        let now = self.clock.now();
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

    /// Sets a counter.
    pub fn set(&self, what: Count, value: usize) {
        self.with(|b| b.counts.insert(what, value as u64));
    }

    /// Stores what a list holds.
    pub(crate) fn listed(&self, listing: &NicListing) {
        self.set(Count::Listed, listing.listed);
        self.set(Count::Unreadable, listing.unreadable.count as usize);
        self.with(|b| b.unreadable.clone_from(&listing.unreadable.first));
    }

    /// Returns a counter.
    pub fn get(&self, what: Count) -> u64 {
        self.with(|b| b.counts.get(&what).copied().unwrap_or_default())
    }

    /// Stores the state of a task.
    pub fn is(&self, task: Task, state: State) {
        self.with(|b| b.states.insert(task, state));
    }

    /// Returns what the tasks wait for, for people.
    pub fn waiting_for(&self) -> Vec<String> {
        self.with(|b| b.waiting_for(&self.services))
    }

    /// Counts a pass that ended well, and forgets a failure before it began. Returns its number.
    pub fn passed(&self, began: Instant) -> u64 {
        self.with(|b| {
            b.last_error = b.last_error.take().filter(|failure| failure.seen >= began);
            b.passes += 1;
            b.last_pass = Some(wall::now());
            b.passes
        })
    }

    /// Returns when the last pass ended well.
    pub fn last_pass(&self) -> Option<Timestamp> {
        self.with(|b| b.last_pass)
    }

    /// Returns the number of passes that ended well.
    pub fn passes(&self) -> u64 {
        self.with(|b| b.passes)
    }

    /// Counts a failure and keeps it as the last one.
    pub fn failed(&self, error: String) {
        self.count(Count::Errors);
        let failure = Failure { at: wall::now(), seen: Instant::now(), text: clip(&error) };
        self.with(|b| b.last_error = Some(failure));
    }

    /// Work that failed at this time succeeds again: forgets the failure if no later one came.
    pub fn recovered(&self, failed: Option<Instant>) {
        self.with(|b| b.last_error = b.last_error.take().filter(|f| Some(f.seen) > failed));
    }

    /// Keeps the plan for `/plan`.
    pub fn planned(&self, plan: Plan) {
        self.with(|b| {
            b.last_plan = Some((wall::now(), plan));
            b.outcomes.clear();
        });
    }

    /// Keeps a plan of a few records, which replaces what the last one says about them.
    pub fn replanned(&self, plan: &Plan) {
        self.with(|b| match &mut b.last_plan {
            None => b.last_plan = Some((wall::now(), plan.clone())),
            Some((made, all)) => {
                b.outcomes.retain(|mac, _| plan.decisions.iter().all(|new| new.mac != *mac));
                *made = wall::now();
                all.brake.clone_from(&plan.brake);
                all.decisions.retain(|old| plan.decisions.iter().all(|new| new.mac != old.mac));
                all.decisions.extend(plan.decisions.iter().cloned());
            }
        });
    }

    /// Stores how many records of an offer are read, and how many are to be read; none if there is no offer
    /// in the making.
    pub fn reading(&self, progress: Option<(usize, usize)>) {
        self.with(|b| b.reading = progress);
    }

    /// Stores what came of one line of the plan.
    pub fn outcome(&self, mac: MacAddr, outcome: Outcome) {
        self.with(|b| b.outcomes.insert(mac, outcome));
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let now = micros(self.clock.now());
        self.with(|b| {
            let (error_at, error) = b.last_error(&self.services).unzip();
            let step =
                |(name, at): &(&str, Duration)| json!({"h_name": name, "h_time": micros(*at)});
            let mut all = json!({
                "now": now,
                "init_history": b.history.iter().map(step).collect::<Vec<_>>(),
                "waiting_for": b.waiting_for(&self.services),
                "pass": b.passes,
                "last_pass": b.last_pass.map(|at| at.to_string()),
                "last_error": error,
                "last_error_at": error_at.map(|at| format!("{at:.3}")),
                "unreadable_nics": b.unreadable,
            });
            for what in Count::ALL.iter().copied() {
                all[what.name()] = b.counts.get(&what).copied().unwrap_or_default().into();
            }
            all
        })
    }

    /// Returns this part of `/plan`.
    pub fn plan_json(&self) -> Value {
        self.with(|b| {
            let mut page = match &b.last_plan {
                None => json!({"made": null, "brake": null, "decisions": [],
                    "waiting_for": b.waiting_for(&self.services)}),
                Some((made, plan)) => json!({
                    "made": format!("{made:.3}"),
                    "brake": plan.brake.as_ref().map(ToString::to_string),
                    "decisions": plan.decisions.iter()
                        .map(|d| decision_json(d, b.outcomes.get(&d.mac))).collect::<Vec<_>>(),
                }),
            };
            page["reading"] = b.reading.map(|(done, of)| json!({"done": done, "of": of})).into();
            page
        })
    }
}

fn decision_json(decision: &Decision, outcome: Option<&Outcome>) -> Value {
    json!({
        "mac": decision.mac.to_string(),
        "vm": decision.vm,
        "action": decision.action.name(),
        "reason": clip(&decision.reason.to_string()),
        "napi": decision.napi,
        "open": outcome.map_or(decision.action != Action::Keep, Outcome::is_open),
        "outcome": outcome.map(|outcome| clip(&outcome.to_string())),
        "evidence": decision.evidence.iter().map(evidence_json).collect::<Vec<_>>(),
    })
}

/// Returns one guard's answer for a page.
pub(crate) fn evidence_json(evidence: &Evidence) -> Value {
    let Evidence { guard, answer, why } = evidence;
    let (guard, answer) = (guard.to_string(), answer.to_string());
    let said = clip(&why.to_string());
    json!({"guard": guard, "answer": answer, "said": said})
}
