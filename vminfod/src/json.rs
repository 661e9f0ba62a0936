// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! JSON as the deployed daemon reads and writes it: doubles only, the last of repeated keys, keys
//! that look like array indexes first; written compact, in ASCII, with Node's text for numbers.
//!
//! Nothing here knows what the values mean.

mod make;
mod parse;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::{Number, Value};

pub use parse::{JsonError, MAX_DEPTH, elements, parse, raw_elements};

/// The widest integer range in which every double is exact.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// The last millisecond a JavaScript date can hold, either side of 1970.
const LAST_MS: f64 = 8.64e15;

/// How many texts were written since the program began.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// How many values were written as JSON since the program began: what a promise to serialise once
/// is checked by.
pub fn serialisations() -> usize {
    WRITTEN.load(Ordering::Relaxed)
}

/// What a program or a file says, as text: bytes that are not UTF-8 count as U+FFFD. Good text, which
/// nearly all is, is looked through faster than a repair would.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Compact JSON text of pure ASCII.
pub fn to_ascii<T: Serialize + ?Sized>(value: &T) -> String {
    let mut text = Vec::new();
    write_ascii(&mut text, value);
    String::from_utf8(text).unwrap_or_else(|_| "null".to_owned())
}

/// The same behind what is written already.
pub fn write_ascii<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    let before = text.len();
    let mut serializer = serde_json::Serializer::with_formatter(&mut *text, Ascii);
    // Writing to memory cannot fail; a map whose keys are no strings can, and prints as null.
    if value.serialize(&mut serializer).is_err() {
        text.truncate(before);
        text.extend_from_slice(b"null");
    }
}

/// Compact JSON text, for what is kept and never sent: other characters than ASCII as they are.
pub fn compact(value: &Value) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Plain);
    // Writing a value to memory cannot fail.
    if value.serialize(&mut serializer).is_err() {
        return "null".to_owned();
    }
    String::from_utf8(text).unwrap_or_else(|_| "null".to_owned())
}

/// A double as a JSON value: whole numbers as integers, what is not finite as null.
pub fn number(n: f64) -> Value {
    match whole(n) {
        Some(whole) => Value::Number(Number::from(whole)),
        None => Number::from_f64(n).map_or(Value::Null, Value::Number),
    }
}

/// Milliseconds since 1970 as an ISO time in UTC; `None` outside of what a date can hold.
pub fn iso(ms: f64) -> Option<String> {
    if ms.is_nan() || ms.abs() > LAST_MS {
        return None;
    }
    let ms = ms.trunc() as i64;
    let (days, in_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (h, m, s, ms) =
        (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1000 % 60, in_day % 1000);
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs()),
    };
    Some(format!("{year}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z"))
}

/// The Gregorian date of a day counted from 1970-01-01: eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// A double as Node prints it.
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

/// What of a double is an integer that prints as one: nearly all numbers there are.
fn whole(n: f64) -> Option<i64> {
    (n.fract() == 0.0 && n.abs() <= EXACT).then_some(n as i64)
}

/// Writes a double as Node does.
fn write_double<W: ?Sized + Write>(out: &mut W, n: f64) -> io::Result<()> {
    match whole(n) {
        Some(whole) => CompactFormatter.write_i64(out, whole),
        None => out.write_all(number_text(n).as_bytes()),
    }
}

/// Numbers as Node writes them.
struct Plain;

impl Formatter for Plain {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, n: f64) -> io::Result<()> {
        write_double(out, n)
    }
}

/// The same, and in ASCII.
struct Ascii;

impl Formatter for Ascii {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, n: f64) -> io::Result<()> {
        write_double(out, n)
    }

    fn write_i64<W: ?Sized + Write>(&mut self, out: &mut W, n: i64) -> io::Result<()> {
        write_double(out, n as f64)
    }

    fn write_u64<W: ?Sized + Write>(&mut self, out: &mut W, n: u64) -> io::Result<()> {
        write_double(out, n as f64)
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| !c.is_ascii()) {
            let (plain, from) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut chars = from.chars();
            let mut units = [0; 2];
            for unit in chars.next().map(|c| &*c.encode_utf16(&mut units)).unwrap_or_default() {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = chars.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests;
