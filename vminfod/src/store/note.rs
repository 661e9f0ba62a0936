// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What filters and RFD 39's format need beyond an event's line: the VM before the event, and the index
//! of the array element that a change is about.
//!
//! Pure. Kept beside the line in the ring, so that no listener needs memory of its own.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use vm_model::VmObject;
use vm_model::diff::{Action, Change, Shown, pretty_path};
use vm_model::js::to_ascii;

/// What filters compare besides the uuid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// `state`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `brand`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<String>,
}

impl Traits {
    /// Those of an object.
    pub fn of(vm: &VmObject) -> Self {
        let text = |name: &str| vm.get(name).and_then(Value::as_str).map(str::to_owned);
        Self { state: text("state"), brand: text("brand") }
    }
}

/// The note itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The VM before the event; none before a create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Traits>,
    /// A path with indexes for each change; empty when no path has an index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl Note {
    /// The note of an event that changes `old` into `new`.
    pub fn of(old: Option<&VmObject>, new: Option<&VmObject>, changes: &[Change<'_>]) -> Self {
        let indexed = changes.iter().any(|change| change.path.contains(&None));
        let paths = match (old, new) {
            (Some(old), Some(new)) if indexed => {
                changes.iter().map(|change| dotted(change, old, new)).collect()
            }
            _ => Vec::new(),
        };
        Self { was: old.map(Traits::of), paths }
    }

    /// As it is kept.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from(to_ascii(self))
    }

    /// Back from [`Note::to_bytes`]; nothing known where there is no note.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// A change's path as RFD 39 has it: dotted, with the index of an element where the shipped format
/// has `null`. Indexes are those after the change; a removed element has the one it had.
fn dotted(change: &Change<'_>, old: &VmObject, new: &VmObject) -> String {
    let mut path = Vec::with_capacity(change.path.len());
    let (mut olds, mut news) = (None, None);
    for (at, part) in change.path.iter().enumerate() {
        let last = at + 1 == change.path.len();
        let (index_old, index_new) = match part {
            Some(key) => {
                (olds, news) = match at {
                    0 => (old.get(key), new.get(key)),
                    _ => (member(olds, key), member(news, key)),
                };
                path.push(Some(key.clone()));
                continue;
            }
            None if last => (
                position(olds, |item| Some(item) == change.old_value.and_then(Shown::value)),
                position(news, |item| Some(item) == change.new_value.and_then(Shown::value)),
            ),
            None => {
                let is_it = |item: &Value| {
                    let ident = ["mac", "path"].iter().find_map(|key| item.get(*key));
                    ident == change.ident
                };
                (position(olds, is_it), position(news, is_it))
            }
        };
        let index = match change.action {
            Action::Removed if last => index_old.or(index_new),
            _ => index_new.or(index_old),
        };
        (olds, news) = (element(olds, index_old), element(news, index_new));
        path.push(index.map(|index| index.to_string()));
    }
    pretty_path(&path)
}

fn member<'a>(value: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    match value? {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    }
}

fn element(value: Option<&Value>, index: Option<usize>) -> Option<&Value> {
    value?.as_array()?.get(index?)
}

fn position(value: Option<&Value>, is_it: impl Fn(&Value) -> bool) -> Option<usize> {
    value?.as_array()?.iter().position(is_it)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use vm_model::diff::diff;

    fn vm(value: Value) -> VmObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn paths_have_the_new_index_and_removed_elements_the_old() {
        let old = vm(json!({
            "alias": "a", "tags": {"a.b": 1},
            "nics": [{"mac": "m0", "ip": "1"}, {"mac": "m1", "ip": "2", "ips": ["x", "y"]}],
            "resolvers": ["r0", "r1"],
        }));
        let new = vm(json!({
            "alias": "b", "tags": {"a.b": 2},
            "nics": [{"mac": "m1", "ip": "3", "ips": ["y", "z"]}, {"mac": "m2"}],
            "resolvers": ["r2", "r0"],
        }));
        let note = Note::of(Some(&old), Some(&new), &diff(&old, &new));
        assert_eq!(
            note.paths,
            [
                "alias",
                "tags[a.b]",
                "nics.0",
                "nics.0.ip",
                "nics.0.ips.0",
                "nics.0.ips.1",
                "nics.1",
                "resolvers.1",
                "resolvers.0",
            ]
        );
    }

    #[test]
    fn note_round_trips() {
        let old = vm(json!({"state": "running", "brand": "lx", "x": 1}));
        let new = vm(json!({"state": "stopped", "brand": "lx", "x": 1}));
        let changes = diff(&old, &new);
        let note = Note::of(Some(&old), Some(&new), &changes);
        assert_eq!(
            note.was,
            Some(Traits { state: Some("running".into()), brand: Some("lx".into()) })
        );
        assert!(note.paths.is_empty());
        assert_eq!(Note::parse(&note.to_bytes()), note);
        assert_eq!(Note::of(None, Some(&new), &[]).was, None);
        assert_eq!(Note::parse(b""), Note::default());
    }
}
