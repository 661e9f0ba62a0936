// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers are the same, given what differs from run to run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::conform::reply::Response;
use crate::conform::transcript::{Answered, Asked};

/// What a replay has learned about the values that differ from run to run.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Recorded tag to ours.
    tags: HashMap<String, String>,
    /// Recorded generated address to ours.
    macs: HashMap<String, String>,
    /// Addresses whose record depends on who won a race.
    pub(super) raced: BTreeSet<String>,
    /// The tag of our answer to each exchange.
    pub(super) etags: HashMap<String, (String, String)>,
}

fn is_tag(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == 8
        && (text.bytes().all(hex)
            || text.strip_prefix('u').is_some_and(|rest| rest.bytes().all(lower)))
}

fn is_iso(text: &str) -> bool {
    text.len() == 24 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

/// The text with every quoted tag and server address replaced by a stand-in; the tags apart.
fn strip(text: &str) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut tags = Vec::new();
    for part in text.split_inclusive(['\'', '"']) {
        let word = part.trim_end_matches(['\'', '"']);
        if is_tag(word) {
            tags.push(word.to_owned());
            out.push_str("TAG");
        } else if word.starts_with("127.0.0.1:") {
            out.push_str("ADDRESS");
        } else {
            out.push_str(word);
        }
        out.push_str(part.get(word.len()..).unwrap_or_default());
    }
    (out, tags)
}

impl Memory {
    /// Ours must stand for the recorded tag, always the same one.
    fn tag(&mut self, recorded: &str, ours: &str) -> Result<(), String> {
        if !is_tag(ours) {
            return Err(format!("a tag like {recorded}, got {ours:?}"));
        }
        match self.tags.get(recorded) {
            Some(known) if known != ours => {
                Err(format!("the record unchanged (tag {known} as before), got tag {ours}"))
            }
            Some(_) => Ok(()),
            None if self.tags.values().any(|known| known == ours) => Err(format!(
                "a record changed since (tag {recorded} is new), got the old tag {ours}"
            )),
            None => {
                self.tags.insert(recorded.to_owned(), ours.to_owned());
                Ok(())
            }
        }
    }

    fn message(&mut self, recorded: &str, ours: &str) -> Result<(), String> {
        let ((want, want_tags), (have, have_tags)) = (strip(recorded), strip(ours));
        if want != have || want_tags.len() != have_tags.len() {
            return Err(format!("{recorded:?}, got {ours:?}"));
        }
        for (want, have) in want_tags.iter().zip(&have_tags) {
            // A tag the request itself brought along is the same in both.
            if want != have {
                self.tag(want, have)?;
            }
        }
        Ok(())
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
        match (want.header("etag"), got.header("etag")) {
            (None, None) => {}
            (Some(recorded), Some(ours)) if self.is_raced(asked, want) => {
                if !is_tag(ours) {
                    return Err(format!("etag: expected one like {recorded}, got {ours:?}"));
                }
                self.tags.insert(recorded.to_owned(), ours.to_owned());
            }
            (Some(recorded), Some(ours)) => {
                self.tag(recorded, ours).map_err(|error| format!("etag: expected {error}"))?;
            }
            (recorded, ours) => return Err(format!("etag: expected {recorded:?}, got {ours:?}")),
        }
        if let Some(text) = &want.body_text {
            let ours = String::from_utf8_lossy(&got.body);
            if ours != text.as_str() {
                return Err(format!("body: expected {text:?}, got {ours:?}"));
            }
            return self.length(asked, want, got);
        }
        match (&want.body, got.json()) {
            (None | Some(Value::Null), None) if got.body.is_empty() => {}
            (Some(body), Some(ours)) => {
                if asked.method == "POST" {
                    self.generated(asked, body, &ours);
                }
                self.value("body", body, &ours)?;
            }
            (body, _) => {
                let ours = String::from_utf8_lossy(&got.body);
                let body = body.as_ref().map(Value::to_string).unwrap_or_default();
                return Err(format!("body: expected {body}, got {ours:?}"));
            }
        }
        self.length(asked, want, got)
    }

    fn is_raced(&self, asked: &Asked, want: &Answered) -> bool {
        let mac = want.body.as_ref().and_then(|body| body["mac"].as_str());
        self.raced.iter().any(|raced| asked.path.ends_with(raced.as_str()) || mac == Some(raced))
    }

    /// The length follows the body; where nothing in it varies in length it is the recorded one.
    fn length(&self, asked: &Asked, want: &Answered, got: &Response) -> Result<(), String> {
        let ours = got.header("content-length");
        if asked.method != "HEAD" && ours.is_some_and(|n| n != got.body.len().to_string()) {
            return Err(format!("content-length: expected {}, got {ours:?}", got.body.len()));
        }
        let text = want.body.as_ref().map(Value::to_string).unwrap_or_default();
        let varies = text.contains("127.0.0.1:") || text.contains("sdc_overlay/");
        if varies
            || self
                .raced
                .iter()
                .any(|mac| text.contains(mac.as_str()) || asked.path.contains(mac.as_str()))
        {
            return Ok(());
        }
        match (want.header("content-length"), ours) {
            (Some(recorded), Some(ours)) if recorded == ours => Ok(()),
            (None, _) => Ok(()),
            (recorded, ours) => Err(format!("content-length: expected {recorded:?}, got {ours:?}")),
        }
    }

