// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Addresses as NAPI keeps them: a number, printed with colons.

use serde_json::Value;

/// Parses the spellings NAPI takes: bare, or six octets parted by colons or by dashes.
pub(super) fn parse(text: &str) -> Option<u64> {
    let separator = if text.contains(':') {
        ':'
    } else if text.contains('-') {
        '-'
    } else {
        if text.len() != 12 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        return u64::from_str_radix(text, 16).ok();
    };
    let mut value = 0;
    let mut octets = 0;
    for octet in text.split(separator) {
        if octet.is_empty() || octet.len() > 2 || !octet.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        value = value << 8 | u64::from_str_radix(octet, 16).ok()?;
        octets += 1;
        if octets > 6 {
            return None;
        }
    }
    (octets == 6).then_some(value)
}

/// As [`parse`], for a JSON value; numbers are taken as they are.
pub(super) fn from_value(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => number.as_u64().filter(|n| *n < 1 << 48),
        _ => None,
    }
}

/// The canonical form.
pub(super) fn print(mac: u64) -> String {
    let [_, _, octets @ ..] = mac.to_be_bytes();
    octets.map(|octet| format!("{octet:02x}")).join(":")
}
