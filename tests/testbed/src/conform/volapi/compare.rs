// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers of volapi are the same, given what differs from run to run. Pure.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::conform::reply::Response;
use crate::conform::transcript::{Answered, Asked};

/// Headers that the routes have and the router does not.
const ROUTED: [&str; 4] = ["server", "x-request-id", "x-response-time", "x-server-name"];

/// What a replay has learned about the values that differ from run to run: recorded to ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    names: HashMap<String, String>,
    times: HashMap<String, String>,
}

impl Memory {
    /// Returns the text with our values in place of the recorded ones.
    pub(super) fn ours(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (recorded, ours)| text.replace(recorded, ours))
    }

    /// Returns the value with our values in place of the recorded ones.
    pub(super) fn ours_in(&self, value: &Value) -> Value {
        serde_json::from_str(&self.ours(&value.to_string())).unwrap_or_default()
    }

    /// Returns the text with the recorded values in place of ours.
    pub(super) fn recorded(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (recorded, ours)| text.replace(ours, recorded))
    }

    /// Takes over the values that the server chose: of a new record, and of a storage VM that an answer
    /// shows for the first time.
    pub(super) fn learn(&mut self, asked: &Asked, want: &Value, got: &Value) {
        let sent = asked.body.as_ref();
        let is_new = asked.method == "POST"
            && asked.path.matches('/').count() == 1
            && want.get("create_timestamp").is_some();
        for name in ["vm_uuid", "uuid", "name"] {
            let was_sent = sent.is_some_and(|sent| sent.get(name).is_some());
            if !(name == "vm_uuid" || is_new) || was_sent {
                continue;
            }
            if let (Some(want), Some(got)) = (text(want, name), text(got, name))
                && want != got
                && !self.names.contains_key(want)
            {
                self.names.insert(want.to_owned(), got.to_owned());
            }
        }
    }

    /// Takes over the VM that the service chose for a volume, from what VMAPI was asked to make.
    pub(super) fn learn_vm(&mut self, want: &Value, got: &Value) {
        if let (Some(want), Some(got), true) =
            (text(want, "uuid"), text(got, "uuid"), want.get("brand").is_some())
        {
            self.names.entry(want.to_owned()).or_insert_with(|| got.to_owned());
        }
    }

    /// Compares a whole answer; the error says where, what was expected and what came.
    pub(super) fn answer(
        &mut self,
        asked: &Asked,
        want: &Answered,
        got: Option<&Response>,
    ) -> Result<(), String> {
        want.same_head(got, &["content-type", "allow"])?;
        let Some(got) = got else { return Ok(()) };
        let names: Vec<&str> = want.other_headers.iter().flatten().map(String::as_str).collect();
        if let Some(name) = names.iter().find(|name| got.header(name).is_none()) {
            return Err(format!("expected a header {name}"));
        }
        if let Some(name) = ROUTED.iter().find(|it| !names.contains(it) && got.header(it).is_some())
        {
            return Err(format!("expected no header {name}"));
        }
        let length = got.header("content-length").and_then(|length| length.parse().ok());
        let is_head = asked.method == "HEAD";
        if !is_head && length.is_some_and(|length: usize| length != got.body.len()) {
            return Err(format!("content-length {length:?} of {} bytes", got.body.len()));
        }
        self.body(asked, want.body.as_ref().filter(|body| !body.is_null()), got)
    }

    /// Compares a body.
    pub(super) fn body(
        &mut self,
        asked: &Asked,
        want: Option<&Value>,
        got: &Response,
    ) -> Result<(), String> {
        let (want, got) = match (want, got.json()) {
            (None, None) if got.body.is_empty() => return Ok(()),
            (Some(want), Some(got)) => (want, got),
            _ => {
                let ours = String::from_utf8_lossy(&got.body);
                return Err(format!("body: expected {want:?}, got {ours:?}"));
            }
        };
        self.learn(asked, want, &got);
        let (want, got) = (sorted(self.ours_in(want)), sorted(got));
        self.value("body", &want, &got)
    }

    fn value(&mut self, place: &str, want: &Value, got: &Value) -> Result<(), String> {
        let differs = || Err(format!("{place}: expected {want}, got {got}"));
        match (want, got) {
            (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
                let pairs = want.iter().zip(got).enumerate();
                for (at, (want, got)) in pairs {
                    self.value(&format!("{place}[{at}]"), want, got)?;
                }
                Ok(())
            }
            (Value::Object(want), Value::Object(got)) => {
                let (keys, ours) = (keys(want), keys(got));
                if keys != ours {
                    return Err(format!("{place}: expected the fields {keys:?}, got {ours:?}"));
                }
                for name in keys {
                    match name {
                        "pid" if got[name].is_u64() => {}
                        _ => self.value(&format!("{place}.{name}"), &want[name], &got[name])?,
                    }
                }
                Ok(())
            }
            (Value::String(want), Value::String(got)) if place.ends_with("create_timestamp") => {
                let known = self.times.entry(want.clone()).or_insert_with(|| got.clone());
                let is_time = got.len() == want.len() && got.parse::<jiff::Timestamp>().is_ok();
                if is_time && known == got { Ok(()) } else { differs() }
            }
            _ if want == got => Ok(()),
            _ => differs(),
        }
    }
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// The fields in their order. Empty labels come with the first change of the storage VM that the real
/// service happens to read, which it does every two seconds.
fn keys(fields: &Map<String, Value>) -> Vec<&str> {
    let is_empty =
        |name: &str| name == "labels" && fields[name].as_object().is_some_and(Map::is_empty);
    fields.keys().map(String::as_str).filter(|name| !is_empty(name)).collect()
}

/// Lists of records have no order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut items) if items.iter().all(|item| item.get("uuid").is_some()) => {
            items.sort_by_key(|item| item["uuid"].to_string());
            Value::Array(items)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_counts_and_what_is_free() {
        let mut memory = Memory::default();
        let (method, path) = ("POST".to_owned(), "/volumes".to_owned());
        let asked = Asked { method, path, ..Asked::default() };
        let at = "2026-11-22T16:00:00.000Z";
        let want = json!({"uuid": "r1", "vm_uuid": "r2", "create_timestamp": at});
        let got = json!({"uuid": "o1", "vm_uuid": "o2", "create_timestamp": at});
        memory.learn(&asked, &want, &got);
        assert_eq!((memory.ours("/r1/r2"), memory.recorded("o2")), ("/o1/o2".into(), "r2".into()));
        let mut same = |want: Value, got: Value| memory.value("body", &want, &sorted(got)).is_ok();
        assert!(same(json!({"a": 1, "labels": {}}), json!({"a": 1})));
        assert!(!same(json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1})), "the order of fields");
        assert!(same(json!([{"uuid": "a"}, {"uuid": "b"}]), json!([{"uuid": "b"}, {"uuid": "a"}])));
        assert!(!same(json!(["a", "b"]), json!(["b", "a"])), "the order of references");
        assert!(same(json!({"create_timestamp": at}), json!({"create_timestamp": at})));
        let later = "2026-11-22T16:00:01.000Z";
        assert!(!same(json!({"create_timestamp": at}), json!({"create_timestamp": later})));
    }
}
