// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Tables of what Node returns for the same input.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn again(text: &str) -> String {
    to_ascii(&parse(text.as_bytes()).unwrap())
}

#[test]
fn numbers_print_as_in_node() {
    let table = [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123_456_789_012_345_680_000.0, "123456789012345680000"),
        (1.5e-7, "1.5e-7"),
        (0.000001, "0.000001"),
        (0.00000123, "0.00000123"),
        (9_007_199_254_740_993.0, "9007199254740992"),
        (18_446_744_073_709_551_615.0, "18446744073709552000"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (f64::NAN, "null"),
        (f64::INFINITY, "null"),
    ];
    for (n, text) in table {
        assert_eq!(number_text(n), text);
        assert_eq!(to_ascii(&number(n)), text);
    }
}

#[test]
fn whole_numbers_become_integers() {
    assert_eq!(number(3.0), json!(3));
    assert_eq!(number(-0.0), json!(0));
    assert_eq!(number(0.5), json!(0.5));
    assert_eq!(number(f64::NEG_INFINITY), Value::Null);
}

#[test]
fn text_is_ascii() {
    let text = to_ascii("\u{e9}\u{1f980}\n\u{7f}\u{1}\"/");
    assert_eq!(text, "\"\\u00e9\\ud83e\\udd80\\n\u{7f}\\u0001\\\"/\"");
}

#[test]
fn dates_print_as_in_node() {
    let table = [
        (0.0, Some("1970-01-01T00:00:00.000Z")),
        (-1.0, Some("1969-12-31T23:59:59.999Z")),
        (1_449_000_000_123.9, Some("2015-12-01T20:00:00.123Z")),
        (951_782_400_000.0, Some("2000-02-29T00:00:00.000Z")),
        (253_402_300_800_000.0, Some("+010000-01-01T00:00:00.000Z")),
        (-62_198_755_200_000.0, Some("-000001-01-01T00:00:00.000Z")),
        (8.64e15, Some("+275760-09-13T00:00:00.000Z")),
        (8.64e15 + 1.0, None),
        (f64::NAN, None),
    ];
    for (ms, text) in table {
        assert_eq!(iso(ms).as_deref(), text, "{ms}");
    }
}

#[test]
fn reads_with_the_rules_of_javascript() {
    let table = [
        (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
        (r#"{"b":1,"10":2,"9":3,"01":4}"#, r#"{"9":3,"10":2,"b":1,"01":4}"#),
        ("[1.0,12345678901234567890,1e400,-1e400,-0]", "[1,12345678901234567000,null,null,0]"),
        (r#""\ud83e\udd80\ud800x\/""#, "\"\\ud83e\\udd80\\ufffdx/\""),
        (" \t\r\n[ ] ", "[]"),
    ];
    for (text, out) in table {
        assert_eq!(again(text), out);
    }
}

#[test]
fn refuses_other_text_than_json() {
    let texts = [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{'a':1}",
        "undefined",
        "01",
        "+1",
        ".5",
        "5.",
        "1e",
        "nul",
        "\u{feff}{}",
        "{\"a\":1} x",
        "\"\t\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"abc",
        "-",
        "[1 2]",
        "{\"a\" 1}",
    ];
    for text in texts {
        assert!(matches!(parse(text.as_bytes()), Err(JsonError::Syntax(_))), "{text}");
    }
    let error = parse(b"{\"a\":1,}").unwrap_err();
    assert_eq!(error.to_string(), "not JSON: trailing comma at line 1 column 8");
    let deep = "[".repeat(100_000);
    assert!(matches!(parse(deep.as_bytes()), Err(JsonError::TooDeep)));
    let edge = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert!(parse(edge.as_bytes()).is_ok());
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn never_panics_on_near_json(text in "[\\[\\]{}:,\"\\\\u0-9a-f.eE+ -]{0,60}") {
        let _ = parse(text.as_bytes());
    }

    #[test]
    fn written_text_reads_back(n in any::<f64>(), text in any::<String>()) {
        let value = json!({ "n": number(n), "t": text });
        let ascii = to_ascii(&value);
        prop_assert!(ascii.is_ascii());
        prop_assert_eq!(again(&ascii), ascii);
    }

    #[test]
    fn agrees_with_jiff_on_dates(ms in -62_000_000_000_000_i64..250_000_000_000_000) {
        let time = jiff::Timestamp::from_millisecond(ms).unwrap();
        prop_assert_eq!(iso(ms as f64).unwrap(), format!("{time:.3}"));
    }
}
