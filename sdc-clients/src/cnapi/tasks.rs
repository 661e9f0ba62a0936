// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Tasks: work that CNAPI gives a node's agent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A task and what it said so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The task.
    pub id: String,
    /// `active`, `complete` or `failure`; an open set of words.
    pub status: String,
    /// Its events, oldest first: `{name, event}`.
    #[serde(default)]
    pub history: Vec<Value>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Task {
    /// Returns true once it did what was asked.
    pub fn is_complete(&self) -> bool {
        self.status == "complete"
    }

    /// Returns true while it goes on.
    pub fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// Returns true once it ended without having done it.
    pub fn is_failed(&self) -> bool {
        self.status == "failure"
    }

    /// What the first of its events of this name carries.
    pub fn event(&self, name: &str) -> Option<&Value> {
        self.history.iter().find(|event| event["name"] == name).map(|event| &event["event"])
    }

    /// Why it failed, if it said so.
    pub fn error(&self) -> Option<&str> {
        let error = &self.event("error")?["error"];
        error["message"].as_str().or(error.as_str())
    }
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Started {
    pub(super) id: String,
}
