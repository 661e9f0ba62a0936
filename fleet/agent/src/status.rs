// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the operator sees: the state of each task, and counters. It decides nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use daemon::log::clip;
use daemon::wall;
use jiff::Timestamp;
use sdc_clients::fleet::Claim;
use serde_json::{Value, json};

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

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum State {
    /// It follows, or has nothing to do until something changes.
    #[error("following")]
    Following,
    /// The whole agent is off.
    #[error("no_rabbit is false: the feature is off, and nothing is published")]
    Off,
    /// The first heartbeat is not written yet.
    #[error("the first heartbeat")]
    Unclaimed,
    /// Another program publishes this node.
    #[error(
        "the program that publishes this node: it runs on {} (machine {}), this one on machine {mine}",
        .other.hostname.as_deref().unwrap_or("a machine without a name"), .other.machine
    )]
    Claimed {
        /// Who.
        other: Claim,
        /// This machine.
        mine: String,
    },
    /// The node is being compared.
    #[error("the comparison of the node with the feed: {0}")]
    Comparing(String),
    /// The feed does not do what is asked.
    #[error("the feed: {0}")]
    Feed(String),
    /// vminfod does not answer.
    #[error("vminfod: {0}")]
    Hub(String),
    /// Sysinfo has another uuid.
    #[error("sysinfo names the node {sysinfo}, the configuration {configured}")]
    WrongIdentity {
        /// In the configuration.
        configured: String,
        /// In sysinfo.
        sysinfo: String,
    },
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

counts! {
    Published, "events_published", "Events that JetStream acknowledged";
    Already, "events_already_there", "Events that the feed had already";
    Differences, "differences_published", "Differences that a comparison published";
    Comparisons, "comparisons", "Comparisons of the node with the feed";
    Markers, "markers_published", "Times that consumers were told of a hole in the history";
    Nameless, "events_without_uuid", "Events of zones without a uuid, which are not published";
    Unreadable, "lines_unreadable", "Lines of vminfod that are no event";
    Shortened, "messages_shortened", "Messages that were too large and were published in part";
    Cuts, "cuts", "Times that publishing was cut and began again";
    Beats, "heartbeats", "Heartbeats that were written";
    Errors, "errors", "Requests to the feed and to vminfod that failed";
}

#[derive(Debug, Default)]
struct Board {
    counts: BTreeMap<Count, u64>,
    states: BTreeMap<Task, State>,
    last_error: Option<(Timestamp, String)>,
    last_published: Option<Timestamp>,
}

/// The counters and states. The lock is held for a few instructions and never over an await.
#[derive(Debug, Default)]
pub struct Status {
    board: Mutex<Board>,
}

impl Status {
    fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts one.
    pub fn count(&self, what: Count) {
        self.with(|b| *b.counts.entry(what).or_default() += 1);
    }

    /// Returns a counter.
    pub fn get(&self, what: Count) -> u64 {
        self.with(|b| b.counts.get(&what).copied().unwrap_or_default())
    }

    /// Stores the state of a task; logs one that is new and says something.
    pub fn is(&self, task: Task, state: State) {
        let old = self.with(|b| b.states.insert(task, state.clone()));
        if old.as_ref() != Some(&state) {
            match state {
                State::Following | State::Unclaimed => {}
                State::Comparing(_) => tracing::info!("{state}"),
                state => tracing::warn!("waiting for {state}"),
            }
        }
    }

    /// Returns the state of a task.
    pub fn state(&self, task: Task) -> Option<State> {
        self.with(|b| b.states.get(&task).cloned())
    }

    /// A message was acknowledged.
    pub fn published(&self, what: Count) {
        self.count(what);
        self.with(|b| b.last_published = Some(wall::now()));
    }

    /// Counts a failure and keeps it as the last one.
    pub fn failed(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let text = clip(&daemon::log::chain(error));
        self.count(Count::Errors);
        self.with(|b| b.last_error = Some((wall::now(), text.clone())));
        text
    }

    /// Returns what the agent waits for, for people.
    pub fn waiting_for(&self) -> Vec<String> {
        self.with(|b| {
            let waiting = b.states.values().filter(|state| **state != State::Following);
            waiting.map(|state| clip(&state.to_string())).collect()
        })
    }

    /// Returns when something was last published.
    pub fn last_published(&self) -> Option<Timestamp> {
        self.with(|b| b.last_published)
    }

    /// Returns this part of `/status`.
    pub fn to_json(&self) -> Value {
        let mut page = json!({"waiting_for": self.waiting_for()});
        self.with(|b| {
            let (at, error) = b.last_error.clone().unzip();
            page["last_error"] = error.into();
            page["last_error_at"] = at.map(|at| format!("{at:.3}")).into();
            page["last_published"] = b.last_published.map(|at| format!("{at:.3}")).into();
            for count in Count::ALL.iter().copied() {
                page[count.metric().0] = b.counts.get(&count).copied().unwrap_or_default().into();
            }
        });
        page
    }
}
