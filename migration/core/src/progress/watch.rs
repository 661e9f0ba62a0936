// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events that one watcher gets.

use serde_json::{Value, json};

use crate::intent::Again;
use crate::record::{Entry, Phase, Record, State};
use crate::time::Time;

/// An unchanged event is sent again after this many ms.
const AGAIN: i64 = 60_000;

/// The latest event of bytes that a service has, and the phase that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest {
    /// The id of the entry of the history that it belongs to: its `started_timestamp`.
    pub of: Option<Time>,
    pub event: Value,
}

/// One watcher. What it has to remember; the rest is in the record, so that it outlives a restart of the
/// service that serves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watch {
    has_begun: bool,
    entries: usize,
    /// The entries that have ended, and whose warnings were sent.
    warned: usize,
    event: Option<Value>,
    /// Why the step that runs is tried again.
    again: Option<Again>,
    sent: Option<Time>,
    phase: Option<Phase>,
    is_rescued: bool,
    is_over: bool,
}

impl Watch {
    /// Returns a watcher that has seen nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// Returns true if the end was sent.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the lines to send now.
    ///
    /// First the warnings of entries that have ended since. At the beginning the last entry of the history is sent if
    /// it runs. Then each new entry; the entry that runs each time that its step is to be tried again, with the reason,
    /// and once it goes on; the latest event of bytes if it belongs to the entry that runs and is not tried again; then
    /// the end if nothing runs any more. `record`: none if it is gone.
    pub fn step(
        &mut self,
        record: Option<&Record>,
        latest: Option<&Latest>,
        now: Time,
    ) -> Vec<Value> {
        let mut lines = Vec::new();
        if self.is_over {
            return lines;
        }
        let Some(record) = record else {
            lines.push(self.gone());
            return lines;
        };
        (self.phase, self.is_rescued) = (Some(record.phase), record.intent.rescue.is_some());
        let history = &record.progress_history;
        if !self.has_begun {
            self.has_begun = true;
            let runs = history.last().is_some_and(|entry| entry.state == State::Running);
            self.entries = history.len() - usize::from(runs);
            self.warned = self.entries;
        }
        while let Some(entry) = history.get(self.warned).filter(|it| it.state != State::Running) {
            self.warned += 1;
            let warning = entry.error_detail.as_ref().filter(|_| entry.error.is_none());
            lines.extend(warning.map(|text| {
                let message = format!("Warning: {text}");
                json!({"type": "warning", "phase": entry.phase, "message": message})
            }));
        }
        let new = history.get(self.entries..).unwrap_or_default();
        lines.extend(new.iter().map(|entry| entry.public(now)));
        self.entries = self.entries.max(history.len());
        let current = history.last().filter(|entry| entry.state == State::Running);
        let started = current.and_then(|entry| entry.started_timestamp);
        let again = record.intent.again.as_ref();
        let latest = latest.filter(|latest| started.is_some() && latest.of == started);
        // What was sent before does not describe a step that is tried again.
        let latest = latest.filter(|_| again.is_none());
        if self.again.as_ref() != again {
            self.again = again.cloned();
            lines.extend(current.map(|entry| running(entry, again, now)));
        }
        if let Some(latest) = latest.filter(|latest| self.event.as_ref() != Some(&latest.event)) {
            lines.push(latest.event.clone());
            self.event = Some(latest.event.clone());
        }
        if !matches!(record.state, State::Running | State::Queued) {
            lines.push(end(record.phase.name(), record.state.name(), record.error.as_deref()));
            self.is_over = true;
        }
        let is_silent = self.sent.is_some_and(|sent| now.since(sent) >= AGAIN);
        if lines.is_empty() && is_silent {
            // No rate is repeated: an agent that is silent sends nothing.
            lines.extend(current.map(|entry| running(entry, again, now)));
        }
        if !lines.is_empty() || self.sent.is_none() {
            self.sent = Some(now);
        }
        lines
    }

    /// A record that goes while it is watched was rescued, rolled back, aborted, or ended in another way.
    fn gone(&mut self) -> Value {
        self.is_over = true;
        let successful = State::Successful.name();
        match self.phase {
            Some(_) if self.is_rescued => end("rescue", successful, None),
            Some(phase @ (Phase::Rollback | Phase::Abort)) => end(phase.name(), successful, None),
            phase => end(phase.unwrap_or(Phase::Begin).name(), "unknown", None),
        }
    }
}

/// The entry that runs, with why its step is tried again.
fn running(entry: &Entry, again: Option<&Again>, now: Time) -> Value {
    let mut line = entry.public(now);
    if let Some(again) = again {
        line["message"] = json!(again.sentence(now));
    }
    line
}

fn end(phase: &str, state: &str, message: Option<&str>) -> Value {
    let mut line = json!({"type": "end", "phase": phase, "state": state});
    if let Some(message) = message {
        line["message"] = json!(message);
    }
    line
}

#[cfg(test)]
mod tests;
