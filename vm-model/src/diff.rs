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
    let (mut changes, mut left_of_capped) = (Vec::new(), Some(MOST_RECORDS));
    members(old, new, |key, before, after| {
        let is_capped = FIELDS.contains(&key);
        let left = if is_capped { left_of_capped } else { Some(usize::MAX) };
        let path = vec![Some(key.to_owned())];
        let mut walk = Walk { path, ident: None, changes: Vec::new(), left };
        walk.member(before, after);
        if is_capped {
            left_of_capped = walk.left;
        }
        if walk.is_full() {
            let [old, new] = texts(key).map(|text| text.map(Shown::Text));
            let (before, after) = (before.map(Shown::Value), after.map(Shown::Value));
            walk.changes = vec![Change::new(&walk.path, None, old.or(before), new.or(after))];
        }
        changes.append(&mut walk.changes);
    });
    changes
}

/// Passes each key whose values differ with both values, those of `old` first.
fn members<'a>(
    old: &'a VmObject,
    new: &'a VmObject,
    mut each: impl FnMut(&str, Side<'a>, Side<'a>),
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

/// The value of one of the objects, if it has one.
type Side<'a> = Option<&'a Value>;

/// The walk through a field of both objects.
struct Walk<'a> {
    path: Path,
    /// The identity of the element that it is in.
    ident: Side<'a>,
    /// The differences found, up to a limit.
    changes: Vec<Change<'a>>,
    /// How many more there may be; `None` if there were more.
    left: Option<usize>,
}

impl<'a> Walk<'a> {
    fn is_full(&self) -> bool {
        self.left.is_none()
    }

    fn push(&mut self, old: Side<'a>, new: Side<'a>) {
        self.left = self.left.and_then(|left| left.checked_sub(1));
        if !self.is_full() {
            let (old, new) = (old.map(Shown::Value), new.map(Shown::Value));
            self.changes.push(Change::new(&self.path, self.ident, old, new));
        }
    }

    /// Compares the members of this key.
    fn below(&mut self, key: &str, before: Side<'a>, after: Side<'a>) {
        if !self.is_full() {
            self.path.push(Some(key.to_owned()));
            self.member(before, after);
            self.path.pop();
        }
    }

    fn member(&mut self, before: Side<'a>, after: Side<'a>) {
        match (before, after) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => self.objects(a, b),
            (Some(Value::Array(a)), Some(Value::Array(b))) => self.arrays(a, b),
            // An array and an object are compared as two objects, as JavaScript does.
            (Some(old @ Value::Array(_)), Some(new @ Value::Object(_)))
            | (Some(old @ Value::Object(_)), Some(new @ Value::Array(_))) => {
                let (a, b) = (indexed(old), indexed(new));
                for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                    let (before, after) = (a.get(key).copied(), b.get(key).copied());
                    if !before.zip(after).is_some_and(|(a, b)| same(a, b)) {
                        self.below(key, before, after);
                    }
                }
            }
            (before, after) if before == after => {}
            (before, after) => self.push(before, after),
        }
    }

    fn objects(&mut self, old: &'a VmObject, new: &'a VmObject) {
        members(old, new, |key, before, after| self.below(key, before, after));
    }

    /// Compares elements by their text. The order of keys in an element counts; the order of elements
    /// and the number of equal ones do not.
    fn arrays(&mut self, old: &'a [Value], new: &'a [Value]) {
        let old_texts: Vec<String> = old.iter().map(Value::to_string).collect();
        let new_texts: Vec<String> = new.iter().map(Value::to_string).collect();
        let removed = without_twin(old, &old_texts, &new_texts);
        let mut added: Vec<Side<'a>> =
            without_twin(new, &new_texts, &old_texts).into_iter().map(Some).collect();

        let mut leftovers = Vec::new();
        let mut pairs = Vec::new();
        match key_of(&self.path) {
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

        self.path.push(None);
        leftovers.into_iter().for_each(|before| self.push(Some(before), None));
        for (before, after, key) in pairs {
            if let (Value::Object(a), Value::Object(b)) = (before, after) {
                let outer = std::mem::replace(&mut self.ident, a.get(key));
                self.objects(a, b);
                self.ident = outer;
            }
        }
        added.into_iter().flatten().for_each(|after| self.push(None, Some(after)));
        self.path.pop();
    }
}

/// Returns the members of an object, or the elements of an array with their indexes as keys.
fn indexed(value: &Value) -> IndexMap<String, &Value> {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().map(|(at, it)| (at.to_string(), it)).collect()
        }
        Value::Object(members) => members.iter().map(|(key, it)| (key.clone(), it)).collect(),
        _ => IndexMap::new(),
    }
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
    let alone = items.iter().zip(texts).filter(|(_, text)| !others.contains(text.as_str()));
    alone.map(|(item, _)| item).collect()
}

/// Returns the identifying key of the elements of the array at this path.
fn key_of(path: &Path) -> Option<&'static str> {
    let [Some(name)] = path.as_slice() else { return None };
    KEYED.iter().find(|(array, _)| array == name).map(|(_, key)| *key)
}

#[cfg(test)]
mod tests;
