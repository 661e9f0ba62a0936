// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Formats one line of `/events` as text or JSON. Pure.

use daemon::cli::screen::visible;
use serde_json::{Map, Value};

use super::value::{compact, lone_argument, units};
use vm_model::js as json;

/// Longest alias that is not shortened, in UTF-16 units.
const ALIAS: usize = 30;

/// The program whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `vminfo events`; its JSON has `ready.vms` as received: JSON in a string.
    Vminfo,
    /// `vmadm events`; its JSON has `ready.vms` as an object by zone name.
    Vmadm,
    /// `vminfod events`, as in RFD 39: no alias, null for the missing side, `ready.vms` as a list.
    Vminfod,
}

/// Why a line of the stream cannot be printed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventFault {
    /// It is not an event.
    #[error("not a line of events: {0}")]
    BadLine(String),
    /// The requested VM does not exist.
    #[error("VM {0} not found")]
    NoSuchVm(String),
}

/// Prints events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printer {
    /// Whose output it is.
    pub tool: Program,
    /// Whole dates and zone names; else times, and the first part of UUIDs.
    pub full: bool,
    pub json: bool,
    /// Print the first line.
    pub ready: bool,
    /// Only of this VM.
    pub only: Option<String>,
}

impl Printer {
    /// The text for one line of the stream; empty if it is not shown.
    pub fn line(&self, line: &[u8]) -> Result<String, EventFault> {
        let bad = |reason: &str| EventFault::BadLine(reason.to_owned());
        let value = json::parse(line).map_err(|error| EventFault::BadLine(error.to_string()))?;
        let Value::Object(mut event) = value else { return Err(bad("no object")) };
        let date = event.get("date").and_then(Value::as_str).and_then(date);
        let date = date.ok_or_else(|| bad("no date"))?;
        event.insert("date".to_owned(), date.clone().into());
        if text(&event, "type") == "ready" {
            return self.first(event, &date);
        }
        if self.only.as_ref().is_some_and(|only| text(&event, "zonename") != only) {
            return Ok(String::new());
        }
        Ok(match self.json {
            true => self.json_line(&event.into()),
            false => self.changes(&event, &date),
        })
    }

    fn first(&self, mut event: Map<String, Value>, date: &str) -> Result<String, EventFault> {
        if let Some(only) = &self.only
            && !vms(&event)?.iter().any(|vm| text(vm, "zonename") == only)
        {
            return Err(EventFault::NoSuchVm(only.clone()));
        }
        if !self.ready {
            return Ok(String::new());
        }
        if !self.json {
            let uuid = match self.is_shipped() && self.full {
                true => format!(" (uuid {})", text(&event, "uuid")),
                false => String::new(),
            };
            return Ok(format!("[{}] ready{uuid}\n", self.when(date)));
        }
        let list = match self.tool {
            Program::Vminfo => return Ok(self.json_line(&event.into())),
            Program::Vmadm => {
                let named = |vm: Map<String, Value>| (text(&vm, "zonename").to_owned(), vm.into());
                Value::Object(vms(&event)?.into_iter().map(named).collect())
            }
            Program::Vminfod => vms(&event)?.into_iter().collect(),
        };
        event.insert("vms".to_owned(), list);
        Ok(self.json_line(&event.into()))
    }

    fn is_shipped(&self) -> bool {
        self.tool != Program::Vminfod
    }

    /// The date, or the time alone.
    fn when<'a>(&self, date: &'a str) -> &'a str {
        if self.full { date } else { date.split_once('T').map_or(date, |(_, time)| time) }
    }

    fn json_line(&self, event: &Value) -> String {
        let line = compact(event);
        (if self.is_shipped() { lone_argument(&line) } else { line }) + "\n"
    }

    fn changes(&self, event: &Map<String, Value>, date: &str) -> String {
        let (kind, zone) = (text(event, "type"), visible(text(event, "zonename")));
        let zone = if self.full { &*zone } else { zone.split('-').next().unwrap_or_default() };
        let (alias, missing) = match self.is_shipped() {
            true => (visible(&alias(event)) + " ", "undefined"),
            false => (String::new(), "null"),
        };
        let head = format!("[{}] {zone} {alias}{kind}", self.when(date));
        let Some(Value::Array(changes)) = event.get("changes") else { return head + "\n" };
        let side = |change: &Value, key: &str| {
            let text = change.get(key).map_or_else(|| missing.to_owned(), compact);
            if self.is_shipped() { text } else { visible(&text) }
        };
        changes
            .iter()
            .map(|change| {
                let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
                // A tenant's key must not forge a line, nor its value drive a terminal.
                let (path, action) = (visible(text("prettyPath")), text("action"));
                let (old, new) = (side(change, "oldValue"), side(change, "newValue"));
                format!("{head}: {path} {action} :: {old} -> {new}\n")
            })
            .collect()
    }
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The VMs of the first line, which are JSON in a string.
fn vms(event: &Map<String, Value>) -> Result<Vec<Map<String, Value>>, EventFault> {
    let bad = || EventFault::BadLine("ready without its VMs".to_owned());
    let list = match event.get("vms") {
        Some(Value::String(text)) => json::parse(text.as_bytes()).map_err(|_| bad())?,
        Some(other) => other.clone(),
        None => return Err(bad()),
    };
    serde_json::from_value(list).map_err(|_| bad())
}

