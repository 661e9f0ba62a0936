// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers of these services are the same, given what differs from run to run. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::conform::reply::Response;
use crate::conform::transcript::{Answered, Asked};

/// Times of these days were made by the server while it was recorded.
const RECORDED_ON: [&str; 3] = ["2026-11-25T", "2026-11-28T", "2026-12-05T"];
const HEADERS: [&str; 4] = ["content-type", "allow", "x-resource-count", "api-version"];
/// The members whose uuid the server made.
const MADE: [&str; 7] =
    ["uuid", "id", "job_uuid", "req_id", "runner_id", "workflow", "workflow_uuid"];
/// The members whose number depends on the run.
const MEASURED: [&str; 3] = ["pid", "started", "elapsed"];

/// What a replay has learned about the values that differ from run to run: recorded to ours.
#[derive(Debug, Default)]
pub(crate) struct Memory(BTreeMap<String, String>);

impl Memory {
    /// The text with our values in place of those that the recorded server had made.
    pub(crate) fn ours(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (recorded, ours)| text.replace(recorded, ours))
    }

    /// The value with our values.
    pub(crate) fn ours_of(&self, value: &Value) -> Value {
        serde_json::from_str(&self.ours(&value.to_string())).unwrap_or_default()
    }

    /// What the recorded run calls so is this here.
    pub(crate) fn made(&mut self, recorded: &str, ours: &str) {
        self.0.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
    }

    /// Takes over the uuids of a request that whoever asks has made: those in texts that differ in them alone.
    pub(crate) fn adopt(&mut self, want: &Value, got: &Value, is_given: &dyn Fn(&str) -> bool) {
        match (want, got) {
            (Value::Object(want), Value::Object(got)) => {
                let both = want.iter().filter_map(|(name, want)| Some((want, got.get(name)?)));
                both.for_each(|(want, got)| self.adopt(want, got, is_given));
            }
            (Value::Array(want), Value::Array(got)) => {
                want.iter().zip(got).for_each(|(want, got)| self.adopt(want, got, is_given));
            }
            (Value::String(want), Value::String(got)) => {
                for (recorded, ours) in uuids(want).into_iter().zip(uuids(got)) {
                    if !is_given(recorded) {
                        self.made(recorded, ours);
                    }
                }
            }
            _ => {}
        }
    }

    /// The request with our values.
    pub(crate) fn translated(&self, asked: &Asked) -> Asked {
        let mut asked = asked.clone();
        asked.path = self.ours(&asked.path);
        asked.query = self.ours(&asked.query);
        asked.body = asked.body.map(|body| self.ours_of(&body));
        asked.body_raw = asked.body_raw.map(|raw| self.ours(&raw));
        asked.meanwhile.iter_mut().for_each(|other| other.what = self.translated(&other.what));
        asked
    }

    /// Takes over what the server named in an answer that is not compared.
    pub(super) fn learn(&mut self, want: &Answered, got: Option<&Response>) {
        let ours = got.and_then(Response::json).unwrap_or_default();
        for (name, recorded) in want.body.iter().filter_map(Value::as_object).flatten() {
            if let (Some(recorded), Some(ours)) = (recorded.as_str(), ours[name].as_str())
                && MADE.contains(&name.as_str())
            {
                self.0.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
            }
        }
    }

    /// Compares a whole answer; the error says where, what was expected and what came.
    pub(crate) fn answer(&mut self, want: &Answered, got: Option<&Response>) -> Result<(), String> {
        want.same_head(got, &HEADERS)?;
        let Some(got) = got else { return Ok(()) };
        let body = want.body.as_ref().filter(|body| !body.is_null());
        match (&want.body_text, body, got.json()) {
            (Some(text), ..) if text.as_bytes() == got.body => {}
            (None, None, _) if got.body.is_empty() => {}
            (None, Some(body), Some(ours)) => self.value("body", "", body, &ours)?,
            _ => {
                let ours = String::from_utf8_lossy(&got.body);
                return Err(format!("body: expected {body:?}, got {ours:?}"));
            }
        }
        if want.header("workflow-api").is_some() && got.header("workflow-api").is_none() {
            return Err("expected a header workflow-api".to_owned());
        }
        let place = want.header("location").map(|place| self.ours(place));
        if place.as_deref() != got.header("location") {
            return Err(format!("location: expected {place:?}, got {:?}", got.header("location")));
        }
        Ok(())
    }

    /// Compares a value of this name; the error says where, what was expected and what came.
    pub(crate) fn value(
        &mut self,
        place: &str,
        name: &str,
        want: &Value,
        got: &Value,
    ) -> Result<(), String> {
        match (want, got) {
            (Value::Array(all), Value::Array(ours)) if all.len() == ours.len() => {
                let mut pairs = all.iter().zip(ours).enumerate();
                pairs.try_for_each(|(at, (want, got))| {
                    self.value(&format!("{place}[{at}]"), "", want, got)
                })
            }
            (Value::Object(all), Value::Object(ours)) => {
                for (name, want) in all {
                    let place = format!("{place}.{name}");
                    let got = ours
                        .get(name)
                        .ok_or_else(|| format!("{place}: expected {want}, got nothing"))?;
                    self.value(&place, name, want, got)?;
                }
                match ours.keys().find(|name| !all.contains_key(*name)) {
                    Some(extra) => {
                        Err(format!("{place}: expected no {extra}, got {}", ours[extra]))
                    }
                    None => Ok(()),
                }
            }
            (Value::String(text), Value::String(ours)) => match self.same(name, text, ours) {
                true => Ok(()),
                false => Err(format!("{place}: expected {want}, got {got}")),
            },
            (Value::Number(_), Value::Number(_)) if MEASURED.contains(&name) => Ok(()),
            _ if want == got => Ok(()),
            _ => Err(format!("{place}: expected {want}, got {got}")),
        }
    }

    fn same(&mut self, name: &str, want: &str, got: &str) -> bool {
        if RECORDED_ON.iter().any(|day| want.starts_with(day)) {
            return got.len() == want.len() && got.parse::<jiff::Timestamp>().is_ok();
        }
        let is_uuid = |text: &str| text.len() == 36 && text.matches('-').count() == 4;
        if MADE.contains(&name) && is_uuid(want) && is_uuid(got) {
            let known = self.0.entry(want.to_owned()).or_insert_with(|| got.to_owned());
            return known == got;
        }
        without_ports(&self.ours(want)) == without_ports(got)
    }
}

