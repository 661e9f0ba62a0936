// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is made of JSON text: a tree of values, or nothing where it only has to be good.

use serde_json::{Map, Value};

use super::number;

/// What the walk over a text makes of each thing it finds.
pub trait Make: Sized {
    /// A string that is being read.
    type Text: Default;
    /// An array that is being read.
    type Items: Default;
    /// An object that is being read.
    type Members: Default;

    /// More of a string, escapes resolved.
    fn push(text: &mut Self::Text, more: &str);
    /// The next element of an array.
    fn item(items: &mut Self::Items, item: Self);
    /// The next member of an object.
    fn member(members: &mut Self::Members, key: Self::Text, value: Self);

    fn string(text: Self::Text) -> Self;
    fn array(items: Self::Items) -> Self;
    fn object(members: Self::Members) -> Self;
    /// A number, as it is written.
    fn number(text: &str) -> Self;
    /// `true`, `false` or `null`.
    fn word(value: Value) -> Self;
}

impl Make for Value {
    type Text = String;
    type Items = Vec<Value>;
    type Members = Map<String, Value>;

    fn push(text: &mut String, more: &str) {
        text.push_str(more);
    }

    fn item(items: &mut Vec<Value>, item: Value) {
        items.push(item);
    }

    fn member(members: &mut Map<String, Value>, key: String, value: Value) {
        members.insert(key, value);
    }

    fn string(text: String) -> Value {
        Value::String(text)
    }

    fn array(items: Vec<Value>) -> Value {
        Value::Array(items)
    }

    fn object(members: Map<String, Value>) -> Value {
        Value::Object(indexes_first(members))
    }

    fn number(text: &str) -> Value {
        number(text.parse().unwrap_or(f64::NAN))
    }

    fn word(value: Value) -> Value {
        value
    }
}

/// Nothing is made: the text is only gone over.
#[derive(Clone, Copy, Default)]
pub struct Skim;

impl Make for Skim {
    type Text = Skim;
    type Items = Skim;
    type Members = Skim;

    fn push(_: &mut Skim, _: &str) {}

    fn item(_: &mut Skim, _: Skim) {}

    fn member(_: &mut Skim, _: Skim, _: Skim) {}

    fn string(_: Skim) -> Skim {
        Skim
    }

    fn array(_: Skim) -> Skim {
        Skim
    }

    fn object(_: Skim) -> Skim {
        Skim
    }

    fn number(_: &str) -> Skim {
        Skim
    }

    fn word(_: Value) -> Skim {
        Skim
    }
}

/// JavaScript keeps keys that look like array indexes before all others, in numeric order.
fn indexes_first(map: Map<String, Value>) -> Map<String, Value> {
    if !map.keys().any(|k| index(k).is_some()) {
        return map;
    }
    let mut entries: Vec<(String, Value)> = map.into_iter().collect();
    entries.sort_by_key(|(k, _)| index(k).map_or(u64::MAX, u64::from));
    entries.into_iter().collect()
}

fn index(key: &str) -> Option<u32> {
    let n: u32 = key.parse().ok()?;
    (n != u32::MAX && n.to_string() == key).then_some(n)
}
