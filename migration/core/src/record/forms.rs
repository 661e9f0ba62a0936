// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is shown of a record: the public form and the raw form of `GET /migrations`.

use serde_json::{Map, Value, json};

use super::fields::{Entry, Record};
use crate::time::Time;

impl Entry {
    /// Returns how long the phase took, or takes until `now`.
    pub fn duration(&self, now: Time) -> i64 {
        let started = self.started_timestamp.unwrap_or(now);
        let until = self.finished_timestamp.unwrap_or(now);
        self.duration_ms.unwrap_or_else(|| until.since(started))
    }

    /// Returns the entry as the public form has it, and as watchers get it.
    pub fn public(&self, now: Time) -> Value {
        let is_known = self.duration_ms.is_some() || self.finished_timestamp.is_some();
        let duration = json!(self.duration(now));
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                object.insert(name.to_owned(), value);
            }
        };
        put("type", json!(self.kind));
        put("current_progress", json!(self.current_progress));
        put("duration_ms", if is_known { duration.clone() } else { Value::Null });
        put("finished_timestamp", json!(self.finished_timestamp));
        put("error", json!(self.error));
        let is_done_without = self.error.is_none() && self.error_detail.is_some();
        put("warning", if is_done_without { json!(self.error_detail) } else { Value::Null });
        put("message", json!(self.message));
        put("phase", json!(self.phase));
        put("state", json!(self.state));
        put("started_timestamp", json!(self.started_timestamp));
        put("total_progress", json!(self.total_progress));
        put("duration_ms", duration); // stays where it is if it is there
        Value::Object(object)
    }
}

impl Record {
    /// Returns what `GET /migrations` shows every client.
    pub fn public(&self, now: Time) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                object.insert(name.to_owned(), value);
            }
        };
        put("automatic", json!(self.automatic));
        put("created_timestamp", json!(self.created_timestamp));
        put("duration_ms", json!(self.duration_ms));
        put("error", json!(self.error));
        put("finished_timestamp", json!(self.finished_timestamp));
        put("phase", json!(self.phase));
        put("scheduled_timestamp", json!(self.scheduled_timestamp));
        put("started_timestamp", json!(self.started_timestamp));
        put("state", json!(self.state));
        put("vm_uuid", json!(self.vm_uuid));
        let history = self.progress_history.iter().map(|entry| entry.public(now));
        put("progress_history", history.collect());
        Value::Object(object)
    }

    /// Returns the record as stored, with the duration of each entry that has ended: the answer of an action
    /// that is done at once.
    pub fn raw_entries(&self, now: Time) -> Value {
        let mut shown = self.clone();
        for entry in shown.progress_history.iter_mut().filter(|it| it.job_uuid.is_some()) {
            entry.duration_ms = Some(entry.duration(now));
        }
        shown.to_json()
    }

    /// Returns what `?format=raw` shows: the record as stored, with the duration of each entry and of all.
    pub fn raw(&self, now: Time) -> Value {
        let mut shown = self.clone();
        for entry in &mut shown.progress_history {
            entry.duration_ms = Some(entry.duration(now));
        }
        let durations = shown.progress_history.iter().filter_map(|entry| entry.duration_ms);
        shown.duration_ms = Some(durations.sum());
        shown.to_json()
    }
}
