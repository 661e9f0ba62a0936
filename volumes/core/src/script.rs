// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How JavaScript spells values: the deployed service puts them so into its messages.

use serde_json::{Map, Value};
use vm_model::js::number_text;

/// A list or an object longer than this is broken into lines.
const LINE: usize = 60;

/// Returns `String(value)`; `undefined` for what is not there.
pub fn string(value: Option<&Value>) -> String {
    match value {
        None => "undefined".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(n)) => number_text(n.as_f64().unwrap_or(f64::NAN)),
        Some(Value::Array(items)) => {
            let item = |item: &Value| match item {
                Value::Null => String::new(),
                item => string(Some(item)),
            };
            items.iter().map(item).collect::<Vec<_>>().join(",")
        }
        Some(Value::Object(_)) => "[object Object]".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Replaces the stored time of a record by the one that is shown: ISO 8601.
pub fn show_time(fields: &mut Map<String, Value>) {
    show_time_of(fields, "create_timestamp");
}

/// The same for the time under another name.
pub fn show_time_of(fields: &mut Map<String, Value>, name: &str) {
    if let Some(at) = fields.get_mut(name)
        && let Some(text) = at.as_f64().and_then(vm_model::js::iso)
    {
        *at = text.into();
    }
}

/// Returns `typeof value`.
pub fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "undefined",
        Some(Value::String(_)) => "string",
        Some(Value::Number(_)) => "number",
        Some(Value::Bool(_)) => "boolean",
        Some(_) => "object",
    }
}

/// Returns true for what a condition takes for false.
pub fn is_falsy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(n)) => n.as_f64() == Some(0.0),
        Some(_) => false,
    }
}

/// Returns `util.inspect(value)`, however deep it is.
pub fn inspect(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Array(items) => joined(items.iter().map(inspect).collect(), '[', ']'),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && !name.starts_with(|c: char| c.is_ascii_digit())
                    && !name.is_empty();
                let name = if is_name { name.clone() } else { quoted(name) };
                format!("{name}: {}", inspect(value))
            };
            joined(fields.iter().map(field).collect(), '{', '}')
        }
        other => string(Some(other)),
    }
}

fn joined(items: Vec<String>, open: char, close: char) -> String {
    let length: usize = items.iter().map(|item| item.chars().count() + 1).sum();
    let between = if length > LINE { ",\n  " } else { ", " };
    format!("{open} {} {close}", items.join(between))
}

fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    let inner = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    format!("'{}'", inner.replace('\'', "\\'").replace("\\\"", "\""))
}

/// Parses JSON text; the error has the words of the runtime.
pub fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        let before: usize =
            text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = before + error.column().saturating_sub(1);
        match text.get(at..).and_then(|rest| rest.chars().next()) {
            Some(wrong) if !error.is_eof() => {
                format!("Unexpected token {wrong} in JSON at position {at}")
            }
            _ => "Unexpected end of JSON input".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_spelled_as_the_runtime_spells_them() {
        for (value, text) in [
            (json!(["a", null, 1e12]), "a,,1000000000000"),
            (json!({"a": 1}), "[object Object]"),
            (json!(10240.5), "10240.5"),
            (json!(null), "null"),
            (json!(true), "true"),
        ] {
            assert_eq!(string(Some(&value)), text);
        }
        assert_eq!(string(None), "undefined");
    }

    #[test]
    fn inspection_quotes_and_breaks_long_lines() {
        assert_eq!(inspect(&json!({"eq": ["name", "it's"]})), r"{ eq: [ 'name', 'it\'s' ] }");
        assert_eq!(inspect(&json!({"and": []})), "{ and: [] }");
        let deep = json!({"and": [{"or": [{"eq": [1]}]}]});
        assert_eq!(inspect(&deep), "{ and: [ { or: [ { eq: [ 1 ] } ] } ] }");
        let long = "x".repeat(60);
        assert_eq!(inspect(&json!(["ab", long])), format!("[ 'ab',\n  '{long}' ]"));
    }

    #[test]
    fn errors_of_json_name_the_first_wrong_character() {
        assert_eq!(parse_json("{").unwrap_err(), "Unexpected end of JSON input");
        assert_eq!(parse_json("x").unwrap_err(), "Unexpected token x in JSON at position 0");
        let twice = parse_json("{\"a\":1}{\"b\":2}").unwrap_err();
        assert_eq!(twice, "Unexpected token { in JSON at position 7");
    }
}
