// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `ZONEPATH/lastexited`: when and how the zone's init last ended.

use crate::js::{is_space, iso, to_int32, to_number, trim};
use crate::origin::{Origin, ParseError};

/// The end of init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastExited {
    /// The exit status, or minus the signal; the signal includes the core flag.
    pub status: i64,
    /// When, in milliseconds since 1970.
    ms: i64,
}

impl LastExited {
    /// Returns when, as an ISO time.
    pub fn timestamp(&self) -> String {
        iso(self.ms as f64).expect("invariant: `parse` checked that it is a date")
    }
}

/// Parses `SECONDS STATUS`; `None` for another number of words.
pub fn parse(bytes: &[u8]) -> Result<Option<LastExited>, ParseError> {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = trim(&text).split(is_space).collect();
    let [seconds, status] = words[..] else {
        return Ok(None);
    };
    let ms = to_number(seconds) * 1000.0;
    if iso(ms).is_none() {
        let what = format!("expected seconds since 1970, found {seconds:?}");
        return Err(ParseError::line(Origin::LastExited, 1, what));
    }
    Ok(Some(LastExited { status: exit_status(to_number(status)), ms: ms as i64 }))
}

fn exit_status(status: f64) -> i64 {
    let bits = to_int32(status);
    match bits & 0xff {
        _ if status == -1.0 => 0,
        0 => i64::from(bits >> 8),
        low => -i64::from(low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statuses() {
        let table = [
            ("0", 0),
            ("256", 1),
            ("32512", 127),
            ("15", -15),
            ("139", -139),
            ("-1", 0),
            ("abc", 0),
            ("0x100", 1),
            ("-256", -1),
            ("-2", -254),
            ("4294967295", -255),
            ("2.7", -2),
            ("", 0),
        ];
        for (text, status) in table {
            assert_eq!(exit_status(to_number(text)), status, "{text}");
        }
    }

    #[test]
    fn a_record_has_two_words() {
        let end = parse(b" 1449000000.123456789\t256\n").unwrap().unwrap();
        assert_eq!((end.status, &*end.timestamp()), (1, "2015-12-01T20:00:00.123Z"));
        for text in ["", "1449000000\n", "1449000000  0\n", "1 2 3"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), None, "{text:?}");
        }
    }

    #[test]
    fn refuses_a_time_that_is_no_date() {
        for seconds in ["never", "1e300"] {
            let error = parse(format!("{seconds} 0").as_bytes()).unwrap_err().to_string();
            let expected = "lastexited: line 1: expected seconds since 1970, found";
            assert_eq!(error, format!("{expected} {seconds:?}"));
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
        }
    }
}
