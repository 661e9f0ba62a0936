// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Decides whether a deployed client takes an event or a change record for the one it waits for.
//! Pure.
//!
//! A pattern is a subset, but an array in it is compared element by element as text, so that the
//! order of an element's keys counts.

use serde_json::Value;

/// Returns true if the pattern is a part of the value.
pub fn is_subset(pattern: &Value, value: Option<&Value>) -> bool {
    match (pattern, value) {
        (_, None) => false,
        (Value::Object(wanted), Some(value)) => {
            let Value::Object(found) = value else { return false };
            wanted.iter().all(|(key, part)| is_subset(part, found.get(key)))
        }
        (Value::Array(wanted), Some(Value::Array(found))) => {
            let texts: Vec<String> = found.iter().map(Value::to_string).collect();
            wanted.iter().all(|element| texts.contains(&element.to_string()))
        }
        (wanted, Some(found)) => wanted == found,
    }
}

/// Is this record the wanted change? `null` in the wanted path is any element.
pub fn is_change(wanted: &Value, record: &Value) -> bool {
    let (Some(want), Some(have)) = (wanted["path"].as_array(), record["path"].as_array()) else {
        return false;
    };
    let same = |(a, b): (&Value, &Value)| a.is_null() || a == b;
    want.len() == have.len()
        && want.iter().zip(have).all(same)
        && wanted.as_object().is_some_and(|keys| {
            let others = keys.iter().filter(|(key, _)| *key != "path");
            others.clone().all(|(key, part)| is_subset(part, record.get(key)))
        })
}

/// The changes that are still waited for. An array among them holds alternatives.
#[derive(Clone, Debug)]
pub struct Wanted(Vec<Value>);

impl Wanted {
    /// Changes, in any order.
    pub fn new(changes: &Value) -> Self {
        Self(changes.as_array().cloned().unwrap_or_default())
    }

    /// Takes the records of one event; each satisfies at most one wish.
    pub fn take(&mut self, records: &[Value]) {
        for record in records {
            let meets = |wish: &Value| match wish {
                Value::Array(any) => any.iter().any(|one| is_change(one, record)),
                one => is_change(one, record),
            };
            if let Some(at) = self.0.iter().position(meets) {
                self.0.remove(at);
            }
        }
    }

    /// Returns true if everything came.
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subsets_are_strict_about_types_and_the_text_of_elements() {
        let event = json!({"type": "modify", "vm": {"n": 1, "tags": {"a": 1},
            "filesystems": [{"source": "/s", "target": "/t"}]}});
        let fits = |pattern| is_subset(&pattern, Some(&event));
        assert!(fits(json!({})) && fits(json!({"vm": {"n": 1, "tags": {}}})));
        assert!(!fits(json!({"vm": {"n": "1"}})) && !fits(json!({"vm": {"none": {}}})));
        assert!(fits(json!({"vm": {"filesystems": [{"source": "/s", "target": "/t"}]}})));
        assert!(!fits(json!({"vm": {"filesystems": [{"target": "/t", "source": "/s"}]}})));
        assert!(!fits(json!({"vm": {"filesystems": [{"source": "/s"}]}})));
    }

    #[test]
    fn a_whole_array_is_not_its_element() {
        let wanted = json!({"path": ["nics", null], "action": "added", "newValue": {"mac": "a"}});
        let element =
            json!({"path": ["nics", null], "action": "added", "newValue": {"mac": "a", "ip": "b"}});
        let whole = json!({"path": ["nics"], "action": "changed", "newValue": [{"mac": "a"}]});
        assert!(is_change(&wanted, &element) && !is_change(&wanted, &whole));
    }

    #[test]
    fn one_record_meets_one_wish() {
        let record = json!({"path": ["state"], "action": "changed", "newValue": "running"});
        let mut wanted =
            Wanted::new(&json!([{"path": ["state"]}, [{"path": ["x"]}, {"path": ["state"]}]]));
        wanted.take(std::slice::from_ref(&record));
        assert!(!wanted.is_done());
        wanted.take(&[record]);
        assert!(wanted.is_done() && Wanted::new(&json!([])).is_done());
    }
}
