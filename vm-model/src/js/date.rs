// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Dates.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The last millisecond that a JavaScript date can hold, before and after 1970.
const LAST_MS: f64 = 8.64e15;
/// The calendar repeats every 400 years. JavaScript's years go further than jiff's.
const CYCLE_YEARS: i64 = 400;
const CYCLE_MS: i64 = 146_097 * 86_400_000;

/// Milliseconds since 1970 as an ISO time in UTC; `None` if a JavaScript date cannot hold them.
pub fn iso(ms: f64) -> Option<String> {
    if ms.is_nan() || ms.abs() > LAST_MS {
        return None;
    }
    let ms = ms.trunc() as i64;
    let in_cycle =
        Timestamp::from_millisecond(ms.rem_euclid(CYCLE_MS)).ok()?.to_zoned(TimeZone::UTC);
    let year = i64::from(in_cycle.year()) + ms.div_euclid(CYCLE_MS) * CYCLE_YEARS;
    let year = match year {
        0..=9999 => format!("{year:04}"),
        _ => format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs()),
    };
    Some(format!("{year}-{}", in_cycle.strftime("%m-%dT%H:%M:%S%.3fZ")))
}
