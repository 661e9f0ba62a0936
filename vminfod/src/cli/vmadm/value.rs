// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Prints and compares values as JavaScript does. Pure.

use std::cmp::Ordering;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value};

use vm_model::js as convert;
use vm_model::js::number_text;

/// The text form of a value; `None` for null.
pub fn text_form(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(n) => Some(number_text(n.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts: Vec<String> =
                items.iter().map(|item| text_form(item).unwrap_or_default()).collect();
            Some(texts.join(","))
        }
        Value::Object(_) => Some("[object Object]".to_owned()),
    }
}

/// Returns true if the value is truthy.
pub fn truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(n)) => n.as_f64().is_some_and(|n| n != 0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(_) | Value::Object(_)) => true,
    }
}

/// Compares two values as `<` and `>` do; `None` if they cannot be compared.
pub fn compare(a: Option<&Value>, b: Option<&Value>) -> Option<Ordering> {
    let (a, b) = (a?, b?);
    let is_text = |value: &Value| value.is_string() || value.is_array() || value.is_object();
    if is_text(a) && is_text(b) {
        return Some(text_form(a)?.encode_utf16().cmp(text_form(b)?.encode_utf16()));
    }
    number(a).partial_cmp(&number(b))
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::Number(n) => n.as_f64().unwrap_or(f64::NAN),
        other => convert::to_number(&text_form(other).unwrap_or_default()),
    }
}

/// A member of an object or an element of an array.
pub fn member<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key),
        Value::Array(items) => items.get(array_index(key)?),
        _ => None,
    }
}

/// The value at a dotted path.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, member)
}

/// The values of an array or an object; none of anything else.
pub fn items(value: Option<&Value>) -> Vec<&Value> {
    match value {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(Value::Object(map)) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// Parses an array index: `0`, `12`, not `01`.
pub fn array_index(key: &str) -> Option<usize> {
    let plain = key.bytes().all(|b| b.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
    if plain { key.parse::<u32>().ok().filter(|n| *n < u32::MAX).map(|n| n as usize) } else { None }
}

/// The length in UTF-16 units.
pub fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Returns true for white space as `trim` sees it.
pub fn is_space(c: char) -> bool {
    c == '\u{180e}' || convert::is_space(c)
}

/// Removes trailing white space.
pub fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// The output of `console.log` for one argument: `%%` becomes `%`.
pub fn lone_argument(text: &str) -> String {
    text.replace("%%", "%")
}

/// JSON indented by two spaces, without a final newline.
pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    indented(value, "\n", &mut text);
    text
}

/// Appends indented JSON; `line` begins a line of the value's own depth.
fn indented(value: &Value, line: &str, text: &mut String) {
    let below = format!("{line}  ");
    let mut separator = "";
    match value {
        Value::Array(items) if !items.is_empty() => {
            text.push('[');
            for item in items {
                text.extend([separator, &below]);
                indented(item, &below, text);
                separator = ",";
            }
            text.extend([line, "]"]);
        }
        Value::Object(members) if !members.is_empty() => {
            text.push('{');
            for (key, member) in members {
                text.extend([separator, &below, &compact(key), ": "]);
                indented(member, &below, text);
                separator = ",";
            }
            text.extend([line, "}"]);
        }
        flat => text.push_str(&compact(flat)),
    }
}

/// JSON on one line.
pub fn compact(value: &(impl Serialize + ?Sized)) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    if value.serialize(&mut Serializer::with_formatter(&mut text, Numbers)).is_err() {
        return "null".to_owned();
    }
    String::from_utf8(text).unwrap_or_else(|_| "null".to_owned())
}

/// Formats numbers as JavaScript does.
struct Numbers;

impl Formatter for Numbers {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, n: f64) -> io::Result<()> {
        out.write_all(number_text(n).as_bytes())
    }

    fn write_i64<W: ?Sized + Write>(&mut self, out: &mut W, n: i64) -> io::Result<()> {
        self.write_f64(out, n as f64)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, n: u64) -> io::Result<()> {
        self.write_f64(out, n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_forms() {
        for (value, text) in [
            (json!("a"), "a"),
            (json!(10.5), "10.5"),
            (json!(1e21), "1e+21"),
            (json!(false), "false"),
            (json!([1, "b", null, [2, 3]]), "1,b,,2,3"),
            (json!({"a": 1}), "[object Object]"),
            (json!([]), ""),
        ] {
            assert_eq!(text_form(&value).as_deref(), Some(text));
        }
        assert_eq!(text_form(&Value::Null), None);
    }

    #[test]
    fn comparisons() {
        use Ordering::{Equal, Greater, Less};
        let table = [
            (json!("B"), json!("a"), Some(Less)),
            (json!(2), json!(10), Some(Less)),
            (json!("2"), json!(10), Some(Less)),
            (json!("2"), json!("10"), Some(Greater)),
            (json!("x"), json!(1), None),
            (json!(null), json!(0), Some(Equal)),
            (json!(true), json!(0.5), Some(Greater)),
            // Units, not characters: a surrogate pair is below U+FFFD.
            (json!("\u{1f600}"), json!("\u{fffd}"), Some(Less)),
        ];
        for (a, b, order) in table {
            assert_eq!(compare(Some(&a), Some(&b)), order, "{a} {b}");
        }
        assert_eq!(compare(None, Some(&json!(1))), None);
    }

    #[test]
    fn json_texts() {
        let value = json!({"a": [], "o": {}, "n": [1.5, 1e21, -0.0], "t": "é\u{1b}\u{7f}\n"});
        assert_eq!(
            pretty(&value),
            "{\n  \"a\": [],\n  \"o\": {},\n  \"n\": [\n    1.5,\n    1e+21,\n    0\n  ],\n  \"t\": \"é\\u001b\u{7f}\\n\"\n}"
        );
        assert_eq!(compact(&json!({"a": [1, 2]})), r#"{"a":[1,2]}"#);
        assert_eq!(lone_argument("100%% %s %%%"), "100% %s %%");
        assert_eq!(array_index("01"), None);
        assert_eq!(array_index("10"), Some(10));
    }
}
