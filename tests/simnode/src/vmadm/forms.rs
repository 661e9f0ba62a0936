// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Values in the form that vmadm goes on with: numbers, lists and booleans that were given as text.

use serde_json::{Value, json};

use super::kinds::{Kind, whole};
use super::refusal::Refusal;
use super::table;
use crate::payload::Payload;

/// What is no number where one is needed: it fails its kind later.
pub(crate) const NO_NUMBER: &str = "NaN";

/// Where false is stored as absence, vmadm makes a blank of it.
const BLANK_WHERE_FALSE: [&str; 5] =
    ["do_not_inventory", "docker", "archive_on_delete", "firewall_enabled", "maintain_resolvers"];

/// Makes numbers of the properties that are numbers; null stands for one that is unset.
pub(crate) fn numbers(payload: &mut Payload) -> Result<(), Refusal> {
    for (name, value) in payload.iter_mut() {
        let is_number = matches!(table::property(name).map(|p| p.kind), Some(Kind::Integer(..)));
        if !is_number || value.is_number() || value.is_null() {
            continue;
        }
        let made = match &*value {
            Value::String(text) if text.trim().is_empty() => Some(Value::Null),
            Value::String(text) => text.trim().parse().ok().map(number),
            Value::Bool(set) => Some(json!(u8::from(*set))),
            Value::Array(all) if all.is_empty() => Some(json!(0)),
            _ => None,
        };
        *value = made.ok_or_else(|| Refusal::NotANumber(name.clone()))?;
    }
    Ok(())
}

fn number(value: f64) -> Value {
    whole(Some(value)).map_or_else(|| json!(value), |whole| json!(whole))
}

/// Splits lists that were given as one text.
pub(crate) fn lists(payload: &mut Payload) {
    for (name, value) in payload.iter_mut() {
        let is_list = matches!(table::property(name).map(|p| p.kind), Some(Kind::List(_)));
        if let Some(text) = value.as_str().filter(|_| is_list) {
            *value = text.split(',').filter(|part| !part.is_empty()).collect();
        }
    }
}

/// Makes booleans of the properties that are booleans. Their kind was checked.
pub(crate) fn booleans(payload: &mut Payload) {
    for (name, value) in payload.iter_mut() {
        let is_boolean = table::property(name).is_some_and(|p| p.kind == Kind::Boolean);
        if is_boolean {
            *value = match is_true(value) {
                false if BLANK_WHERE_FALSE.contains(&name.as_str()) => json!(""),
                set => json!(set),
            };
        }
    }
}

/// Returns true if a boolean is set, in any of its forms.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(set) => *set,
        Value::Number(n) => n.as_i64() == Some(1),
        Value::String(text) => text == "true" || text == "1",
        _ => false,
    }
}

/// Returns true if the language of vmadm takes the value for true.
pub(crate) fn is_truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(set)) => *set,
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(_) | Value::Object(_)) => true,
    }
}

/// A value as it prints in a zone's configuration.
pub(crate) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(printed).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The objects of a list. Their kind was checked, or is yet to be.
pub(crate) fn objects<'a>(payload: &'a Payload, list: &str) -> Vec<&'a Payload> {
    let all = payload.get(list).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_object).collect()
}

/// The same, to change them.
pub(crate) fn objects_mut<'a>(payload: &'a mut Payload, list: &str) -> Vec<&'a mut Payload> {
    let all = payload.get_mut(list).and_then(Value::as_array_mut);
    all.into_iter().flatten().filter_map(Value::as_object_mut).collect()
}
