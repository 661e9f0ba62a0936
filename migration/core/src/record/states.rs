// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Phases and states by the names that records have.

use serde::{Deserialize, Serialize};

/// What a migration is, or was last, doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Begin,
    Sync,
    Switch,
    Abort,
    Rollback,
}

/// How a phase goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits for its turn: a node has as many migrations as `max_running_migrations_per_cn` allows.
    Queued,
    Running,
    /// Waits for the next action.
    Paused,
    /// Waits for `scheduled_timestamp` (RFD 34).
    Scheduled,
    Failed,
    Successful,
    /// Ended by abort; the record stays for those who ask for it by this state (RFD 34).
    Aborted,
}

impl Phase {
    pub const ALL: [Phase; 5] =
        [Phase::Begin, Phase::Sync, Phase::Switch, Phase::Abort, Phase::Rollback];

    /// Returns the name that records and messages have.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Begin => "begin",
            Phase::Sync => "sync",
            Phase::Switch => "switch",
            Phase::Abort => "abort",
            Phase::Rollback => "rollback",
        }
    }
}

impl State {
    pub const ALL: [State; 7] = [
        State::Queued,
        State::Running,
        State::Paused,
        State::Scheduled,
        State::Failed,
        State::Successful,
        State::Aborted,
    ];

    /// Returns the name that records and messages have.
    pub fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Paused => "paused",
            State::Scheduled => "scheduled",
            State::Failed => "failed",
            State::Successful => "successful",
            State::Aborted => "aborted",
        }
    }
}