    /// Learns the address the server made up.
    fn generated(&mut self, asked: &Asked, want: &Value, got: &Value) {
        let given = asked.body.as_ref().is_some_and(|body| body.get("mac").is_some())
            || asked.query.contains("mac=");
        let raw = asked.body_raw.as_ref().is_some_and(|raw| raw.contains("mac"));
        if given || raw {
            return;
        }
        if let (Some(recorded), Some(ours)) = (want["mac"].as_str(), got["mac"].as_str())
            && ours.starts_with("90:b8:d0:")
        {
            self.macs.insert(recorded.to_owned(), ours.to_owned());
        }
    }

    fn value(&mut self, place: &str, want: &Value, got: &Value) -> Result<(), String> {
        match (want, got) {
            (Value::Array(want), Value::Array(got)) => self.list(place, want, got),
            (Value::Object(want), Value::Object(got)) => self.object(place, want, got),
            _ if want == got => Ok(()),
            _ => Err(format!("{place}: expected {want}, got {got}")),
        }
    }

    fn list(&mut self, place: &str, want: &[Value], got: &[Value]) -> Result<(), String> {
        let is_nic = |value: &Value| value["mac"].is_string();
        if want.is_empty() || !want.iter().all(is_nic) {
            if want.len() != got.len() {
                return Err(format!("{place}: expected {} entries, got {}", want.len(), got.len()));
            }
            for (at, (want, got)) in want.iter().zip(got).enumerate() {
                self.value(&format!("{place}[{at}]"), want, got)?;
            }
            return Ok(());
        }
        let ours: BTreeMap<&str, &Value> =
            got.iter().filter_map(|nic| Some((nic["mac"].as_str()?, nic))).collect();
        let recorded: Vec<(String, &Value)> = want
            .iter()
            .filter_map(|nic| {
                let mac = nic["mac"].as_str()?;
                Some((self.macs.get(mac).cloned().unwrap_or_else(|| mac.to_owned()), nic))
            })
            .collect();
        let expected: BTreeSet<&str> = recorded.iter().map(|(mac, _)| mac.as_str()).collect();
        if got.len() != want.len() || !ours.keys().copied().eq(expected.iter().copied()) {
            let have: Vec<&str> = ours.keys().copied().collect();
            return Err(format!("{place}: expected NICs {expected:?}, got {have:?}"));
        }
        for (mac, want) in &recorded {
            if let Some(got) = ours.get(mac.as_str()) {
                self.value(&format!("{place}[{mac}]"), want, got)?;
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        place: &str,
        want: &Map<String, Value>,
        got: &Map<String, Value>,
    ) -> Result<(), String> {
        let raced =
            want.get("mac").and_then(Value::as_str).is_some_and(|mac| self.raced.contains(mac));
        for (name, want) in want {
            let place = format!("{place}.{name}");
            let Some(got) = got.get(name) else {
                return Err(format!("{place}: expected {want}, got nothing"));
            };
            match (name.as_str(), want.as_str(), got.as_str()) {
                ("created_timestamp" | "modified_timestamp", Some(_), ours) => {
                    if !ours.is_some_and(is_iso) {
                        return Err(format!("{place}: expected a time stamp, got {got}"));
                    }
                }
                ("state" | "ip", ..) if raced => {}
                ("mac", Some(recorded), Some(ours))
                    if self.macs.get(recorded).is_some_and(|m| m == ours) => {}
                ("nic_tag", Some(recorded), Some(ours)) if recorded.starts_with("sdc_overlay/") => {
                    let number =
                        ours.strip_prefix("sdc_overlay/").and_then(|n| n.parse::<u32>().ok());
                    if number.is_none() {
                        return Err(format!("{place}: expected one like {recorded}, got {ours}"));
                    }
                }
                ("message", Some(recorded), Some(ours)) => {
                    self.message(recorded, ours)
                        .map_err(|error| format!("{place}: expected {error}"))?;
                }
                _ => self.value(&place, want, got)?,
            }
        }
        if let Some(extra) = got.keys().find(|name| !want.contains_key(*name)) {
            return Err(format!(
                "{place}: expected no {extra}, got {}",
                got.get(extra).unwrap_or(&Value::Null)
            ));
        }
        let equal = |map: &Map<String, Value>| {
            map.get("created_timestamp") == map.get("modified_timestamp")
        };
        if want.contains_key("created_timestamp") && equal(want) != equal(got) && !raced {
            let word = if equal(want) { "equal" } else { "different" };
            return Err(format!("{place}: expected {word} time stamps"));
        }
        Ok(())
    }
}
