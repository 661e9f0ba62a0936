// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The version of a record.

use std::fmt;

/// The version of a record: an opaque text that each write changes. No two writes of a store give the
/// same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Etag(String);

impl Etag {
    /// Takes the text that a client sent back. A text that no write gave matches no record.
    pub fn from_text(text: impl Into<String>) -> Etag {
        Etag(text.into())
    }

    /// The etag of the write with this number.
    pub(crate) fn of(number: i64) -> Etag {
        Etag(format!("{number:016X}"))
    }

    /// The number of the write that gave it, if one did.
    pub(crate) fn number(&self) -> Option<i64> {
        i64::from_str_radix(&self.0, 16).ok().filter(|number| Etag::of(*number) == *self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_a_write_gave_has_a_number() {
        for number in [0, 1, 0xAB, i64::MAX] {
            let text = Etag::of(number).to_string();
            assert_eq!(Etag::from_text(text).number(), Some(number));
        }
        for text in ["", "1", "00000000000000ab", "+00000000000000AB", "é", "-000000000000001"] {
            assert_eq!(Etag::from_text(text).number(), None, "{text}");
        }
    }
}
