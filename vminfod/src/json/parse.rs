// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads JSON text with the rules of JavaScript: one walk, whatever is made of the text (`make.rs`).

use serde_json::Value;

use super::make::{Make, Skim};

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
    let text = super::text(bytes);
    whole(&text, |parser| parser.value(0))
}

/// Parses a whole text that is an array and gives `each` its elements one by one, so that the tree
/// of all of them is never there. `false`: it is another value. What was given counts only if the
/// whole text is good.
pub fn elements(bytes: &[u8], mut each: impl FnMut(Value)) -> Result<bool, JsonError> {
    let text = super::text(bytes);
    whole(&text, |parser| parser.outer_array::<Value>(&mut |_, value| each(value)))
}

/// The same where each element is given as its text: for whoever wants few of them. What is given is
/// good JSON, and nothing was made of it.
pub fn raw_elements(text: &str, mut each: impl FnMut(&str)) -> Result<bool, JsonError> {
    whole(text, |parser| parser.outer_array::<Skim>(&mut |element, _| each(element)))
}

/// What `read` makes of a text that holds nothing else.
fn whole<T>(
    text: &str,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, JsonError>,
) -> Result<T, JsonError> {
    let mut parser = Parser { text, at: 0 };
    parser.space();
    let read = read(&mut parser)?;
    parser.space();
    if parser.at < text.len() { Err(parser.expected("the end")) } else { Ok(read) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
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

    /// Gives `each` the elements of the array that stands here, or goes over the other value that
    /// does (`false`).
    fn outer_array<M: Make>(&mut self, each: &mut dyn FnMut(&str, M)) -> Result<bool, JsonError> {
        let is_array = self.peek() == Some(b'[');
        if is_array {
            self.items(0, each)?;
        } else {
            self.value::<Skim>(0)?;
        }
        Ok(is_array)
    }

    fn value<M: Make>(&mut self, depth: usize) -> Result<M, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooDeep { offset: self.at });
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => {
                let mut items = M::Items::default();
                self.items(depth, &mut |_, item| M::item(&mut items, item))?;
                Ok(M::array(items))
            }
            Some(b'"') => Ok(M::string(self.string::<M>()?)),
            Some(b'-' | b'0'..=b'9') => Ok(M::number(self.number()?)),
            _ => {
                let words = [
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                    ("null", Value::Null),
                ];
                for (word, value) in words {
                    if self.rest().starts_with(word) {
                        self.at += word.len();
                        return Ok(M::word(value));
                    }
                }
                Err(self.expected("a value"))
            }
        }
    }

    /// The elements of an array, each with its text.
    fn items<M: Make>(
        &mut self,
        depth: usize,
        each: &mut dyn FnMut(&str, M),
    ) -> Result<(), JsonError> {
        self.at += 1;
        self.space();
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.space();
            let from = self.at;
            let item = self.value(depth + 1)?;
            each(self.text.get(from..self.at).unwrap_or_default(), item);
            self.space();
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    fn object<M: Make>(&mut self, depth: usize) -> Result<M, JsonError> {
        self.at += 1;
        let mut members = M::Members::default();
        self.space();
        if self.eat(b'}') {
            return Ok(M::object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = self.string::<M>()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.expected("':'"));
            }
            self.space();
            let value = self.value(depth + 1)?;
            M::member(&mut members, key, value);
            self.space();
            if self.eat(b'}') {
                return Ok(M::object(members));
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    /// How many bytes stand here before a quote, an escape or a control character.
    fn plain(&self) -> usize {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len())
    }

    fn string<M: Make>(&mut self) -> Result<M::Text, JsonError> {
        self.at += 1;
        let mut out = M::Text::default();
        loop {
            let plain = self.plain();
            M::push(&mut out, self.text.get(self.at..self.at + plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    let mut utf8 = [0; 4];
                    M::push(&mut out, self.escape()?.encode_utf8(&mut utf8));
                }
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

    /// The text of a number.
    fn number(&mut self) -> Result<&'a str, JsonError> {
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
