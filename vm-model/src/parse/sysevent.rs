// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lines that the platform's `sysevent` helper prints.

use serde_json::Value;

use super::zfs_event::{self, DatasetEvent};

/// A sysevent about one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneEvent {
    /// The zone's name.
    pub name: String,
    /// The state that the event names. A VM's state comes from a reading, not from here.
    pub newstate: String,
    /// The zone's id, if the event has one.
    pub zoneid: Option<i64>,
}

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The helper prints all events from here on.
    Ready,
    /// The state of a zone changed.
    Zone(ZoneEvent),
    Datasets(Vec<DatasetEvent>),
    Other,
}

/// The line is not one that `sysevent` prints.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a line of sysevent: {0}")]
pub struct Garbage(String);

/// Parses a line of either channel.
pub fn parse(line: &[u8]) -> Result<Line, Garbage> {
    let text = String::from_utf8_lossy(line);
    let event: Value = serde_json::from_str(&text).map_err(|error| Garbage(error.to_string()))?;
    let field = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
    match field("type") {
        "ready" => return Ok(Line::Ready),
        "event" => {}
        other => return Err(Garbage(format!("type {other:?}, expected ready or event"))),
    }
    let Some(data) = event.get("data").and_then(Value::as_object) else {
        return Ok(Line::Other);
    };
    match (field("class"), field("subclass")) {
        ("status", _) | ("init", "restart") => {
            let zone = data.get("zonename").and_then(Value::as_str).filter(|name| !name.is_empty());
            let newstate = data.get("newstate").and_then(Value::as_str).unwrap_or_default();
            let zoneid = data.get("zoneid").and_then(Value::as_i64).filter(|id| *id > 0);
            Ok(zone.map_or(Line::Other, |name| {
                let (name, newstate) = (name.to_owned(), newstate.to_owned());
                Line::Zone(ZoneEvent { name, newstate, zoneid })
            }))
        }
        ("EC_zfs", "ESC_ZFS_history_event") => Ok(Line::Datasets(zfs_event::events(data))),
        _ => Ok(Line::Other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(value: Value) -> Result<Line, Garbage> {
        parse(value.to_string().as_bytes())
    }

    fn zone(name: &str, newstate: &str, zoneid: Option<i64>) -> Line {
        Line::Zone(ZoneEvent { name: name.into(), newstate: newstate.into(), zoneid })
    }

    #[test]
    fn zone_lines() {
        let data = json!({"zonename": "z", "newstate": "running", "zoneid": 7, "when": 1_767_607_200_178_431_227_u64});
        let gone = json!({"zonename": "z", "newstate": "", "zoneid": -1});
        for (class, subclass, data, found) in [
            ("status", "change", &data, zone("z", "running", Some(7))),
            ("status", "other", &data, zone("z", "running", Some(7))),
            ("init", "restart", &json!({"zonename": "z", "restarts": 2}), zone("z", "", None)),
            ("status", "change", &gone, zone("z", "", None)),
            ("init", "other", &data, Line::Other),
            ("else", "change", &data, Line::Other),
            ("", "", &data, Line::Other),
            ("status", "change", &json!({}), Line::Other),
            ("status", "change", &json!([1]), Line::Other),
        ] {
            let event = json!({"date": "d", "type": "event", "class": class, "subclass": subclass, "data": data});
            assert_eq!(line(event), Ok(found), "{class} {subclass} {data}");
        }
    }

    #[test]
    fn events_without_data_and_ready() {
        let ping = json!({"type": "event", "class": "status", "subclass": "ping"});
        assert_eq!(line(ping), Ok(Line::Other));
        assert_eq!(line(json!({"date": "d", "type": "ready"})), Ok(Line::Ready));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_crash() {
        for text in ["", "{", "null", "[]", "{}", r#"{"type":"other"}"#, "ready", "\u{0}"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
        // A character cut in half spoils its own name only.
        let cut =
            b"{\"type\":\"event\",\"class\":\"status\",\"data\":{\"zonename\":\"z\xe2\x82\"}}";
        assert!(matches!(parse(cut), Ok(Line::Zone(_))));
    }
}
