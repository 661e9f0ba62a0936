// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers of VMAPI are the same, given what differs from run to run. Pure.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::conform::reply::Response;
use crate::conform::transcript::{Answered, Asked, Streamed, Timed};

/// Times of this day were made by the server while it was recorded.
const RECORDED_ON: &str = "2026-11-22T";
/// A step that takes longer still runs: it began long before the recording.
const LONG: u64 = 1_000_000_000;
const HEADERS: [&str; 3] = ["content-type", "allow", "x-joyent-resource-count"];

/// What a replay has learned about the values that differ from run to run: recorded to ours.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Times and ids that the server made.
    texts: HashMap<String, String>,
}

impl Memory {
    /// Compares a whole answer; the error says where, what was expected and what came.
    pub(super) fn answer(&mut self, want: &Answered, got: Option<&Response>) -> Result<(), String> {
        want.same_head(got, &HEADERS)?;
        let Some(got) = got else { return Ok(()) };
        let names = want.other_headers.iter().flatten().map(String::as_str);
        let named = want.header("workflow-api").map(|_| "workflow-api");
        if let Some(name) = names.chain(named).find(|name| got.header(name).is_none()) {
            return Err(format!("expected a header {name}"));
        }
        let body = want.body.as_ref().filter(|body| !body.is_null());
        match (body, got.json()) {
            (None, _) if got.body.is_empty() => {}
            (Some(body), Some(ours)) => self.value("body", body, &ours)?,
            _ => {
                let ours = String::from_utf8_lossy(&got.body);
                return Err(format!("body: expected {body:?}, got {ours:?}"));
            }
        }
        length(want, got)
    }

    /// Returns true if a body is the recorded one.
    pub(super) fn is_same(&mut self, want: &Value, got: &Value) -> bool {
        self.value("body", want, got).is_ok()
    }

    /// Returns a request with our values in place of those that the recorded server had made.
    pub(super) fn translated(&self, asked: &Asked) -> Asked {
        let mut asked = asked.clone();
        let Some(body) = &asked.body else { return asked };
        let mut text = body.to_string();
        for (recorded, ours) in &self.texts {
            text = text.replace(recorded, ours);
        }
        asked.body = serde_json::from_str(&text).ok();
        asked
    }

