// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads JSON text with the rules of JavaScript.

use serde_json::{Map, Value};

use super::number;

/// How deep arrays and objects may stand in each other: less than what readers of our output take.
pub const MAX_DEPTH: usize = 100;

/// Why a text is not taken as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is no JSON.
    #[error("not JSON: expected {expected} at offset {offset}")]
    Syntax {
        /// Where, in bytes.
        offset: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// It is nested too deeply.
    #[error("nested deeper than {MAX_DEPTH} at offset {offset}")]
    TooDeep {
        /// Where, in bytes.
        offset: usize,
    },
}

/// Parses a whole text. Bytes that are not UTF-8 count as U+FFFD.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = Parser { text: &text, at: 0 };
    parser.space();
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() { Err(parser.expected("the end")) } else { Ok(value) }
}

/// Parses a whole text that is an array and gives `each` its elements one by one, so that the tree
/// of all of them is never there. `false`: it is another value. What was given counts only if the
/// whole text is good.
pub fn elements(bytes: &[u8], mut each: impl FnMut(Value)) -> Result<bool, JsonError> {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = Parser { text: &text, at: 0 };
    parser.space();
    let is_array = parser.peek() == Some(b'[');
    if is_array {
        parser.items(0, &mut each)?;
    } else {
        parser.value(0)?;
    }
    parser.space();
    if parser.at < text.len() { Err(parser.expected("the end")) } else { Ok(is_array) }
}

/// The same where each element is given as its text: for whoever wants few of them. What is given is
/// good JSON, and nothing was made of it.
pub fn raw_elements(text: &str, mut each: impl FnMut(&str)) -> Result<bool, JsonError> {
    let mut parser = Parser { text, at: 0 };
    parser.space();
    let is_array = parser.peek() == Some(b'[');
    if is_array {
        parser.skip_items(0, &mut each)?;
    } else {
        parser.skip(0)?;
    }
    parser.space();
    if parser.at < text.len() { Err(parser.expected("the end")) } else { Ok(is_array) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax { offset: self.at, expected }
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep { offset: self.at });
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let words = [
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                    ("null", Value::Null),
                ];
                for (word, value) in words {
                    if self.rest().starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.expected("a value"))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        let mut items = Vec::new();
        self.items(depth, &mut |item| items.push(item))?;
        Ok(Value::Array(items))
    }

    fn items(&mut self, depth: usize, each: &mut dyn FnMut(Value)) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.space();
            each(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        let mut map = Map::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.expected("':'"));
            }
            self.space();
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.space();
            if self.eat(b'}') {
                return Ok(Value::Object(indexes_first(map)));
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    /// Goes over a value as `value` would.
    fn skip(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep { offset: self.at });
        }
        match self.peek() {
            Some(b'{') => self.skip_object(depth),
            Some(b'[') => self.skip_items(depth, &mut |_| ()),
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.number_text().map(|_| ()),
            _ => self.value(depth).map(|_| ()),
        }
    }

    fn skip_items(&mut self, depth: usize, each: &mut dyn FnMut(&str)) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.space();
            let from = self.at;
            self.skip(depth + 1)?;
            each(self.text.get(from..self.at).unwrap_or_default());
            self.space();
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    fn skip_object(&mut self, depth: usize) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            self.skip_string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.expected("':'"));
            }
            self.space();
            self.skip(depth + 1)?;
            self.space();
            if self.eat(b'}') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.at += self.plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.escape()?;
                }
                _ => return Err(self.expected("the end of a string")),
            }
        }
    }

    /// How many bytes stand here before a quote, an escape or a control character.
    fn plain(&self) -> usize {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len())
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let plain = self.plain();
            out.push_str(self.text.get(self.at..self.at + plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.expected("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let byte = self.peek();
        let plain = match byte {
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.expected("an escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// After `\u`. Half of a surrogate pair cannot be kept in UTF-8 and becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let high = self.hex4()?;
        if !(0xd800..0xdc00).contains(&high) || !self.rest().starts_with("\\u") {
            return Ok(char::from_u32(high).unwrap_or('\u{fffd}'));
        }
        let back = self.at;
        self.at += 2;
        let low = self.hex4()?;
        if !(0xdc00..0xe000).contains(&low) {
            self.at = back;
            return Ok('\u{fffd}');
        }
        Ok(char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).unwrap_or('\u{fffd}'))
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = digits.and_then(|d| u32::from_str_radix(d, 16).ok()) else {
            return Err(self.expected("four hexadecimal digits"));
        };
        self.at += 4;
        Ok(code)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == from { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let text = self.number_text()?;
        Ok(number(text.parse().unwrap_or(f64::NAN)))
    }

    fn number_text(&mut self) -> Result<&str, JsonError> {
        let from = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.digits()?;
        }
        Ok(self.text.get(from..self.at).unwrap_or_default())
    }
}

/// JavaScript keeps keys that look like array indexes before all others, in numeric order.
fn indexes_first(map: Map<String, Value>) -> Map<String, Value> {
    if !map.keys().any(|k| index(k).is_some()) {
        return map;
    }
    let mut entries: Vec<(String, Value)> = map.into_iter().collect();
    entries.sort_by_key(|(k, _)| index(k).map_or(u64::MAX, u64::from));
    entries.into_iter().collect()
}

fn index(key: &str) -> Option<u32> {
    let n: u32 = key.parse().ok()?;
    (n != u32::MAX && n.to_string() == key).then_some(n)
}
