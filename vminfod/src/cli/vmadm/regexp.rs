// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Regular expressions of ECMAScript, as filters are written in them: with look-ahead and back
//! references, on UTF-16 code units as the shipped program matches them.
//!
//! The library backtracks, so a pattern such as `(a+)+$` can take for ever. That costs only the time
//! of the user who typed it: no daemon matches patterns, and [`super::run`] gives up after a deadline.

use regress::{Flags, Regex};

/// A pattern, compiled.
#[derive(Debug)]
pub struct Regexp(Regex);

impl Regexp {
    /// Compiles a pattern.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Regexp, regress::Error> {
        let flags = Flags { icase: ignore_case, ..Flags::default() };
        Ok(Regexp(Regex::from_unicode(pattern.encode_utf16().map(u32::from), flags)?))
    }

    /// Returns true if it matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        let units: Vec<u16> = text.encode_utf16().collect();
        self.0.find_from_ucs2(&units, 0).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_and_misses() {
        let table = [
            ("^RUN", "running", true),
            ("^un", "running", false),
            ("ing$", "running", true),
            ("", "", true),
            ("^10[.]1", "10.1.2.3", true),
            ("^10[.]1", "1001", false),
            ("a.c", "a\nc", false),
            ("[^a-c]", "abcABC", false),
            ("[^a-c]", "abcd", true),
            ("^(web|db)-\\d+$", "DB-12", true),
            ("^(?!web)", "web-1", false),
            ("^(?!web)", "db-1", true),
            ("^(?=.*1)(?=.*2)", "x2y1", true),
            ("(a)(b)?\\2c", "ac", true),
            ("^(..)\\1$", "abAB", true),
            ("^(..)\\1$", "abba", false),
            ("^a{2,3}$", "aaaa", false),
            ("^a{2,3}$", "aaa", true),
            ("^a{,3}$", "a{,3}", true),
            ("x{", "x{", true),
            ("]", "]", true),
            ("[]", "a", false),
            ("[^]", "\n", true),
            ("^(a*)*$", "aaab", false),
            ("^(?:a*?)*?b", "aab", true),
            ("\\bdb\\b", "my db here", true),
            ("\\bdb\\b", "mydb", false),
            ("\\Bdb", "mydb", true),
            ("^[\\w-]+$", "a-b_C9", true),
            ("^[\\d-x]+$", "1-x", true),
            ("\\x41\\u0042\\103", "abc", true),
            ("\\0", "\0", true),
            ("\\cA", "\u{1}", true),
            ("[\\b]", "\u{8}", true),
            ("\\.", "a", false),
            ("é", "É", true),
            ("[à-þ]", "É", true),
            ("[A-Z]", "q", true),
            ("ß", "SS", false),
            ("\\s", "\u{a0}", true),
            ("\\S", "\u{feff}", false),
            ("^.$", "\u{1f600}", false),
            ("^..$", "\u{1f600}", true),
            ("a|", "", true),
            ("(?:)", "x", true),
            ("(z)((a+)?(b+)?(c))*\\4$", "zaacbbbcac", true),
        ];
        for (pattern, text, expected) in table {
            let regexp = Regexp::new(pattern, true).unwrap();
            assert_eq!(regexp.is_match(text), expected, "/{pattern}/i on {text:?}");
        }
        assert!(!Regexp::new("A", false).unwrap().is_match("a"));
        // Long texts cost no stack.
        assert!(Regexp::new("^(?:a|b)*$", true).unwrap().is_match(&"ab".repeat(100_000)));
    }

    #[test]
    fn refuses_what_is_no_pattern() {
        for pattern in ["*", "a**", "{2}", "^*", "(", ")", "[a", "[b-a]", "a{3,2}", "\\"] {
            assert!(Regexp::new(pattern, true).is_err(), "/{pattern}/");
        }
        assert!(Regexp::new(&"(".repeat(10_000), true).is_err());
    }
}
