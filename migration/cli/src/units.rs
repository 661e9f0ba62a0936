// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Durations, rates and sizes as the shipped `sdc-migrate` prints them, and as people read them. Pure.

/// Units of a duration: the name, and how many of the unit before it make one.
const SHORT: [(&str, u64); 6] = [("s", 1000), ("m", 60), ("h", 60), ("d", 24), ("w", 7), ("y", 52)];
const LONG: [(&str, u64); 5] = [("s", 1000), ("m", 60), ("h", 60), ("d", 24), ("y", 365)];

/// Returns a duration in its largest unit; less than a second is nothing.
pub(super) fn short(ms: u64) -> String {
    parts(ms, &SHORT).last().cloned().unwrap_or_default()
}

/// Returns a duration in all its units, `1h0m5s`; less than a second is nothing.
pub(super) fn long(ms: u64) -> String {
    parts(ms, &LONG).into_iter().rev().collect()
}

/// Returns each unit of a duration, seconds first.
fn parts(ms: u64, units: &[(&str, u64)]) -> Vec<String> {
    let mut parts = Vec::new();
    let mut left = ms;
    for (at, (name, size)) in units.iter().enumerate() {
        left /= size;
        if left == 0 {
            break;
        }
        let shown = units.get(at + 1).map_or(left, |(_, next)| left % next);
        parts.push(format!("{shown}{name}"));
    }
    parts
}

/// Returns a rate in bytes per second.
pub(super) fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", scaled(bytes_per_second, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]))
}

/// Returns a number of bytes.
pub(super) fn bytes(count: u64) -> String {
    scaled(count, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

fn scaled(count: u64, units: &[&str]) -> String {
    let (mut size, mut at) = (count as f64, 0);
    while size > 1024.0 && at + 1 < units.len() {
        size /= 1024.0;
        at += 1;
    }
    format!("{size:.1}{}", units[at])
}

/// Returns the percentage of a progress, if it has one.
pub(super) fn percent(current: Option<u64>, total: Option<u64>) -> Option<u64> {
    let (current, total) = (u128::from(current?), u128::from(total?));
    (current * 100).checked_div(total).map(|percent| percent.min(100) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_are_those_of_the_shipped_tool() {
        const DAY: u64 = 86_400_000;
        for (ms, as_short, as_long) in [
            (0, "", ""),
            (999, "", ""),
            (9000, "9s", "9s"),
            (65_000, "1m", "1m5s"),
            (3_600_000, "1h", "1h0m0s"),
            (2 * DAY + 1000, "2d", "2d0h0m1s"),
            (15 * DAY, "2w", "15d0h0m0s"),
            (800 * DAY, "2y", "2y70d0h0m0s"),
        ] {
            assert_eq!((short(ms).as_str(), long(ms).as_str()), (as_short, as_long), "{ms}");
        }
        for (count, text) in [
            (10, "10.0B/s"),
            (1024, "1024.0B/s"),
            (1536, "1.5kB/s"),
            (62_500_000, "59.6MB/s"),
            (u64::MAX, "16.0EB/s"),
        ] {
            assert_eq!(rate(count), text);
        }
        assert_eq!(bytes(268_435_456), "256.0MiB");
    }

    #[test]
    fn a_percentage_needs_a_total_and_is_at_most_a_hundred() {
        for (current, total, want) in [
            (Some(1), Some(3), Some(33)),
            (Some(5), Some(4), Some(100)),
            (Some(1), Some(0), None),
            (None, Some(4), None),
            (Some(u64::MAX), Some(u64::MAX), Some(100)),
        ] {
            assert_eq!(percent(current, total), want);
        }
    }
}
