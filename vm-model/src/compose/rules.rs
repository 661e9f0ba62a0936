// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Tables from the names in a configuration to fields, and the functions that set fields.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::js::{base64_text, bool_value, comma_split, mib, number_value, to_number};
use crate::object::VmObject;
use crate::origin::{Origin, ParseError};
use crate::parse::zone_xml::Element;

/// The conversion of a text to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Text,
    Bool,
    Number,
    /// Bytes, shown in MiB.
    Mib,
    Base64,
    /// Texts between commas.
    List,
    /// Numbers between commas.
    Numbers,
}

/// The names in a configuration, by conversion. A field has its name with `_` for `-`, or the name that
/// follows a colon.
pub(super) struct Table {
    rows: &'static [(Rule, &'static str)],
    fields: OnceLock<HashMap<&'static str, (String, Rule)>>,
}

impl Table {
    pub(super) const fn new(rows: &'static [(Rule, &'static str)]) -> Self {
        Self { rows, fields: OnceLock::new() }
    }

    /// Returns the field of each name, and its conversion.
    pub(super) fn fields(&self) -> &HashMap<&'static str, (String, Rule)> {
        self.fields.get_or_init(|| {
            let names = self
                .rows
                .iter()
                .flat_map(|(rule, names)| names.split_whitespace().map(move |name| (*rule, name)));
            let row = |(rule, name): (Rule, &'static str)| match name.split_once(':') {
                Some((name, field)) => (name, (field.to_owned(), rule)),
                None => (name, (name.replace('-', "_"), rule)),
            };
            names.map(row).collect()
        })
    }
}

impl Rule {
    pub(super) fn value(self, text: &str) -> Value {
        match self {
            Rule::Text => text.into(),
            Rule::Bool => bool_value(text),
            Rule::Number => number_value(Some(text)),
            Rule::Mib => mib(to_number(text)),
            Rule::Base64 => base64_text(text).into(),
            Rule::List => comma_split(text),
            Rule::Numbers => text.split(',').map(|part| number_value(Some(part))).collect(),
        }
    }
}

/// Sets a field, in its old place if it is set already.
pub(super) fn set(object: &mut VmObject, name: &str, value: impl Into<Value>) {
    object.insert(name.to_owned(), value.into());
}

/// Sets a field unless it is set already.
pub(super) fn set_absent(object: &mut VmObject, name: &str, value: impl Into<Value>) {
    if !object.contains_key(name) {
        set(object, name, value);
    }
}

/// Appends to a field that is an array, or creates it.
pub(super) fn push(object: &mut VmObject, name: &str, item: impl Into<Value>) {
    let field = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(items) = field {
        items.push(item.into());
    }
}

/// Returns a field if it is a string.
pub(super) fn text<'a>(object: &'a VmObject, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// Returns the objects in a field that is an array.
pub(super) fn objects<'a>(
    object: &'a VmObject,
    name: &str,
) -> impl Iterator<Item = &'a VmObject> + use<'a> {
    let items = object.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_object)
}

/// Returns the entry that an element stands for: its attributes, and the name-value pairs in it.
pub(super) fn entry(
    attributes: &Table,
    pairs: &Table,
    element: Element<'_>,
) -> Result<VmObject, ParseError> {
    let mut entry = VmObject::new();
    set_attributes(&mut entry, attributes, element);
    for pair in element.inside() {
        set_pair(&mut entry, pairs, pair)?;
    }
    Ok(entry)
}

/// Sets the fields of the attributes that are in the table, in the order of the file.
pub(super) fn set_attributes(object: &mut VmObject, table: &Table, element: Element<'_>) {
    for (name, text) in element.attributes() {
        if let Some((field, rule)) = table.fields().get(name) {
            set(object, field, rule.value(text));
        }
    }
}

/// Sets the field of a name-value pair that is in the table. A pair without a value removes a field
/// that is a text or boolean and sets a number to null.
pub(super) fn set_pair(
    object: &mut VmObject,
    table: &Table,
    pair: Element<'_>,
) -> Result<(), ParseError> {
    let name = pair.get("name").unwrap_or_default();
    let Some((field, rule)) = table.fields().get(name) else { return Ok(()) };
    match (pair.get("value"), rule) {
        (Some(text), rule) => set(object, field, rule.value(text)),
        (None, Rule::Text | Rule::Bool) => drop(object.shift_remove(field)),
        (None, Rule::Number | Rule::Mib) => set(object, field, Value::Null),
        (None, Rule::Base64 | Rule::List | Rule::Numbers) => {
            return Err(ParseError::line(
                Origin::ZoneXml,
                pair.line(),
                format!("expected a value for {name:?}"),
            ));
        }
    }
    Ok(())
}
