// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Entity tags and the two conditional headers.

use http::HeaderMap;

/// The tag of a stored record: CRC-32 of its text, eight upper-case digits.
pub(super) fn of(text: &str) -> String {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    format!("{:08X}", !crc)
}

/// The tag of a record touched by a bulk update.
pub(super) fn bulk(random: u32) -> String {
    format!("u{:07x}", random & 0x0FFF_FFFF)
}

fn matches(list: &str, etag: &str) -> bool {
    list.split(',').map(str::trim).any(|tag| {
        let tag = tag.strip_prefix("W/").unwrap_or(tag);
        let bare = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(tag);
        let word = bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        tag == "*" || tag == etag || (word && bare == etag)
    })
}

/// What the conditional headers of a request say about a record.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Go,
    NotModified,
    Failed(String),
}

/// Judges the request's conditional headers against the record's tag.
pub(super) fn judge(headers: &HeaderMap, reads: bool, etag: &str) -> Verdict {
    let header =
        |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty());
    if let Some(sent) = header("if-match").filter(|sent| !matches(sent, etag)) {
        return Verdict::Failed(format!("if-match '{sent}' didn't match etag '{etag}'"));
    }
    match header("if-none-match") {
        Some(sent) if matches(sent, etag) => {
            if reads {
                Verdict::NotModified
            } else {
                Verdict::Failed(format!("if-none-match '{sent}' matched etag '{etag}'"))
            }
        }
        _ => Verdict::Go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_the_usual_one() {
        assert_eq!(of("123456789"), "CBF43926");
    }

    #[test]
    fn lists_quotes_and_case() {
        assert!(matches("DEADBEEF, \"CBF43926\"", "CBF43926"));
        assert!(matches("W/\"CBF43926\"", "CBF43926"));
        assert!(!matches("cbf43926", "CBF43926"));
    }
}
