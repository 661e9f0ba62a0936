// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees besides the frame's part: the steps of the start and the last plan with its evidence. It
//! decides nothing.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::agent;
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
use crate::plan::{Action, Decision, Evidence, Plan, Reason};

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

/// The states of a task that only this agent knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Own {
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

// The name in `/status`, the name in `/metrics`, and the help of each counter.
daemon::counters! {
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

/// The frame's part, the steps of the start and the plan. The lock is held for a few instructions and never over an
/// await.
#[derive(Debug)]
pub struct Status {
    agent: agent::Status<Task, Count, Own>,
    clock: Clock,
    board: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    history: Vec<(&'static str, Duration)>,
    passes: u64,
    last_pass: Option<Timestamp>,
    /// What is wrong with the first records that cannot be read.
    unreadable: Vec<String>,
    last_plan: Option<(Timestamp, Plan)>,
    /// What came of the plan's lines so far.
    outcomes: BTreeMap<MacAddr, Outcome>,
    /// How many records of an offer are read, and how many are to be read.
    reading: Option<(usize, usize)>,
}

impl Deref for Status {
    type Target = agent::Status<Task, Count, Own>;

    fn deref(&self) -> &Self::Target {
        &self.agent
    }
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(clock: Clock, services: Vec<Arc<Health>>) -> Self {
        Self { agent: agent::Status::new(services), clock, board: Mutex::default() }
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

    /// Stores what a list holds.
    pub(crate) fn listed(&self, listing: &NicListing) {
        self.set(Count::Listed, listing.listed);
        self.set(Count::Unreadable, listing.unreadable.count as usize);
        self.with(|b| b.unreadable.clone_from(&listing.unreadable.first));
    }

    /// Counts a pass that ended well, and forgets a failure before it began. Returns its number.
    pub fn passed(&self, began: Instant) -> u64 {
        self.recovered(..began);
        self.with(|b| {
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
        let mut page = self.agent.to_json();
        page["now"] = micros(self.clock.now()).into();
        self.with(|b| {
            let step =
                |(name, at): &(&str, Duration)| json!({"h_name": name, "h_time": micros(*at)});
            page["init_history"] = b.history.iter().map(step).collect();
            page["pass"] = b.passes.into();
            page["last_pass"] = b.last_pass.map(|at| at.to_string()).into();
            page["unreadable_nics"] = b.unreadable.clone().into();
        });
        page
    }

    /// Returns this part of `/plan`.
    pub fn plan_json(&self) -> Value {
        let waiting_for = self.waiting_for();
        self.with(|b| {
            let mut page = match &b.last_plan {
                None => json!({"made": null, "brake": null, "decisions": [],
                    "waiting_for": waiting_for}),
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
