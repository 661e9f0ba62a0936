// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What patterns match, by ECMAScript 5.

use super::*;

fn matches(pattern: &str, text: &str) -> bool {
    Regexp::new(pattern, true).unwrap().is_match(text).unwrap()
}

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
        assert_eq!(matches(pattern, text), expected, "/{pattern}/i on {text:?}");
    }
    assert!(!Regexp::new("A", false).unwrap().is_match("a").unwrap());
}

#[test]
fn what_is_no_pattern_says_why() {
    for (pattern, fault) in [
        ("*", Fault::NothingToRepeat),
        ("a**", Fault::NothingToRepeat),
        ("{2}", Fault::NothingToRepeat),
        ("^*", Fault::NothingToRepeat),
        ("(", Fault::OpenGroup),
        (")", Fault::StrayGroupEnd),
        ("[a", Fault::OpenClass),
        ("[b-a]", Fault::Range),
        ("a{3,2}", Fault::Quantifier),
        ("\\", Fault::LoneBackslash),
        ("(?<n>x)", Fault::Group),
        ("(((a{1000}){1000}){1000}){1000}", Fault::TooLarge),
    ] {
        assert_eq!(Regexp::new(pattern, true).unwrap_err(), fault, "/{pattern}/");
    }
    assert_eq!(Regexp::new(&"(".repeat(10_000), true).unwrap_err(), Fault::TooLarge);
}

#[test]
fn a_match_that_never_ends_is_given_up() {
    let evil = Regexp::new("^(a+)+$", true).unwrap();
    assert_eq!(evil.is_match(&format!("{}b", "a".repeat(40))), Err(TooLong));
    // Long texts cost no stack.
    assert_eq!(Regexp::new("^(?:a|b)*$", true).unwrap().is_match(&"ab".repeat(100_000)), Ok(true));
}