/// Formats a date: ISO 8601, UTC, milliseconds.
fn date(text: &str) -> Option<String> {
    let at: jiff::Timestamp = text.parse().ok()?;
    json::iso(at.as_millisecond() as f64)
}

fn alias(event: &Map<String, Value>) -> String {
    let alias = event.get("vm").and_then(|vm| vm.get("alias")).and_then(Value::as_str);
    match alias.unwrap_or_default() {
        "" => "-".to_owned(),
        alias if units(alias) > ALIAS => {
            let start: Vec<u16> = alias.encode_utf16().take(ALIAS - 3).collect();
            String::from_utf16_lossy(&start) + "..."
        }
        alias => alias.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFY: &str = r#"{"type":"modify","date":"2026-01-05T10:00:02Z","zonename":"0a-b","uuid":"0a-b","vm":{"alias":"web"},"changes":[{"prettyPath":"quota","path":["quota"],"action":"added","newValue":10},{"prettyPath":"tags[a.b]","path":["tags","a.b"],"action":"removed","oldValue":"\u001b\u009b"}]}"#;

    fn printer(tool: Program, full: bool) -> Printer {
        Printer { tool, full, json: false, ready: true, only: None }
    }

    #[test]
    fn styles() {
        for (printer, lines) in [
            (
                printer(Program::Vminfod, true),
                "[2026-01-05T10:00:02.000Z] 0a-b modify: quota added :: null -> 10\n\
                 [2026-01-05T10:00:02.000Z] 0a-b modify: tags[a.b] removed :: \"\\u001b\\u009b\" -> null\n",
            ),
            (
                printer(Program::Vminfod, false),
                "[10:00:02.000Z] 0a modify: quota added :: null -> 10\n\
                 [10:00:02.000Z] 0a modify: tags[a.b] removed :: \"\\u001b\\u009b\" -> null\n",
            ),
            (
                printer(Program::Vmadm, false),
                "[10:00:02.000Z] 0a web modify: quota added :: undefined -> 10\n\
                 [10:00:02.000Z] 0a web modify: tags[a.b] removed :: \"\\u001b\u{9b}\" -> undefined\n",
            ),
        ] {
            assert_eq!(printer.line(MODIFY.as_bytes()).unwrap(), lines);
        }
    }

    #[test]
    fn a_key_or_an_alias_forges_no_line() {
        let line = MODIFY.replace("\"web\"", r#""web\n[x""#).replace("tags[a.b]", r"tags.a\nb");
        let text = printer(Program::Vminfo, true).line(line.as_bytes()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"web\u000a[x") && text.contains(r"tags.a\u000ab"), "{text}");
    }

    #[test]
    fn one_vm_only() {
        let ready = r#"{"type":"ready","date":"2026-01-05T10:00:00.000Z","uuid":"l","vms":"[{\"zonename\":\"0a-b\",\"uuid\":\"0a-b\"}]"}"#;
        let mut printer = printer(Program::Vminfod, true);
        printer.only = Some("0a-b".to_owned());
        assert_eq!(printer.line(ready.as_bytes()).unwrap(), "[2026-01-05T10:00:00.000Z] ready\n");
        assert!(!printer.line(MODIFY.as_bytes()).unwrap().is_empty());
        printer.only = Some("other".to_owned());
        assert_eq!(printer.line(MODIFY.as_bytes()).unwrap(), "");
        assert_eq!(printer.line(ready.as_bytes()).unwrap_err().to_string(), "VM other not found");
        assert!(printer.line(b"{\"type\":\"x\"}").is_err());
        assert!(printer.line(b"oh").is_err());
    }

    #[test]
    fn long_aliases() {
        let event = |alias: &str| {
            let event = serde_json::json!({ "vm": { "alias": alias } });
            super::alias(event.as_object().unwrap())
        };
        assert_eq!(event(&"a".repeat(30)), "a".repeat(30));
        assert_eq!(event(&"a".repeat(31)), "a".repeat(27) + "...");
        assert_eq!(event(""), "-");
    }
}
