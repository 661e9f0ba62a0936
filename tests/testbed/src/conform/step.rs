// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What one step sent against what was recorded. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

/// How a step is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Line by line, key order included.
    Lines,
    /// The last object of each zone.
    Result,
}

/// Everything known of one step once it is done.
pub(crate) struct Step<'a> {
    pub(crate) ops: &'a [Value],
    /// What the deployed daemon sent.
    pub(crate) recorded: &'a [Value],
    /// What this one sent.
    pub(crate) got: &'a [Value],
    /// How they are compared.
    pub(crate) rule: Rule,
}

impl Step<'_> {
    /// What differs, if anything.
    pub(crate) fn difference(&self) -> Option<String> {
        match self.rule {
            Rule::Lines => self.differing_line(),
            Rule::Result => self.differing_result(),
        }
    }

    fn differing_line(&self) -> Option<String> {
        let plain = |events: &[Value]| events.iter().map(plain).collect::<Vec<_>>();
        let (recorded, got) = (plain(self.recorded), plain(self.got));
        if recorded == got {
            return None;
        }
        if recorded.len() != got.len() {
            let summary = |events: &[Value]| events.iter().map(summary).collect::<Vec<_>>();
            return Some(format!(
                "{} lines recorded {:?}, {} sent {:?}",
                recorded.len(),
                summary(self.recorded),
                got.len(),
                summary(self.got)
            ));
        }
        let at = recorded.iter().zip(&got).position(|(recorded, got)| recorded != got)?;
        Some(format!("line {}: recorded {}\n  sent {}", at + 1, recorded[at], got[at]))
    }

    /// What differs in the last object of some zone.
    pub(crate) fn differing_result(&self) -> Option<String> {
        let (recorded, got) = (finals(self.recorded), finals(self.got));
        if recorded == got {
            return None;
        }
        let zones: std::collections::BTreeSet<_> = recorded.keys().chain(got.keys()).collect();
        let zone = zones.into_iter().find(|zone| recorded.get(*zone) != got.get(*zone))?;
        let show = |found: Option<&Value>| found.map_or("nothing".to_owned(), Value::to_string);
        Some(format!(
            "zone {zone}: recorded {}\n  sent {}",
            show(recorded.get(zone)),
            show(got.get(zone))
        ))
    }
}

/// The last that was said of each zone: its object, or null for a deleted one.
fn finals(events: &[Value]) -> BTreeMap<String, Value> {
    let zone = |event: &Value| event["zonename"].as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| (zone(event), event["vm"].clone())).collect()
}

/// A line without what the clock or this daemon alone puts in, as text, so that the order of keys
/// counts.
fn plain(event: &Value) -> String {
    let mut event = event.clone();
    if let Some(keys) = event.as_object_mut() {
        for key in ["date", "seq", "epoch", "lost"] {
            keys.shift_remove(key);
        }
    }
    event.to_string()
}

fn summary(event: &Value) -> String {
    let paths: Vec<&str> = event["changes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|change| change["prettyPath"].as_str())
        .collect();
    let text = |key: &str| event[key].as_str().unwrap_or("?").to_owned();
    format!("{} {} {}", text("type"), text("zonename"), paths.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step<'a>(recorded: &'a [Value], got: &'a [Value], rule: Rule) -> Step<'a> {
        Step { ops: &[], recorded, got, rule }
    }

    fn modify(zone: &str, vm: Value) -> Value {
        json!({"type": "modify", "date": "d", "zonename": zone, "uuid": zone, "vm": vm})
    }

    #[test]
    fn lines_are_compared_with_their_order_of_keys_but_without_ours() {
        let recorded = [modify("z", json!({"a": 1, "b": 2}))];
        let mut ours = recorded.clone();
        ours[0]["date"] = json!("another");
        ours[0]["seq"] = json!(7);
        assert_eq!(step(&recorded, &ours, Rule::Lines).difference(), None);
        let turned = [modify("z", json!({"b": 2, "a": 1}))];
        assert!(step(&recorded, &turned, Rule::Lines).difference().is_some());
        assert_eq!(step(&recorded, &turned, Rule::Result).difference(), None);
    }

    #[test]
    fn results_need_the_last_object_of_every_zone() {
        let recorded = [modify("z", json!({"a": 1})), modify("z", json!({"a": 2}))];
        let folded = [modify("z", json!({"a": 2}))];
        assert_eq!(step(&recorded, &folded, Rule::Result).difference(), None);
        assert!(step(&recorded, &folded, Rule::Lines).difference().is_some());
        assert!(step(&recorded, &recorded[..1], Rule::Result).difference().is_some());
        assert!(step(&recorded, &[], Rule::Result).difference().is_some());
    }
}
