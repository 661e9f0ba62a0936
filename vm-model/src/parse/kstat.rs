// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zone_misc kstats of the active zones.

use std::collections::HashMap;

use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::text::is_lower_uuid;
use super::zoneadm::ZoneRow;
use crate::js::{self, JsonError};
use crate::origin::{Origin, ParseError};

/// The kstat of a zone.
#[derive(Debug, Clone, PartialEq)]
pub struct ZoneKstat {
    /// When the zone booted, in seconds since 1970.
    pub boot_time: Option<f64>,
    /// The number of restarts of init.
    pub init_restarts: Option<Value>,
    /// The process id of init.
    pub init_pid: Option<Value>,
}

/// Returns the kstat of a VM: as deployed, the one whose zonename is the uuid.
pub fn of<'a>(kstats: &'a HashMap<String, ZoneKstat>, row: &ZoneRow) -> Option<&'a ZoneKstat> {
    kstats.get(&*row.uuid)
}

/// Parses the array. Leaves out kstats without data and those that belong to no VM; the last of
/// several with one uuid counts.
pub fn parse(bytes: &[u8]) -> Result<HashMap<String, ZoneKstat>, ParseError> {
    let mut kstats = HashMap::new();
    for element in elements(bytes)? {
        kstats.extend(entry(element)?);
    }
    Ok(kstats)
}

/// Returns what [`parse`] has for this uuid, and makes values only of elements that may be its kstat.
pub fn find(bytes: &[u8], uuid: &str) -> Result<Option<ZoneKstat>, ParseError> {
    let mut found = None;
    for element in elements(bytes)? {
        // An escape may stand for any character.
        if element.get().contains(uuid) || element.get().contains('\\') {
            let kstat = entry(element)?.filter(|(name, _)| name == uuid);
            found = kstat.map(|(_, kstat)| kstat).or(found);
        }
    }
    Ok(found)
}

fn elements(bytes: &[u8]) -> Result<Vec<&RawValue>, ParseError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let what = format!("expected UTF-8 at offset {}", e.valid_up_to());
        ParseError::content(Origin::Kstat, what)
    })?;
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => ParseError::content(Origin::Kstat, "expected a JSON array of kstats"),
        _ => ParseError::json(Origin::Kstat, JsonError::Syntax(error.to_string())),
    })
}

/// Returns the uuid and the kstat of an element, if it is a VM's.
fn entry(element: &RawValue) -> Result<Option<(String, ZoneKstat)>, ParseError> {
    let kstat =
        js::parse(element.get().as_bytes()).map_err(|e| ParseError::json(Origin::Kstat, e))?;
    Ok(kstat.get("data").and_then(Value::as_object).and_then(of_data))
}

fn of_data(data: &Map<String, Value>) -> Option<(String, ZoneKstat)> {
    let zonename = data.get("zonename")?.as_str().filter(|n| is_lower_uuid(n))?;
    let kstat = ZoneKstat {
        boot_time: data.get("boot_time").and_then(Value::as_f64),
        init_restarts: data.get("init_restarts").cloned(),
        init_pid: data.get("init_pid").cloned(),
    };
    Some((zonename.to_owned(), kstat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const U: &str = "f8428503-41e2-426e-b0f9-a5d849b545f6";

    #[test]
    fn the_last_good_kstat_of_a_uuid_counts() {
        let text = format!(
            r#"[{{"data":{{"zonename":"{U}","boot_time":1,"init_pid":5}}}},
            {{"data":{{"zonename":"{U}","init_restarts":2}}}},
            {{"error":"x"}},{{"data":{{"zonename":"global"}}}},7]"#
        );
        let kstats = parse(text.as_bytes()).unwrap();
        assert_eq!(kstats.len(), 1);
        let last = ZoneKstat { boot_time: None, init_restarts: Some(2.into()), init_pid: None };
        assert_eq!(kstats[U], last);
        assert_eq!(find(text.as_bytes(), U).unwrap(), Some(last));
    }

    #[test]
    fn finds_a_kstat_whose_uuid_is_escaped() {
        let escaped = format!(r#"[{{"data":{{"zonename":"\u0066{}","init_pid":7}}}}]"#, &U[1..]);
        let found = find(escaped.as_bytes(), U).unwrap();
        assert_eq!(found.unwrap().init_pid, Some(7.into()));
        // The uuid in another member does not count.
        let text = format!(r#"[{{"data":{{"zonename":"global","x":"{U}","init_pid":7}}}}]"#);
        assert_eq!(find(text.as_bytes(), U).unwrap(), None);
        // A text that is broken behind the kstat is an error.
        let text = format!(r#"[{{"data":{{"zonename":"{U}"}}}},{{"data":}}]"#);
        assert_eq!(find(text.as_bytes(), U).unwrap_err(), parse(text.as_bytes()).unwrap_err());
    }

    #[test]
    fn refuses_other_text_than_an_array() {
        assert_eq!(parse(b"{}").unwrap_err().to_string(), "kstat: expected a JSON array of kstats");
        assert!(parse(b"[").unwrap_err().to_string().starts_with("kstat: not JSON"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let _ = find(&bytes, U);
        }

        #[test]
        fn find_agrees_with_parse(
            elements in proptest::collection::vec(
                prop_oneof![
                    "\\PC{0,9}",
                    "[\\[\\]{}:,\"0-9a-f.eE-]{0,9}",
                    ("[\u{e9}a-c]{0,1}|f84", 0..9_u32).prop_map(|(name, pid)| {
                        let name = if name == "f84" { U } else { &*name };
                        format!(r#"{{"data":{{"zonename":"{name}","init_pid":{pid}}}}}"#)
                    }),
                ],
                0..5,
            ),
        ) {
            let text = format!("[{}]", elements.join(","));
            if let Ok(all) = parse(text.as_bytes()) {
                prop_assert_eq!(find(text.as_bytes(), U).unwrap(), all.get(U).cloned());
            }
        }
    }
}
