// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Prints and compares values as JavaScript does. Pure.

use std::cmp::Ordering;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
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
    match (primitive(a?), primitive(b?)) {
        (Primitive::Text(a), Primitive::Text(b)) => Some(a.encode_utf16().cmp(b.encode_utf16())),
        (a, b) => a.number().partial_cmp(&b.number()),
    }
}

enum Primitive {
    Text(String),
    Number(f64),
}

impl Primitive {
    fn number(&self) -> f64 {
        match self {
            Primitive::Text(text) => convert::to_number(text),
            Primitive::Number(n) => *n,
        }
    }
}

fn primitive(value: &Value) -> Primitive {
    match value {
        Value::Null => Primitive::Number(0.0),
        Value::Bool(flag) => Primitive::Number(f64::from(u8::from(*flag))),
        Value::Number(n) => Primitive::Number(n.as_f64().unwrap_or(f64::NAN)),
        other => Primitive::Text(text_form(other).unwrap_or_default()),
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
pub fn pretty(value: &(impl Serialize + ?Sized)) -> String {
    write(value, Numbers(PrettyFormatter::with_indent(b"  ")))
}

/// JSON on one line.
pub fn compact(value: &(impl Serialize + ?Sized)) -> String {
    write(value, Numbers(CompactFormatter))
}

fn write<T: Serialize + ?Sized>(value: &T, formatter: impl Formatter) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    if value.serialize(&mut Serializer::with_formatter(&mut text, formatter)).is_err() {
        return "null".to_owned();
    }
    String::from_utf8(text).unwrap_or_else(|_| "null".to_owned())
}

/// Formats numbers as JavaScript does.
struct Numbers<F>(F);

impl<F: Formatter> Formatter for Numbers<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, n: f64) -> io::Result<()> {
        out.write_all(number_text(n).as_bytes())
    }

    fn write_i64<W: ?Sized + Write>(&mut self, out: &mut W, n: i64) -> io::Result<()> {
        out.write_all(number_text(n as f64).as_bytes())
    }

    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, n: u64) -> io::Result<()> {
        out.write_all(number_text(n as f64).as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
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
