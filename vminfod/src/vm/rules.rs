// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tables' language: which name in the file is which field, and how its text becomes a value.

use serde_json::Value;

use super::convert::{base64_text, bool_value, comma_split, number_value};
use super::draft::Draft;
use super::{ComposeError, set};
use crate::load::zone_xml::{Attributes, Pair};

/// How a text becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Text,
    Bool,
    Number,
    Base64,
    List,
    Numbers,
}

/// Name in the file, field, rule.
pub(super) type Table = [(&'static str, &'static str, Rule)];

impl Rule {
    fn value(self, text: &str) -> Value {
        match self {
            Rule::Text => text.into(),
            Rule::Bool => bool_value(text),
            Rule::Number => number_value(Some(text)),
            Rule::Base64 => base64_text(text).into(),
            Rule::List => comma_split(text),
            Rule::Numbers => text.split(',').map(|part| number_value(Some(part))).collect(),
        }
    }
}

/// The attributes of an element that the table knows, in the file's order.
pub(super) fn put_attributes(object: &mut Draft, table: &Table, attributes: &Attributes) {
    for (name, text) in attributes {
        if let Some((_, field, rule)) = table.iter().find(|(n, ..)| n == name) {
            set(object, field, rule.value(text));
        }
    }
}

/// A name and a value, if the table knows the name. The last of several with one name counts.
pub(super) fn put_pair(object: &mut Draft, table: &Table, pair: &Pair) -> Result<(), ComposeError> {
    let Some((name, field, rule)) = table.iter().find(|(n, ..)| Some(*n) == pair.name.as_deref())
    else {
        return Ok(());
    };
    match (&pair.value, rule) {
        (Some(text), rule) => set(object, field, rule.value(text)),
        (None, Rule::Text | Rule::Bool) => drop(object.remove(field)),
        (None, Rule::Number) => set(object, field, Value::Null),
        (None, Rule::Base64 | Rule::List | Rule::Numbers) => {
            return Err(ComposeError::xml(pair.line, format!("expected a value for {name:?}")));
        }
    }
    Ok(())
}
