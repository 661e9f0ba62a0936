// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! JSON text → value, as `JSON.parse` reads it.
//!
//! serde_json reads the text. What it does otherwise than JavaScript is corrected on the way: all
//! numbers become doubles, and keys that look like array indexes come first. It refuses two things
//! that JavaScript takes; if it refuses a text, these are replaced, and it reads the text again:
//!
//! * half a surrogate pair in an escape (`"\\ud800"`), which becomes U+FFFD;
//! * a number that is no finite double (`1e400`), which becomes null, as JavaScript prints infinity.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::convert::lossy;
use super::number::number;

/// How deep arrays and objects may be nested. serde_json, which reads our output in many clients,
/// stops at 127.
pub const MAX_DEPTH: usize = 100;

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON. The message has the position and never a part of the text.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    TooDeep,
}

/// Parses a text. Bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// The text is not JSON, or it is nested too deeply.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = lossy(bytes);
    let error = match read(&text) {
        Err(JsonError::Syntax(error)) => JsonError::Syntax(error),
        result => return result,
    };
    replaced(&text).map_or(Err(error), |text| read(&text))
}

fn read(text: &str) -> Result<Value, JsonError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Tree { depth_left: MAX_DEPTH }.deserialize(&mut reader);
    value.and_then(|value| reader.end().map(|()| value)).map_err(|error| match error.classify() {
        // The only error that `Tree` raises.
        Category::Data => JsonError::TooDeep,
        Category::Syntax | Category::Eof | Category::Io => JsonError::Syntax(error.to_string()),
    })
}

/// Reads any value.
#[derive(Clone, Copy)]
struct Tree {
    depth_left: usize,
}

impl Tree {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        depth_left
            .map(|depth_left| Tree { depth_left })
            .ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(number(n as f64))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(number(n as f64))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(number(n))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut reader: A) -> Result<Value, A::Error> {
        let (tree, mut items) = (self.deeper()?, Vec::new());
        while let Some(item) = reader.next_element_seed(tree)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut reader: A) -> Result<Value, A::Error> {
        let (tree, mut members, mut has_index) = (self.deeper()?, Map::new(), false);
        while let Some(key) = reader.next_key::<String>()? {
            has_index |= index(&key).is_some();
            // A repeated key keeps its first place and has its last value.
            members.insert(key, reader.next_value_seed(tree)?);
        }
        Ok(Value::Object(if has_index { indexes_first(members) } else { members }))
    }
}

/// Sorts keys that look like array indexes before all others, as JavaScript lists them.
fn indexes_first(members: Map<String, Value>) -> Map<String, Value> {
    let mut members: Vec<(String, Value)> = members.into_iter().collect();
    members.sort_by_key(|(key, _)| index(key).map_or(u64::MAX, u64::from));
    members.into_iter().collect()
}

/// Returns the array index that a key looks like.
fn index(key: &str) -> Option<u32> {
    let is_plain = key == "0" || key.starts_with(|c: char| matches!(c, '1'..='9'));
    key.parse().ok().filter(|n| is_plain && *n != u32::MAX)
}

/// Replaces what JavaScript reads and serde_json does not; `None` if the text has nothing of it.
fn replaced(text: &str) -> Option<String> {
    let (mut out, mut copied, mut at, mut in_string) = (String::new(), 0, 0, false);
    while let Some(byte) = text.as_bytes().get(at) {
        let (len, replacement) = match byte {
            b'"' => {
                in_string = !in_string;
                (1, None)
            }
            b'\\' if in_string => escape(text.get(at..).unwrap_or_default()),
            b'-' | b'0'..=b'9' if !in_string => digits(text.get(at..).unwrap_or_default()),
            _ => (1, None),
        };
        if let Some(replacement) = replacement {
            out.push_str(text.get(copied..at).unwrap_or_default());
            out.push_str(replacement);
            copied = at + len;
        }
        at += len;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    (copied > 0).then_some(out)
}

/// Returns the length of the escape that the text begins with, and what replaces it.
fn escape(text: &str) -> (usize, Option<&'static str>) {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, None),
        (Some(0xd800..=0xdfff), _) => (6, Some("\\ufffd")),
        _ => (2, None),
    }
}

/// Returns the length of the number that the text begins with, and what replaces it.
fn digits(text: &str) -> (usize, Option<&'static str>) {
    let is_inner = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let end = text.find(|c| !is_inner(c)).unwrap_or(text.len());
    let token = text.get(..end).unwrap_or_default();
    let is_infinite = token.parse().is_ok_and(f64::is_infinite);
    // Rust reads more than JSON has, such as `01e400`.
    let is_json = is_infinite && serde_json::from_str::<IgnoredAny>(token).is_ok();
    (end, is_json.then_some("null"))
}
