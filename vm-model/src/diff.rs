// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Old VM object, new VM object → change records. Deployed clients match single records (`vmadm`
//! waits for them), so there is one record per leaf or array element.

mod change;

use std::collections::{HashMap, HashSet, VecDeque};

use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::change::{Action, Change, Shown, pretty_path};
use crate::object::VmObject;
use crate::outline::Outline;
use crate::parse::config_json::{self, FIELDS};

/// The arrays whose elements have an identity: the field and the identifying key.
const KEYED: [(&str, &str); 2] = [("disks", "path"), ("nics", "mac")];

type Path = Vec<Option<String>>;

/// The fields whose size a tenant decides have together so many records, and members that differ of so
/// many bytes, in one event; beyond that one record each. Clients wait for single records of the others.
const MOST_RECORDS: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// Returns all differences between two objects, depth first: those of old keys in their order, then
/// the added keys. There are none if only the order inside arrays changed.
pub fn diff<'a>(old: &'a VmObject, new: &'a VmObject) -> Vec<Change<'a>> {
    compare(old, new, |_| [None, None])
}

/// Two objects, with the values of what differs in their configuration files.
#[derive(Debug)]
pub struct Differing {
    /// The old object.
    pub old: Outline,
    /// The new object.
    pub new: Outline,
    /// The fields of which too much differs.
    too_large: Vec<&'static str>,
}

impl Differing {
    /// Compares the texts, and makes values of the members that differ.
    pub fn of(mut old: Outline, mut new: Outline) -> Self {
        let (mut too_large, mut bytes_left) = (Vec::new(), MOST_BYTES);
        for field in FIELDS {
            let texts = match (old.config.text(field), new.config.text(field)) {
                (before, after) if before == after => continue,
                (Some(before), Some(after)) => config_json::differing(before, after),
                (before, after) => [before, after].map(|text| text.unwrap_or_default().to_owned()),
            };
            match bytes_left.checked_sub(texts.iter().map(String::len).sum()) {
                Some(left) => bytes_left = left,
                None => {
                    too_large.push(field);
                    continue;
                }
            }
            for (outline, text) in [&mut old, &mut new].into_iter().zip(texts) {
                if let Some(value) = outline.fields.get_mut(field) {
                    *value = config_json::value(&text);
                }
            }
        }
        Differing { old, new, too_large }
    }

    /// Returns all differences, as [`diff`] does.
    pub fn changes(&self) -> Vec<Change<'_>> {
        let Differing { old, new, too_large } = self;
        let texts = |field: &str| [old.config.raw(field), new.config.raw(field)];
        let mut changes = compare(&old.fields, &new.fields, texts);
        changes.extend(too_large.iter().map(|field| {
            let [before, after] = texts(field).map(|text| text.map(Shown::Text));
            Change::new(&[Some((*field).to_owned())], None, before, after)
        }));
        changes
    }
}

/// Returns all differences. `texts` returns the old and new text of a field of which the objects have
/// only what differs.
fn compare<'a>(
    old: &'a VmObject,
    new: &'a VmObject,
    texts: impl Fn(&str) -> [Option<&'a RawValue>; 2],
) -> Vec<Change<'a>> {
    let (mut changes, mut capped) = (Vec::new(), Out::new(MOST_RECORDS));
    let mut objects = |key: &str, before: Option<&'a Value>, after: Option<&'a Value>| {
        let mut path = vec![Some(key.to_owned())];
        let is_capped = FIELDS.contains(&key);
        let mut free = Out::new(usize::MAX);
        let out = if is_capped { &mut capped } else { &mut free };
        member(&mut path, None, before, after, out);
        if out.is_full() && is_capped {
            let [old, new] = texts(key).map(|text| text.map(Shown::Text));
            let (before, after) = (before.map(Shown::Value), after.map(Shown::Value));
            out.changes.clear();
            out.changes.push(Change::new(&path, None, old.or(before), new.or(after)));
        }
        changes.append(&mut out.changes);
    };
    members(old, new, &mut objects);
    changes
}

/// The differences found, up to a limit.
struct Out<'a> {
    changes: Vec<Change<'a>>,
    /// How many more there may be; `None` if there were more.
    left: Option<usize>,
}

impl<'a> Out<'a> {
    fn new(records: usize) -> Self {
        Out { changes: Vec::new(), left: Some(records) }
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
        self.left = self.left.and_then(|left| left.checked_sub(1));
        if !self.is_full() {
            self.changes.push(Change::new(
                path,
                ident,
                old.map(Shown::Value),
                new.map(Shown::Value),
            ));
        }
    }
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

#[cfg(test)]
mod tests;
