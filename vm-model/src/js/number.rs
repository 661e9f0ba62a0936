// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Numbers: every number is a double.

use serde_json::{Number, Value};

/// Up to here every integer is a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The JSON value of a double: an integer if it is whole, null if it is not finite.
pub fn number(n: f64) -> Value {
    match whole(n) {
        Some(whole) => Value::Number(Number::from(whole)),
        None => Number::from_f64(n).map_or(Value::Null, Value::Number),
    }
}

/// The text that Node prints for a double.
pub fn number_text(n: f64) -> String {
    if let Some(whole) = whole(n) {
        return whole.to_string();
    }
    if !n.is_finite() {
        return "null".to_owned();
    }
    // The shortest digits that read back as the same double, as d.ddde-x.
    let text = format!("{:e}", n.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.replace('.', "");
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let len = digits.len() as i32;
    let sign = if n < 0.0 { "-" } else { "" };
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    if len <= point && point <= 21 {
        format!("{sign}{digits}{}", zeros(point - len))
    } else if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at(point as usize);
        format!("{sign}{whole}.{rest}")
    } else if -6 < point && point <= 0 {
        format!("{sign}0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let plus = if point > 0 { "+" } else { "-" };
        format!("{sign}{first}{dot}{rest}e{plus}{}", (point - 1).abs())
    }
}

/// The integer that a double is equal to, as nearly all numbers are.
pub(super) fn whole(n: f64) -> Option<i64> {
    (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64)
}
