// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees besides the frame's part: what is this agent's own of a task's state, and when something was
//! last published. It decides nothing.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use daemon::{agent, wall};
use jiff::Timestamp;
use sdc_clients::fleet::Claim;
use serde_json::Value;

/// The tasks whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Publishes the node.
    Publisher,
    /// Tells how the node is.
    Heartbeat,
    /// Makes the streams.
    Streams,
    /// Reads who the node is.
    Identity,
}

/// The state of a task; `Resting` if it follows.
pub type State = agent::State<Own>;

/// What only this agent waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Own {
    /// The first heartbeat is not written yet.
    #[error("waiting for the first heartbeat")]
    Unclaimed,
    /// Another program publishes this node.
    #[error(
        "waiting for the program that publishes this node: it runs on {} (machine {}), this one on machine {mine}",
        .other.hostname.as_deref().unwrap_or("a machine without a name"), .other.machine
    )]
    Claimed {
        /// Who.
        other: Claim,
        /// This machine.
        mine: String,
    },
    /// The node is being compared.
    #[error("comparing the node with the feed: {0}")]
    Comparing(String),
    /// The feed does not do what is asked.
    #[error("waiting for the feed: {0}")]
    Feed(String),
    /// `VMS` does not take what `CHANGES` has.
    #[error("VMS stands still though CHANGES has more: a new reader waits for what it lacks")]
    Still,
    /// It has no room, which making it again does not give.
    #[error(
        "VMS is full, or soon: it takes no VM that is new, and new readers do not see one (sdc-fleet streams --nodes)"
    )]
    Full,
    #[error(
        "the servers have different messages ({0}), and a reader gets those of one: giving each the same is tried again"
    )]
    Differ(Differ),
    /// Sysinfo has another uuid.
    #[error(
        "sysinfo names the node {sysinfo}, the configuration {configured}: nothing is published"
    )]
    WrongIdentity {
        /// In the configuration.
        configured: String,
        sysinfo: String,
    },
}

/// Under how many numbers the servers of a stream have different messages, by the last comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differ(BTreeMap<&'static str, usize>);

impl Differ {
    /// A comparison found so many.
    pub(crate) fn found(&mut self, stream: &'static str, count: usize) {
        match count {
            0 => self.0.remove(stream),
            count => self.0.insert(stream, count),
        };
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn sum(&self) -> usize {
        self.0.values().sum()
    }
}

impl std::fmt::Display for Differ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<_> =
            self.0.iter().map(|(stream, count)| format!("{count} of {stream}")).collect();
        f.write_str(&words.join(", "))
    }
}

// The name in `/status`, the name in `/metrics`, and the help of each counter.
daemon::counters! {
    Published, "events_published", "events_published", "Events that JetStream acknowledged";
    Already, "events_already_there", "events_already_there", "Events that the feed had already";
    Differences, "differences_published", "differences_published", "Differences that a comparison published";
    Comparisons, "comparisons", "comparisons", "Comparisons of the node with the feed";
    Markers, "markers_published", "markers_published", "Markers of a hole in the history that were published";
    Nameless, "events_without_uuid", "events_without_uuid", "Events of zones without a uuid, which are not published";
    Unreadable, "lines_unreadable", "lines_unreadable", "Lines of vminfod that are no event";
    Shortened, "messages_shortened", "messages_shortened", "Messages that were too large and were published in part";
    Cuts, "cuts", "cuts", "Times that publishing was cut and began again";
    Beats, "heartbeats", "heartbeats", "Heartbeats that were written";
    Errors, "errors", "errors", "Requests to the feed and to vminfod that failed";
}

/// The frame's part, and the time of the last message. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Status {
    agent: agent::Status<Task, Count, Own>,
    last_published: Mutex<Option<Timestamp>>,
}

impl Deref for Status {
    type Target = agent::Status<Task, Count, Own>;

    fn deref(&self) -> &Self::Target {
        &self.agent
    }
}

impl Default for Status {
    fn default() -> Self {
        Self { agent: agent::Status::new(Vec::new()), last_published: Mutex::default() }
    }
}

impl Status {
    /// Stores the state of a task; logs one that is new and says something.
    pub fn is(&self, task: Task, state: State) {
        if self.state(task).as_ref() != Some(&state) {
            match &state {
                State::Resting | State::Own(Own::Unclaimed) => {}
                State::Own(Own::Comparing(_)) => tracing::info!("{state}"),
                state => tracing::warn!("{state}"),
            }
        }
        self.agent.is(task, state);
    }

    /// A message was acknowledged.
    pub fn published(&self, what: Count) {
        self.count(what);
        *self.last_published.lock().unwrap_or_else(PoisonError::into_inner) = Some(wall::now());
    }

    /// Counts a failure and keeps it as the last one. Returns it for people.
    pub fn failed(&self, error: &(dyn std::error::Error + 'static)) -> String {
        self.agent.failed(Count::Errors, error)
    }

    /// Returns when something was last published.
    pub fn last_published(&self) -> Option<Timestamp> {
        *self.last_published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let mut page = self.agent.to_json();
        page["last_published"] = self.last_published().map(|at| format!("{at:.3}")).into();
        page
    }
}
