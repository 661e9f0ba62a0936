// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of a request (path, query and body merged) and the checks on one value.

use serde_json::{Map, Value, json};

use super::eras::Era;
use super::errors::{ApiError, element, with_invalid};

/// Parameters by name, in the order they came.
pub(super) type Params = Map<String, Value>;

/// Decodes a query or form text; a repeated name becomes an array, as do `name[]` and `name[0]`, and
/// `name[key]` an object. A value without a name is ignored.
pub(super) fn from_query(query: &str) -> Params {
    let mut params = Params::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let key = name.strip_suffix(']').and_then(|name| name.split_once('['));
        let (name, value) = match key {
            Some((name, at)) if at.bytes().all(|b| b.is_ascii_digit()) => (name, json!([value])),
            Some((name, key)) => (name, json!({ key: value })),
            None => (name.as_ref(), json!(value)),
        };
        if name.is_empty() {
            continue;
        }
        match params.get_mut(name) {
            None => {
                params.insert(name.to_owned(), value);
            }
            Some(Value::Array(values)) if value.is_array() => {
                values.extend(value.as_array().cloned().unwrap_or_default());
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    params
}

fn falsy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Adds the body to the parameters; a parameter already there wins.
pub(super) fn merge_body(
    params: &mut Params,
    content_type: &str,
    body: &[u8],
    era: Era,
) -> Result<(), ApiError> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let fields = match kind {
        "application/json" if !body.iter().all(u8::is_ascii_whitespace) => {
            match parse_json(body, era)? {
                Value::Object(map) => map,
                value if falsy(&value) => Map::new(),
                _ => return Err(ApiError::invalid("parameters", "Parameters must be objects")),
            }
        }
        "application/x-www-form-urlencoded" => from_query(&String::from_utf8_lossy(body)),
        _ => Map::new(),
    };
    for (name, value) in fields {
        if params.get(&name).is_none_or(falsy) {
            params.insert(name, value);
        }
    }
    Ok(())
}

fn parse_json(body: &[u8], era: Era) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let at = if error.line() <= 1 {
            error.column().saturating_sub(1)
        } else {
            text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum::<usize>()
                + error.column().saturating_sub(1)
        };
        let message = match text.as_bytes().get(at) {
            _ if error.is_eof() && !era.old_platform() => "Unexpected end of JSON input".to_owned(),
            _ if error.is_eof() => "Unexpected end of input".to_owned(),
            Some(byte) if era.old_platform() => format!("Unexpected token {}", char::from(*byte)),
            Some(byte) => {
                format!("Unexpected token {} in JSON at position {at}", char::from(*byte))
            }
            None => "Unexpected end of JSON input".to_owned(),
        };
        ApiError::Plain(400, "InvalidContent", format!("Invalid JSON: {message}"))
    })
}

/// The outcome of checking one value: the value, or an element of `errors`.
pub(super) type Checked<T> = Result<T, Value>;

fn bad<T>(field: &str, message: &str) -> Checked<T> {
    Err(element(field, "InvalidParameter", message))
}

/// Returns true if the text is a UUID in lower case.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
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
