// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When a scheduled migration syncs and switches (RFD 34, R21).
//!
//! A VM is down while it switches, so the time of a switch is chosen by people. The syncs before it keep the last one
//! short, and that one is to be over when the time comes.

use sdc_clients::quoted;

use crate::record::{Phase, Record, State};
use crate::time::Time;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The last sync ends so much before the time, to be done when the time comes.
const MARGIN: i64 = MINUTE / 2;

/// Why a time cannot be the time of a switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTime {
    /// Neither ISO 8601 nor a number and a unit.
    #[error(
        "expected a time such as 2026-03-01T02:00:00Z, or a wait such as \"2 days\"; found {}",
        quoted(.0)
    )]
    Unreadable(String),
    /// It has passed.
    #[error("{0} has passed")]
    Past(Time),
    /// More than a year from now.
    #[error("{0} is more than a year away")]
    Far(Time),
}

/// Reads a time in ISO 8601, or a wait such as `2 days` or `90 minutes` from now.
pub fn read(text: &str, now: Time) -> Result<Time, BadTime> {
    let bad = || BadTime::Unreadable(text.to_owned());
    let time = match Time::parse(text.trim()) {
        Some(time) => time,
        None => now.plus(wait(text.trim()).ok_or_else(bad)?),
    };
    if time < now {
        return Err(BadTime::Past(time));
    }
    if time.since(now) > 366 * DAY {
        return Err(BadTime::Far(time));
    }
    Ok(time)
}

/// Reads a whole number and a unit, in ms; `from now` may follow.
fn wait(text: &str) -> Option<i64> {
    let text = text.strip_suffix("from now").map_or(text, str::trim_end);
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: i64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim_start() {
        "m" | "min" | "minute" | "minutes" => MINUTE,
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        _ => return None,
    };
    count.checked_mul(unit)
}

/// Sets the time of the switch, or another one. What is paused waits for it from now on.
pub fn set(record: &mut Record, time: Time) {
    record.scheduled_timestamp = Some(time);
    if record.phase == Phase::Sync && record.state == State::Paused {
        record.state = State::Scheduled;
    }
}

/// Forgets the time of the switch. What waited for it is paused.
pub fn unset(record: &mut Record) {
    record.scheduled_timestamp = None;
    if record.state == State::Scheduled {
        record.state = State::Paused;
    }
}

/// What a scheduled migration does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this time.
    Wait(Time),
    /// The sync that ends shortly before the switch.
    Sync,
    Switch,
    /// It is too late: it does not start by itself, and an alarm says so.
    Late,
}

/// Says what a record that waits for its time does at `now`.
///
/// `sync_ms` is how long the next sync is expected to take, `leeway_ms` how late a switch may start
/// (`schedule_leeway`).
pub fn due(record: &Record, sync_ms: i64, leeway_ms: i64, now: Time) -> Option<Due> {
    let time = record.scheduled_timestamp?;
    let start = time.plus(-sync_ms.max(0) - MARGIN);
    if now > time.plus(leeway_ms) {
        return Some(Due::Late);
    }
    if now >= time {
        return Some(Due::Switch);
    }
    if now < start {
        return Some(Due::Wait(start));
    }
    let last = record.progress_history.last().and_then(|entry| entry.started_timestamp);
    let is_fresh = last.is_some_and(|started| started >= start);
    Some(if is_fresh { Due::Wait(time) } else { Due::Sync })
}

/// Returns true if an instance runs timers: a schedule that none follows is refused, not stored.
/// `seen` is the last heartbeat of the lease's holder, `lease_ms` how long that counts.
pub fn is_followed(seen: Option<Time>, lease_ms: i64, now: Time) -> bool {
    seen.is_some_and(|seen| now.since(seen).abs() <= lease_ms)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::samples::record;

    fn at(text: &str) -> Time {
        Time::parse(&format!("2026-03-01T{text}Z")).unwrap()
    }

    #[test] // R21
    fn times_and_waits_are_read() {
        let now = at("10:00:00");
        for (text, want) in [
            ("2026-03-01T12:00:00Z", Some(at("12:00:00"))),
            ("2026-03-01T12:00:00+01:00", Some(at("11:00:00"))),
            ("2 days", Some(now.plus(2 * DAY))),
            ("1 day", Some(now.plus(DAY))),
            ("2 days from now", Some(now.plus(2 * DAY))),
            ("from now", None),
            ("90m", Some(at("11:30:00"))),
            (" 3 hours ", Some(at("13:00:00"))),
            ("2 weeks", Some(now.plus(14 * DAY))),
            ("2026-03-01T09:59:59Z", None),
            ("400 days", None),
            ("", None),
            ("soon", None),
            ("2", None),
            ("-2 days", None),
            ("2.5 days", None),
            ("2 days ago", None),
            ("99999999999999999999 days", None),
            ("9223372036854775807 weeks", None),
        ] {
            assert_eq!(read(text, now).ok(), want, "{text}");
        }
    }

    #[test] // R21
    fn the_last_sync_ends_as_the_time_comes_and_the_switch_starts_within_a_minute() {
        let synced = |started: &str| {
            let entry = json!({
                "type": "progress", "phase": "sync", "state": "successful", "started_timestamp": at(started),
            });
            record(json!({
                "state": "scheduled", "phase": "sync", "scheduled_timestamp": at("12:00:00"),
                "progress_history": [entry],
            }))
        };
        let (first, last) = (synced("08:00:00"), synced("11:49:31"));
        for (record, now, want) in [
            (&first, "08:10:00", Due::Wait(at("11:49:30"))),
            (&first, "11:49:29", Due::Wait(at("11:49:30"))),
            (&first, "11:49:30", Due::Sync),
            (&last, "11:59:00", Due::Wait(at("12:00:00"))),
            (&last, "12:00:00", Due::Switch),
            (&last, "12:59:59", Due::Switch),
            (&first, "12:00:30", Due::Switch),
            (&last, "13:00:01", Due::Late),
        ] {
            assert_eq!(due(record, 10 * MINUTE, HOUR, at(now)), Some(want), "{now}");
        }
        assert_eq!(due(&record(json!({})), 0, HOUR, at("12:00:00")), None);
    }

    #[test] // R21
    fn a_schedule_needs_a_service_that_runs_timers() {
        let now = at("12:00:00");
        assert!(is_followed(Some(at("11:59:50")), 15_000, now));
        assert!(!is_followed(Some(at("11:59:40")), 15_000, now));
        assert!(!is_followed(None, 15_000, now));
    }

    #[test] // R21
    fn a_time_can_be_set_changed_and_forgotten() {
        for (phase, state, scheduled, after) in [
            (Phase::Sync, State::Paused, State::Scheduled, State::Paused),
            (Phase::Sync, State::Running, State::Running, State::Running),
            (Phase::Begin, State::Paused, State::Paused, State::Paused), // its first sync comes first
            (Phase::Sync, State::Failed, State::Failed, State::Failed),
        ] {
            let mut record = record(json!({"phase": phase, "state": state}));
            for time in [at("10:00:00"), at("12:00:00")] {
                set(&mut record, time);
                assert_eq!((record.state, record.scheduled_timestamp), (scheduled, Some(time)));
            }
            unset(&mut record);
            assert_eq!((record.state, record.scheduled_timestamp), (after, None));
        }
    }
}
