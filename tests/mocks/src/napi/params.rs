// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The checks on one parameter.

use serde_json::Value;

use super::errors::{element, with_invalid};
use crate::restify::is_uuid;

/// The outcome of checking one value: the value, or an element of `errors`.
pub(super) type Checked<T> = Result<T, Value>;

fn bad<T>(field: &str, message: &str) -> Checked<T> {
    Err(element(field, "InvalidParameter", message))
}

pub(super) fn uuid(field: &str, value: &Value) -> Checked<String> {
    match value.as_str() {
        Some(text) if is_uuid(text) => Ok(text.to_owned()),
        _ => bad(field, "invalid UUID"),
    }
}

pub(super) fn boolean(field: &str, value: &Value) -> Checked<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        _ => bad(field, "must be a boolean value"),
    }
}

pub(super) fn string(field: &str, value: &Value) -> Checked<String> {
    match value.as_str() {
        None => bad(field, "must be a string"),
        Some("") => bad(field, "must not be empty"),
        Some(text) if text.chars().count() > 64 => {
            bad(field, "must not be longer than 64 characters")
        }
        Some(text) => Ok(text.to_owned()),
    }
}

pub(super) fn one_of(
    field: &str,
    value: &Value,
    allowed: &[&str],
    message: &str,
) -> Checked<String> {
    match value.as_str() {
        Some(text) if allowed.contains(&text) => Ok(text.to_owned()),
        _ => bad(field, message),
    }
}

/// Elements of a list given as CSV text or as an array of CSV texts.
pub(super) fn elements(value: &Value) -> Option<Vec<String>> {
    split(value, str::trim)
}

fn split(value: &Value, clean: fn(&str) -> &str) -> Option<Vec<String>> {
    let split = |text: &str| text.split(',').map(|part| clean(part).to_owned()).collect::<Vec<_>>();
    match value {
        Value::String(text) => Some(split(text)),
        Value::Array(items) => {
            let mut all = Vec::new();
            for item in items {
                all.extend(split(item.as_str()?));
            }
            Some(all)
        }
        _ => None,
    }
}

/// A list of UUIDs, without repetitions; an empty text is an empty list.
pub(super) fn uuids(field: &str, value: &Value) -> Checked<Vec<String>> {
    if value.is_object() {
        return bad(field, "must be an array of strings");
    }
    // A blank is part of the value.
    let Some(mut all) = split(value, |part| part) else { return bad(field, "must be an array") };
    if value.as_str() == Some("") {
        return Ok(Vec::new());
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|uuid| seen.insert(uuid.clone()));
    let invalid: Vec<String> = all.iter().filter(|uuid| !is_uuid(uuid)).cloned().collect();
    if invalid.is_empty() { Ok(all) } else { Err(with_invalid(field, "invalid UUID", &invalid)) }
}

/// A list of short texts.
pub(super) fn strings(field: &str, value: &Value) -> Checked<Vec<String>> {
    match elements(value) {
        Some(all) if all.iter().all(|text| !text.is_empty()) => Ok(all),
        _ => bad(field, "must be an array of strings"),
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            // `1e2` is a number, too.
            let (digits, zeros) = text.split_once('e').unwrap_or((text, "0"));
            let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let zeros = plain(zeros).then(|| zeros.parse::<u32>().ok())??;
            let digits = plain(digits).then(|| digits.parse::<i64>().ok())??;
            digits.checked_mul(10i64.checked_pow(zeros)?)
        }
        _ => None,
    }
}

pub(super) fn limit(value: &Value) -> Checked<usize> {
    match integer(value) {
        Some(n @ 1..=1000) => Ok(usize::try_from(n).unwrap_or(1000)),
        _ => bad(
            "limit",
            "invalid limit, must be an integer greater than 0 or less than or equal to 1000",
        ),
    }
}

pub(super) fn offset(value: &Value) -> Checked<usize> {
    match integer(value).and_then(|n| usize::try_from(n).ok()) {
        Some(n) => Ok(n),
        None => {
            bad("offset", "invalid value, offset must be an integer greater than or equal to 0")
        }
    }
}

pub(super) fn vlan(field: &str, value: &Value) -> Checked<u16> {
    match integer(value).and_then(|n| u16::try_from(n).ok()) {
        Some(n) if n <= 4094 => Ok(n),
        _ => bad(field, "VLAN ID must be a number between 0 and 4094"),
    }
}
