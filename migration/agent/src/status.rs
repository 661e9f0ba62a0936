// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees of the agent's own tasks. Orders are not among them: how each of them stands is its
//! migration's, and the service is told. It decides nothing.

use daemon::agent;

/// The tasks whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Takes connections for data.
    Data,
    /// Renews net-agent's holds.
    Holds,
    /// Asks which copies were replaced.
    Replaced,
}

/// The state of a task.
pub type State = agent::State<Own>;

/// What only this agent waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Own {
    /// The service does not answer.
    #[error("migration-service does not answer which copies of this node were replaced: {0}")]
    Service(String),
}

// The name in `/status`, the name in `/metrics`, and the help of each counter.
daemon::counters! {
    Renewed, "holds_renewed", "holds_renewed", "Holds of net-agent that were renewed";
    Asked, "replaced_asked", "replaced_asked", "Times that migration-service answered which copies were replaced";
    Errors, "errors", "errors", "Renewals of holds, questions to migration-service and connections for data that failed";
}

/// The frame's part.
pub type Status = agent::Status<Task, Count, Own>;
