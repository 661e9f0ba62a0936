// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Text → value.

use std::borrow::Cow;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use super::number::number;

const MIB: f64 = 1_048_576.0;

/// Returns the bytes as text; bytes that are not UTF-8 become U+FFFD.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    // The check alone is faster than a repair that finds nothing.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Returns true for what JavaScript's `trim` removes.
pub fn is_space(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

/// Returns the text without white space around it.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Returns the number that a text stands for: 0 for an empty text, NaN for a text that is not a number.
pub fn to_number(text: &str) -> f64 {
    let text = trim(text);
    if text.is_empty() {
        return 0.0;
    }
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return from_hex(hex);
    }
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1.0, text.get(1..).unwrap_or_default()),
        [b'+', ..] => (1.0, text.get(1..).unwrap_or_default()),
        _ => (1.0, text),
    };
    if digits == "Infinity" {
        return sign * f64::INFINITY;
    }
    // Rust reads the same decimal numbers, and also words such as `inf`.
    let decimal =
        digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
            && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if decimal { digits.parse().map_or(f64::NAN, |n: f64| sign * n) } else { f64::NAN }
}

fn from_hex(digits: &str) -> f64 {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return f64::NAN;
    }
    match u128::from_str_radix(digits, 16) {
        Ok(n) => n as f64,
        Err(_) => {
            digits.chars().filter_map(|c| c.to_digit(16)).fold(0.0, |n, d| n * 16.0 + f64::from(d))
        }
    }
}

/// Returns the number that a text stands for; null if there is no text or it is not a number.
pub fn number_value(text: Option<&str>) -> Value {
    number(text.map_or(f64::NAN, to_number))
}

/// Returns bytes as MiB with their fraction.
pub fn mib(bytes: f64) -> Value {
    number(bytes / MIB)
}

/// Returns a boolean for `true` and `false`, any other text as it is.
pub fn bool_value(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => Value::from(text),
    }
}

/// Returns the parts between commas, not trimmed.
pub fn comma_split(text: &str) -> Value {
    text.split(',').map(Value::from).collect()
}

/// Decodes base64: characters outside the alphabet are skipped, the padding may be missing.
pub fn base64_text(text: &str) -> String {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::RequireNone)
            .with_decode_allow_trailing_bits(true),
    );
    let mut clean: Vec<u8> = text
        .bytes()
        .filter_map(|b| match b {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/') => Some(b),
            _ => None,
        })
        .collect();
    if clean.len() % 4 == 1 {
        clean.pop();
    }
    let bytes = LENIENT.decode(clean).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Converts a number as JavaScript's bit operators do.
pub fn to_int32(n: f64) -> i32 {
    if !n.is_finite() {
        return 0;
    }
    n.trunc().rem_euclid(4_294_967_296.0) as u32 as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn numbers() {
        let table = [
            ("", 0.0),
            (" \u{a0}\u{feff}42\n", 42.0),
            ("5.", 5.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("+7", 7.0),
            ("-5", -5.0),
            ("0x10", 16.0),
            ("0Xff", 255.0),
            ("0777", 777.0),
            ("9007199254740993", 9007199254740992.0),
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1.5E-3", 0.0015),
        ];
        for (text, n) in table {
            assert_eq!(to_number(text), n, "{text:?}");
        }
        for text in [
            "abc", "1,5", "1_000", "-0x10", "0x", "0xg", ".", "e5", "1e", "--1", "inf", "nan",
            "NaN", "1 2", "-", "0b1", "infinity", "+-1",
        ] {
            assert!(to_number(text).is_nan(), "{text:?}");
        }
        assert_eq!(number_value(Some("-0")), json!(0));
        assert_eq!(number_value(None), json!(null));
        assert_eq!(mib(to_number("1048576.5")), json!(1.000_000_476_837_158_2));
    }

    #[test]
    fn booleans_and_lists() {
        assert_eq!(bool_value("true"), json!(true));
        for text in ["TRUE", "1", "", " true"] {
            assert_eq!(bool_value(text), json!(text));
        }
        assert_eq!(comma_split(""), json!([""]));
        assert_eq!(comma_split("a, b,"), json!(["a", " b", ""]));
    }

    #[test]
    fn base64() {
        let table = [
            ("cnVubmVyLTc5", "runner-79"),
            ("aGVsbG8", "hello"),
            ("aGVsbG8==", "hello"),
            ("aGVs bG8=", "hello"),
            ("Y", ""),
            ("YQ", "a"),
            ("====", ""),
            ("!!!!", ""),
            ("gICA", "\u{fffd}\u{fffd}\u{fffd}"),
            ("/w==", "\u{fffd}"),
            ("_-_-", "\u{fffd}\u{fffd}\u{fffd}"),
            ("AG51bA==", "\0nul"),
            ("YR", "a"),
        ];
        for (text, out) in table {
            assert_eq!(base64_text(text), out, "{text:?}");
        }
    }

    #[test]
    fn bits() {
        for (n, bits) in [
            (4294967295.0, -1),
            (2147483648.0, i32::MIN),
            (-256.0, -256),
            (2.7, 2),
            (-2.7, -2),
            (f64::NAN, 0),
        ] {
            assert_eq!(to_int32(n), bits, "{n}");
        }
    }

    proptest! {
        #[test]
        fn any_text_converts(text in any::<String>()) {
            to_number(&text);
            base64_text(&text);
        }

        #[test]
        fn printed_numbers_read_back(n in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            prop_assert_eq!(to_number(&crate::js::number_text(n)), n);
        }
    }
}
