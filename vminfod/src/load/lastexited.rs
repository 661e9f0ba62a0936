// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! ZONEPATH/lastexited: when and how the zone's init last ended.

use super::times::{self, Opened};
use super::{LoadError, Origin, ZoneRow, there};
use crate::json;
use crate::root::Root;
use crate::vm::convert::{is_space, to_int32, to_number, trim};

const CAP: u64 = 64 * 1024;

/// One end of init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastExited {
    /// Exit status, or minus the signal with the core flag still in it.
    pub status: i64,
    /// When, in milliseconds since 1970: what a date can hold.
    ms: i64,
}

impl LastExited {
    /// When, as an ISO time.
    pub fn timestamp(&self) -> String {
        json::iso(self.ms as f64).expect("invariant: it was a date when it was read")
    }
}

/// Reads the file of one zone; `None` if it is not there or not of that form; where it may block.
pub(super) fn read(
    root: &Root,
    row: &ZoneRow,
    opened: &mut Opened,
) -> Result<Option<LastExited>, LoadError> {
    let path = root.lastexited(&row.zonepath);
    match there(Origin::LastExited, &path, root.read_unlinked(&path, CAP))? {
        Some(content) => {
            opened.note(times::LAST_EXITED, &content.stat);
            parse(&content.bytes).map_err(|e| e.in_file(path))
        }
        None => Ok(None),
    }
}

/// `SECONDS STATUS`. Anything but two words is no record; a time that is none is an error.
pub fn parse(bytes: &[u8]) -> Result<Option<LastExited>, LoadError> {
    let text = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = trim(&text).split(is_space).collect();
    let [seconds, status] = words[..] else {
        return Ok(None);
    };
    let ms = to_number(seconds) * 1000.0;
    if json::iso(ms).is_none() {
        let what = format!("expected seconds since 1970, found {seconds:?}");
        return Err(LoadError::line(Origin::LastExited, 1, what));
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
    fn two_words_or_nothing() {
        let end = parse(b" 1449000000.123456789\t256\n").unwrap().unwrap();
        assert_eq!((end.status, &*end.timestamp()), (1, "2015-12-01T20:00:00.123Z"));
        for text in ["", "1449000000\n", "1449000000  0\n", "1 2 3"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), None, "{text:?}");
        }
    }

    #[test]
    fn a_time_that_is_none_is_an_error() {
        for text in ["never 0", "1e300 0"] {
            assert!(parse(text.as_bytes()).is_err());
        }
        let error = parse(b"never 0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "lastexited: line 1: expected seconds since 1970, found \"never\""
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
        }
    }
}
