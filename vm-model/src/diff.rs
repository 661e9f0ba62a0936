// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Old VM object, new VM object → change records. Deployed clients match single records (`vmadm`
//! waits for them), so there is one record per leaf or array element.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;
use serde_json::Value;

use crate::object::VmObject;

/// The arrays whose elements have an identity: the field and the identifying key.
const KEYED: [(&str, &str); 2] = [("disks", "path"), ("nics", "mac")];

type Path = Vec<Option<String>>;

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It was absent before.
    Added,
    /// It is absent now.
    Removed,
    /// It has another value now.
    Changed,
}

impl Action {
    /// Returns its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Action::Added => "added",
            Action::Removed => "removed",
            Action::Changed => "changed",
        }
    }
}

/// One difference between two objects, as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The path as one text: `nics.*.ip`.
    pub pretty_path: String,
    /// The path, with `None` for an element of an array.
    pub path: Vec<Option<String>>,
    /// What happened.
    pub action: Action,
    /// The old value; `None` if it was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_value: Option<Value>,
    /// The new value; `None` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_value: Option<Value>,
    /// The identity of the element: a NIC's mac, a disk's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ident: Option<Value>,
}

/// Returns all differences between two objects, depth first: those of old keys in their order, then
/// the added keys. There are none if only the order inside arrays changed.
pub fn diff(old: &VmObject, new: &VmObject) -> Vec<Change> {
    let mut out = Vec::new();
    objects(&mut Vec::new(), None, old, new, &mut out);
    out
}

/// Returns a path as one text: joined by dots, `*` for an element, names with dots or brackets in
/// brackets.
pub fn pretty_path(path: &[Option<String>]) -> String {
    let mut text = String::new();
    for (index, part) in path.iter().enumerate() {
        let part = part.as_deref().unwrap_or("*");
        if part.contains(['.', '[', ']']) {
            text.push('[');
            for c in part.chars() {
                if matches!(c, '[' | ']') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push(']');
        } else {
            if index > 0 {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

fn objects(
    path: &mut Path,
    ident: Option<&Value>,
    old: &VmObject,
    new: &VmObject,
    out: &mut Vec<Change>,
) {
    // The keys are nearly always the same in the same order, so try the same position first.
    let (mut beside, mut found) = (new.iter(), 0);
    for (key, before) in old {
        let after = match beside.next() {
            Some((other, after)) if other == key => Some(after),
            _ => new.get(key),
        };
        found += usize::from(after.is_some());
        if after.is_some_and(|after| same(before, after)) {
            continue;
        }
        path.push(Some(key.clone()));
        match after {
            None => out.push(record(path, ident, Action::Removed, Some(before), None)),
            Some(after) => values(path, ident, before, after, out),
        }
        path.pop();
    }
    if found == new.len() {
        return;
    }
    for (key, after) in new {
        if !old.contains_key(key) {
            path.push(Some(key.clone()));
            out.push(record(path, ident, Action::Added, None, Some(after)));
            path.pop();
        }
    }
}

/// Returns true if two values are equal and all their keys have the same order.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (a, b) => a == b,
    }
}

fn values(path: &mut Path, ident: Option<&Value>, old: &Value, new: &Value, out: &mut Vec<Change>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => objects(path, ident, a, b, out),
        (Value::Array(a), Value::Array(b)) => arrays(path, ident, a, b, out),
        // An array and an object are compared as two objects, as JavaScript does.
        (Value::Array(a), Value::Object(b)) => objects(path, ident, &indexed(a), b, out),
        (Value::Object(a), Value::Array(b)) => objects(path, ident, a, &indexed(b), out),
        (a, b) if a == b => {}
        (a, b) => out.push(record(path, ident, Action::Changed, Some(a), Some(b))),
    }
}

fn indexed(items: &[Value]) -> VmObject {
    items.iter().enumerate().map(|(i, item)| (i.to_string(), item.clone())).collect()
}

/// Compares elements by their text. The order of keys in an element counts; the order of elements and
/// the number of equal ones do not.
fn arrays(
    path: &mut Path,
    ident: Option<&Value>,
    old: &[Value],
    new: &[Value],
    out: &mut Vec<Change>,
) {
    let old_texts: Vec<String> = old.iter().map(Value::to_string).collect();
    let new_texts: Vec<String> = new.iter().map(Value::to_string).collect();
    let removed = without_twin(old, &old_texts, &new_texts);
    let mut added: Vec<Option<&Value>> =
        without_twin(new, &new_texts, &old_texts).into_iter().map(Some).collect();

    let mut leftovers = Vec::new();
    let mut pairs = Vec::new();
    match key_of(path) {
        None => leftovers = removed,
        Some(key) => {
            let mut twins = Twins::of(&added, key);
            for before in removed {
                let twin = twins.next(before).and_then(|at| added.get_mut(at)?.take());
                match twin {
                    Some(after) => pairs.push((before, after, key)),
                    None => leftovers.push(before),
                }
            }
        }
    }

    path.push(None);
    for before in leftovers {
        out.push(record(path, ident, Action::Removed, Some(before), None));
    }
    for (before, after, key) in pairs {
        if let (Value::Object(a), Value::Object(b)) = (before, after) {
            objects(path, a.get(key), a, b, out);
        }
    }
    for after in added.into_iter().flatten() {
        out.push(record(path, ident, Action::Added, None, Some(after)));
    }
    path.pop();
}

/// The positions of the objects in an array by identity, in their order. Objects without one share
/// `None`.
struct Twins {
    key: &'static str,
    places: HashMap<Option<String>, VecDeque<usize>>,
}

impl Twins {
    fn of(items: &[Option<&Value>], key: &'static str) -> Self {
        let mut twins = Twins { key, places: HashMap::new() };
        for (at, item) in items.iter().enumerate() {
            if let Some(Value::Object(object)) = item {
                let identity = object.get(key).map(Value::to_string);
                twins.places.entry(identity).or_default().push_back(at);
            }
        }
        twins
    }

    /// Returns the next position with the identity of `item`. Each position is returned once.
    fn next(&mut self, item: &Value) -> Option<usize> {
        let identity = item.as_object()?.get(self.key).map(Value::to_string);
        self.places.get_mut(&identity)?.pop_front()
    }
}

/// Returns the items whose text is not among the others.
fn without_twin<'a>(items: &'a [Value], texts: &[String], others: &[String]) -> Vec<&'a Value> {
    let others: HashSet<&str> = others.iter().map(String::as_str).collect();
    items
        .iter()
        .zip(texts)
        .filter(|(_, text)| !others.contains(text.as_str()))
        .map(|(item, _)| item)
        .collect()
}

/// Returns the identifying key of the elements of the array at this path.
fn key_of(path: &Path) -> Option<&'static str> {
    let [Some(name)] = path.as_slice() else { return None };
    KEYED.iter().find(|(array, _)| array == name).map(|(_, key)| *key)
}

fn record(
    path: &Path,
    ident: Option<&Value>,
    action: Action,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Change {
    Change {
        pretty_path: pretty_path(path),
        path: path.clone(),
        action,
        old_value: old.cloned(),
        new_value: new.cloned(),
        ident: ident.cloned(),
    }
}

#[cfg(test)]
mod tests;