    /// Compares the lines of a streamed answer.
    pub(super) fn lines(&mut self, want: &[Timed<Streamed>], got: &[Value]) -> Result<(), String> {
        if want.len() != got.len() {
            return Err(format!("stream: expected {} lines, got {got:?}", want.len()));
        }
        let pairs = want.iter().zip(got).enumerate();
        let mut compared = pairs.map(|(at, (want, got))| {
            self.value(&format!("stream[{at}]"), &json!({"_": want.what.line}), &json!({"_": got}))
        });
        compared.find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Compares an id: equal, or made by the server on both sides.
    fn same_id(&mut self, place: &str, want: &Value, got: &Value) -> Result<(), String> {
        let (Some(recorded), Some(ours)) = (want.as_str(), got.as_str()) else {
            return self.value(place, want, got);
        };
        let known = self.texts.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
        let is_id = recorded.len() == ours.len();
        if is_id && known == ours {
            Ok(())
        } else {
            Err(format!("{place}: expected {known}, got {got}"))
        }
    }

    fn value(&mut self, place: &str, want: &Value, got: &Value) -> Result<(), String> {
        let differs = || Err(format!("{place}: expected {want}, got {got}"));
        match (want, got) {
            (Value::Array(want), Value::Array(got)) => {
                // A long list was cut: its last entry says how many more there were.
                let more = want.last().and_then(Value::as_str).and_then(|text| {
                    text.strip_prefix("...")?.strip_suffix(" more")?.parse::<usize>().ok()
                });
                let shown = want.len() - usize::from(more.is_some());
                let count = shown + more.unwrap_or(0);
                if got.len() != count {
                    return Err(format!("{place}: expected {count} entries, got {}", got.len()));
                }
                let pairs = want.iter().take(shown).zip(got).enumerate();
                for (at, (want, got)) in pairs {
                    self.value(&format!("{place}[{at}]"), want, got)?;
                }
                Ok(())
            }
            (Value::Object(want), Value::Object(got)) => {
                for (name, want) in want {
                    let place = format!("{place}.{name}");
                    let Some(got) = got.get(name) else {
                        return Err(format!("{place}: expected {want}, got nothing"));
                    };
                    match name.as_str() {
                        // Of a step that runs: until now.
                        "duration_ms" if want.as_u64().is_some_and(|it| it > LONG) => {
                            let is_long = got.as_u64().is_some_and(|it| it > LONG);
                            if !is_long {
                                return Err(format!("{place}: expected {want}, got {got}"));
                            }
                        }
                        "id" => self.same_id(&place, want, got)?,
                        "job_uuid" if got.as_str().is_some_and(|uuid| uuid.len() == 36) => {}
                        "pid" if got.is_u64() => {}
                        _ => self.value(&place, want, got)?,
                    }
                }
                match got.keys().find(|name| !want.contains_key(*name)) {
                    Some(extra) => Err(format!("{place}: expected no {extra}, got {}", got[extra])),
                    None => Ok(()),
                }
            }
            (Value::String(want), Value::String(got)) if want.starts_with(RECORDED_ON) => {
                let known = self.texts.entry(want.clone()).or_insert_with(|| got.clone());
                let is_time = got.len() == want.len() && got.parse::<jiff::Timestamp>().is_ok();
                if is_time && known == got { Ok(()) } else { differs() }
            }
            (Value::String(want), Value::String(got))
                if without_ports(want) == without_ports(got) =>
            {
                Ok(())
            }
            _ if want == got => Ok(()),
            _ => differs(),
        }
    }
}

/// Compares what the changefeed has for a write; of the objects in it the recording has the fields' names.
pub(super) fn published(want: &[Value], got: &[Value]) -> Result<(), String> {
    let ours: Vec<Value> = got
        .iter()
        .map(|item| {
            let mut fields: Vec<&str> =
                item["resourceObject"].as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
            fields.sort_unstable();
            json!({
                "keys": item.as_object().into_iter().flatten().map(|(name, _)| name).collect::<Vec<_>>(),
                "changeKind": item["changeKind"],
                "changedResourceId": item["changedResourceId"],
                "resourceObject_keys": fields,
            })
        })
        .collect();
    if want == ours {
        return Ok(());
    }
    Err(format!("expected {}, got {}", json!(want), json!(ours)))
}

/// The text without the ports of this machine.
fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + "HERE" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// The length follows the body; where nothing in it varies in length it is the recorded one.
fn length(want: &Answered, got: &Response) -> Result<(), String> {
    let text = want.body.as_ref().map(Value::to_string).unwrap_or_default();
    let varies = text.contains("127.0.0.1:") || text.contains("\"pid\":");
    let varies = varies || text.contains("\"duration_ms\":2");
    match (want.header("content-length"), got.header("content-length")) {
        (Some(recorded), Some(ours)) if varies || recorded == ours => Ok(()),
        (None, _) => Ok(()),
        (recorded, ours) => Err(format!("content-length: expected {recorded:?}, got {ours:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_and_what_is_free() {
        let mut memory = Memory::default();
        let recorded =
            json!({"destroyed": "2026-11-22T16:00:00.000Z", "m": "to 127.0.0.1:40: x", "pid": 7});
        let ours = |at: &str, m: &str| json!({"destroyed": at, "m": m, "pid": 12});
        let mut same = |got: &Value| memory.value("body", &recorded, got).is_ok();
        assert!(same(&ours("2027-01-01T00:00:00.000Z", "to 127.0.0.1:5: x")));
        assert!(!same(&ours("2027-01-01T00:00:01.000Z", "to 127.0.0.1:5: x")), "another time now");
        assert!(!same(&ours("2027-01-01T00:00:00.000Z", "to 127.0.0.1:5: y")));
        assert!(!same(&json!({"destroyed": "2027-01-01T00:00:00.000Z", "pid": 1})));
        let cut = json!([{"uuid": "a"}, "...2 more"]);
        assert!(memory.value("body", &cut, &json!([{"uuid": "a"}, 1, 2])).is_ok());
        assert!(memory.value("body", &cut, &json!([{"uuid": "a"}, 1])).is_err());
        assert!(memory.value("body", &cut, &json!([{"uuid": "b"}, 1, 2])).is_err());
    }
}
