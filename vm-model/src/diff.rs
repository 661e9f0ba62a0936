// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Old VM object, new VM object → change records. Deployed clients match single records (`vmadm`
//! waits for them), so there is one record per leaf or array element.

use std::collections::{HashMap, HashSet, VecDeque};

use indexmap::IndexMap;
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

/// One difference between two objects, as it is sent. It has their values and no copies of them: a
/// tenant's metadata may be large.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change<'a> {
    /// The path as one text: `nics.*.ip`.
    pub pretty_path: String,
    /// The path, with `None` for an element of an array.
    pub path: Vec<Option<String>>,
    /// What happened.
    pub action: Action,
    /// The old value; `None` if it was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_value: Option<&'a Value>,
    /// The new value; `None` if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_value: Option<&'a Value>,
    /// The identity of the element: a NIC's mac, a disk's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ident: Option<&'a Value>,
}

/// The fields whose size a tenant decides: together they have so many records and bytes in one event,
/// beyond that one record each. Clients wait for single records of the others.
const CAPPED: [&str; 4] = ["customer_metadata", "internal_metadata", "tags", "routes"];
const MOST_RECORDS: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// Returns all differences between two objects, depth first: those of old keys in their order, then
/// the added keys. There are none if only the order inside arrays changed.
pub fn diff<'a>(old: &'a VmObject, new: &'a VmObject) -> Vec<Change<'a>> {
    let (mut changes, mut capped) = (Vec::new(), Out::new(MOST_RECORDS, MOST_BYTES));
    let mut objects = |key: &str, before: Option<&'a Value>, after: Option<&'a Value>| {
        let mut path = vec![Some(key.to_owned())];
        let is_capped = CAPPED.contains(&key);
        let mut free = Out::new(usize::MAX, usize::MAX);
        let out = if is_capped { &mut capped } else { &mut free };
        member(&mut path, None, before, after, out);
        if out.is_full() && is_capped {
            out.changes.clear();
            out.changes.push(change(&path, None, before, after));
        }
        changes.append(&mut out.changes);
    };
    members(old, new, &mut objects);
    changes
}

/// The differences found, up to a limit.
struct Out<'a> {
    changes: Vec<Change<'a>>,
    /// How many more there may be, and how many bytes more their values may have.
    left: Option<(usize, usize)>,
}

impl<'a> Out<'a> {
    fn new(records: usize, bytes: usize) -> Self {
        Out { changes: Vec::new(), left: Some((records, bytes)) }
    }

    fn is_full(&self) -> bool {
        self.left.is_none()
    }

    fn push(
        &mut self,
        path: &Path,
        ident: Option<&'a Value>,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
    ) {
        self.left = self.left.and_then(|(records, bytes)| {
            let size = if bytes == usize::MAX { 0 } else { size(old) + size(new) };
            Some((records.checked_sub(1)?, bytes.checked_sub(size)?))
        });
        if !self.is_full() {
            self.changes.push(change(path, ident, old, new));
        }
    }
}

/// Returns about how many bytes a value has as text.
fn size(value: Option<&Value>) -> usize {
    match value {
        Some(Value::String(text)) => text.len(),
        Some(Value::Array(items)) => items.iter().map(|item| size(Some(item)) + 1).sum(),
        Some(Value::Object(members)) => {
            members.iter().map(|(key, value)| key.len() + size(Some(value)) + 4).sum()
        }
        Some(_) => 4,
        None => 0,
    }
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

/// Passes each key whose values differ with both values, those of `old` first.
fn members<'a>(
    old: &'a VmObject,
    new: &'a VmObject,
    each: &mut impl FnMut(&str, Option<&'a Value>, Option<&'a Value>),
) {
    // The keys are nearly always the same in the same order, so try the same position first.
    let (mut beside, mut found) = (new.iter(), 0);
    for (key, before) in old {
        let after = match beside.next() {
            Some((other, after)) if other == key => Some(after),
            _ => new.get(key),
        };
        found += usize::from(after.is_some());
        if !after.is_some_and(|after| same(before, after)) {
            each(key, Some(before), after);
        }
    }
    if found < new.len() {
        let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
        added.for_each(|(key, after)| each(key, None, Some(after)));
    }
}

fn member<'a>(
    path: &mut Path,
    ident: Option<&'a Value>,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    out: &mut Out<'a>,
) {
    match (before, after) {
        (Some(before), Some(after)) => values(path, ident, before, after, out),
        _ => out.push(path, ident, before, after),
    }
}

fn objects<'a>(
    path: &mut Path,
    ident: Option<&'a Value>,
    old: &'a VmObject,
    new: &'a VmObject,
    out: &mut Out<'a>,
) {
    members(old, new, &mut |key, before, after| {
        if !out.is_full() {
            path.push(Some(key.to_owned()));
            member(path, ident, before, after, out);
            path.pop();
        }
    });
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

fn values<'a>(
    path: &mut Path,
    ident: Option<&'a Value>,
    old: &'a Value,
    new: &'a Value,
    out: &mut Out<'a>,
) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => objects(path, ident, a, b, out),
        (Value::Array(a), Value::Array(b)) => arrays(path, ident, a, b, out),
        // An array and an object are compared as two objects, as JavaScript does.
        (Value::Array(_), Value::Object(_)) | (Value::Object(_), Value::Array(_)) => {
            let (a, b) = (indexed(old), indexed(new));
            let mut keys: Vec<&String> = a.keys().collect();
            keys.extend(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                let (before, after) = (a.get(key).copied(), b.get(key).copied());
                if !before.zip(after).is_some_and(|(a, b)| same(a, b)) && !out.is_full() {
                    path.push(Some(key.clone()));
                    member(path, ident, before, after, out);
                    path.pop();
                }
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(path, ident, Some(a), Some(b)),
    }
}

/// Returns the members of an object, or the elements of an array with their indexes as keys.
fn indexed(value: &Value) -> IndexMap<String, &Value> {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        other => other
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
    }
}

/// Compares elements by their text. The order of keys in an element counts; the order of elements and
/// the number of equal ones do not.
fn arrays<'a>(
    path: &mut Path,
    ident: Option<&'a Value>,
    old: &'a [Value],
    new: &'a [Value],
    out: &mut Out<'a>,
) {
    let old_texts: Vec<String> = old.iter().map(Value::to_string).collect();
    let new_texts: Vec<String> = new.iter().map(Value::to_string).collect();
    let removed = without_twin(old, &old_texts, &new_texts);
    let mut added: Vec<Option<&'a Value>> =
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
        out.push(path, ident, Some(before), None);
    }
    for (before, after, key) in pairs {
        if let (Value::Object(a), Value::Object(b)) = (before, after) {
            objects(path, a.get(key), a, b, out);
        }
    }
    for after in added.into_iter().flatten() {
        out.push(path, ident, None, Some(after));
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

fn change<'a>(
    path: &Path,
    ident: Option<&'a Value>,
    old_value: Option<&'a Value>,
    new_value: Option<&'a Value>,
) -> Change<'a> {
    let action = match (old_value, new_value) {
        (None, _) => Action::Added,
        (_, None) => Action::Removed,
        _ => Action::Changed,
    };
    Change {
        pretty_path: pretty_path(path),
        path: path.clone(),
        action,
        old_value,
        new_value,
        ident,
    }
}

#[cfg(test)]
mod tests;
