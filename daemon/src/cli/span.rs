// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Durations for people, in the format in which flags and configuration take them: `45s`, `12m30s`, `2h5m`,
//! `3d4h`.

use std::time::Duration;

use jiff::Timestamp;

/// Returns a duration with its two largest units; less than a second as milliseconds.
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    if seconds == 0 && !length.is_zero() {
        return format!("{}ms", length.as_millis());
    }
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let large = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut rest = seconds;
    let mut text = String::new();
    for (size, unit) in units.iter().skip(large).take(2) {
        if rest >= *size || text.is_empty() {
            text += &format!("{}{unit}", rest / size);
        }
        rest %= size;
    }
    text
}

/// Returns how long it is until this time, in whole seconds that have begun.
pub fn left(at: Timestamp, now: Timestamp) -> String {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    span(Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
}

/// Returns how long ago this was, `2h5m ago`; `now` if it is to come.
pub fn ago(at: Timestamp) -> String {
    let passed = Duration::try_from(crate::wall::now().duration_since(at)).unwrap_or_default();
    if passed.as_secs() == 0 { "now".to_owned() } else { format!("{} ago", span(passed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed() {
        for (seconds, text) in [
            (0, "0s"),
            (45, "45s"),
            (60, "1m"),
            (750, "12m30s"),
            (7500, "2h5m"),
            (7201, "2h"),
            (273_600, "3d4h"),
        ] {
            let length = Duration::from_secs(seconds);
            assert_eq!(span(length), text);
            if !text.contains('d') && seconds != 7201 {
                assert_eq!(crate::config::parse_span(text), Ok(length));
            }
        }
        assert_eq!(span(Duration::from_millis(250)), "250ms");
    }
}
