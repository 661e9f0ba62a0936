// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The wall clock, which may be wrong: it is shown and stored, and nothing fails because of it.

use std::time::SystemTime;

use jiff::Timestamp;

/// Returns the time of day; the last or first one that can be written if the clock is beyond it.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    let limit = match time < SystemTime::UNIX_EPOCH {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    Timestamp::try_from(time).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test] // F78
    fn any_clock_has_a_timestamp() {
        let year = Duration::from_secs(365 * 86_400);
        for years in [8_035, 8_100, 100_000] {
            let time = timestamp(SystemTime::UNIX_EPOCH + year * years);
            assert!(time.to_string().starts_with("9999-12-") || years == 8_035, "{time}");
            assert!(!format!("{time:.0} {time:.3}").is_empty());
        }
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
        let early = SystemTime::UNIX_EPOCH.checked_sub(year * 20_000).unwrap();
        assert_eq!(timestamp(early), Timestamp::MIN);
    }
}