/// The uuids in a text.
fn uuids(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let words =
        text.split(|c| !is_part(c)).filter_map(|word| word.get(word.len().checked_sub(36)?..));
    words.filter(|word| uuid::Uuid::try_parse(word).is_ok()).collect()
}

/// The text without the ports of this machine.
fn without_ports(text: &str) -> String {
    if !text.contains("moray client") {
        return text.to_owned();
    }
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + "HERE" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_counts_and_what_is_free() {
        let (a, b) =
            ("4f394ad7-50b6-4ee5-9300-82833a6a6d55", "1c0d0cbc-9091-4c94-9de7-243b6ec6c2d2");
        let recorded =
            json!({"uuid": a, "created_at": "2026-11-25T20:07:44.000Z", "elapsed": 0.1, "n": 1});
        let mut memory = Memory::default();
        let mut same = |uuid: &str, at: &str, n: u32| {
            let ours = json!({"uuid": uuid, "created_at": at, "elapsed": 7, "n": n});
            memory.value("body", "", &recorded, &ours).is_ok()
        };
        assert!(same(b, "2027-01-01T00:00:00.000Z", 1));
        assert!(!same(a, "2027-01-01T00:00:00.000Z", 1), "another uuid now");
        assert!(!same(b, "today", 1));
        assert!(!same(b, "2027-01-01T00:00:00.000Z", 2));
        assert_eq!(memory.ours(&format!("/jobs/{a}")), format!("/jobs/{b}"));
    }
}
