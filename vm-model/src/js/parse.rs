// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! JSON text → value or compact text, as `JSON.parse` reads it.
//!
//! serde_json reads the text. What it does otherwise than JavaScript is corrected on the way to the
//! compact text: all numbers are doubles, a repeated key is the last one, and keys that look like array
//! indexes come first. It refuses two things
//! that JavaScript takes; if it refuses a text, these are replaced, and it reads the text again:
//!
//! * half a surrogate pair in an escape (`"\\ud800"`), which becomes U+FFFD;
//! * a number that is no finite double (`1e400`), which becomes null, as JavaScript prints infinity.

use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use super::convert::lossy;
use super::number::number_text;

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
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = compact(bytes)?;
    serde_json::from_str(&text).map_err(|error| JsonError::Syntax(error.to_string()))
}

/// Returns the compact text of the value of a text, in UTF-8, without making the value: that of a
/// million keys takes twenty times their text.
pub fn compact(bytes: &[u8]) -> Result<String, JsonError> {
    let text = lossy(bytes);
    match read(&text) {
        Err(JsonError::Syntax(error)) => match replaced(&text) {
            Some(text) => read(&text),
            None => Err(JsonError::Syntax(error)),
        },
        result => result,
    }
}

fn read(text: &str) -> Result<String, JsonError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut out = Vec::with_capacity(text.len());
    let written = Text { out: &mut out, depth_left: MAX_DEPTH }.deserialize(&mut reader);
    let text = written.and_then(|()| reader.end()).and_then(|()| {
        // Everything that is written is UTF-8.
        String::from_utf8(out).map_err(serde_json::Error::custom)
    });
    text.map_err(|error| match error.classify() {
        // The only error that `Text` raises.
        Category::Data => JsonError::TooDeep,
        Category::Syntax | Category::Eof | Category::Io => JsonError::Syntax(error.to_string()),
    })
}

/// Returns how deep the members of a value may be nested.
fn deeper<E: Error>(depth_left: usize) -> Result<usize, E> {
    depth_left.checked_sub(1).ok_or_else(|| E::custom("nested too deeply"))
}

/// Writes any value.
struct Text<'a> {
    out: &'a mut Vec<u8>,
    depth_left: usize,
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<(), E> {
        self.visit_f64(n as f64)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<(), E> {
        self.visit_f64(n as f64)
    }

    fn visit_f64<E>(self, n: f64) -> Result<(), E> {
        self.out.extend_from_slice(number_text(n).as_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        serde_json::to_writer(self.out, text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut reader: A) -> Result<(), A::Error> {
        let (out, depth_left) = (self.out, deeper(self.depth_left)?);
        out.push(b'[');
        while reader.next_element_seed(Text { out, depth_left })?.is_some() {
            out.push(b',');
        }
        close(out, b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut reader: A) -> Result<(), A::Error> {
        let (out, depth_left) = (self.out, deeper(self.depth_left)?);
        let (from, mut members) = (out.len() + 1, Vec::new());
        out.push(b'{');
        loop {
            let start = out.len();
            if reader.next_key_seed(Text { out, depth_left })?.is_none() {
                break;
            }
            let key = start..out.len();
            out.push(b':');
            reader.next_value_seed(Text { out, depth_left })?;
            members.push((key, out.len()));
            out.push(b',');
        }
        if let Some(members) = rearranged(out, &members) {
            out.truncate(from);
            out.extend_from_slice(&members);
        }
        close(out, b'}');
        Ok(())
    }
}

/// Ends an array or object, in place of the comma after its last member.
fn close(out: &mut Vec<u8>, bracket: u8) {
    out.pop_if(|last| *last == b',');
    out.push(bracket);
}

/// Returns the members of an object in the order of JavaScript; `None` if they have it. Each is given
/// by the place of its key and its end.
fn rearranged(out: &[u8], members: &[(Range<usize>, usize)]) -> Option<Vec<u8>> {
    if members.len() < 2 {
        return None;
    }
    let part = |range: Range<usize>| out.get(range).unwrap_or_default();
    let index = |key: &[u8]| {
        let key = key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\""));
        key.and_then(|key| index(std::str::from_utf8(key).ok()?))
    };
    // A repeated key keeps its first place and has its last value.
    let each = members.iter().map(|(key, end)| (part(key.clone()), part(key.start..*end)));
    let mut unique: IndexMap<&[u8], &[u8]> = each.collect();
    let has_index = unique.keys().any(|key| index(key).is_some());
    if !has_index && unique.len() == members.len() {
        return None;
    }
    unique.sort_by_key(|key, _| index(key).map_or(u64::MAX, u64::from));
    Some(unique.into_values().collect::<Vec<_>>().join(&b','))
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
