// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Points in time as the records spell them.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The first and the last day of the years that are written with four digits, in ms since 1970.
const YEAR_0: i64 = -62_167_219_200_000;
const YEAR_9999: i64 = 253_402_000_000_000;

/// A point in time with the milliseconds that JavaScript's dates have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(i64);

impl Time {
    /// Returns the time that is so many milliseconds after 1970; times outside the years that can be
    /// written become the first or the last of them.
    pub const fn from_millis(millis: i64) -> Time {
        let millis = if millis < YEAR_0 { YEAR_0 } else { millis };
        Time(if millis > YEAR_9999 { YEAR_9999 } else { millis })
    }

    /// Reads an ISO 8601 text with an offset.
    pub fn parse(text: &str) -> Option<Time> {
        Some(Time::from_millis(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()))
    }

    /// Returns the milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Returns the milliseconds from `earlier` to this; negative if it is later.
    pub fn since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time so many milliseconds later.
    pub fn plus(self, millis: i64) -> Time {
        Time::from_millis(self.0.saturating_add(millis))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).map_err(|_| std::fmt::Error)?;
        write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ"))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| D::Error::custom("not a time in ISO 8601 with an offset"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Time;

    #[test]
    fn a_time_is_written_as_javascript_writes_dates() {
        for text in ["2026-11-22T16:20:45.422Z", "1970-01-01T00:00:00.000Z"] {
            assert_eq!(Time::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Time::parse("2026-02-01T12:00:00+02:00").unwrap().to_string(),
            "2026-02-01T10:00:00.000Z"
        );
        for text in ["", "tomorrow", "2026-02-01", "2026-02-01T10:00:00", "2026-13-01T00:00:00Z"] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_stay_within_the_years_that_can_be_written() {
        for millis in [i64::MIN, i64::MAX] {
            assert!(!Time::from_millis(millis).plus(millis).to_string().is_empty());
        }
    }
}
