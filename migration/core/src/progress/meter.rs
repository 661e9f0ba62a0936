// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The bytes of a stream as events.

use serde_json::{Value, json};

use crate::time::Time;

/// The least and the most time between two events, in ms.
const BETWEEN: i64 = 1_000;
const SILENCE: i64 = 60_000;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes that were sent.
    pub current: u64,
    /// Bytes that are expected; never fewer than were sent.
    pub total: u64,
    /// What is left at this rate, in ms; `None` while nothing moves.
    pub eta_ms: Option<u64>,
    /// The mean of the last two rates, in bytes per second.
    pub rate: u64,
    /// Nothing moved for a minute: the event only shows that the stream lives.
    pub is_keep_alive: bool,
}

impl Bytes {
    /// Returns the event that watchers get.
    pub fn to_json(&self) -> Value {
        let mut event = json!({
            "type": "progress", "phase": "sync", "state": "running",
            "current_progress": self.current, "total_progress": self.total,
            "eta_ms": self.eta_ms, "transfer_bytes_second": self.rate,
        });
        if self.is_keep_alive {
            event["store"] = json!(true);
        }
        event
    }
}

/// Makes events of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    total: u64,
    bytes: u64,
    at: Time,
    rates: [Option<u64>; 2],
}

impl Meter {
    /// Begins at `now` with what is expected.
    pub fn new(total: u64, now: Time) -> Meter {
        Meter { total, bytes: 0, at: now, rates: [None; 2] }
    }

    /// Reads the counter. Returns an event at most once a second, and at least once a minute.
    pub fn read(&mut self, bytes: u64, now: Time) -> Option<Bytes> {
        let took = now.since(self.at);
        let is_keep_alive = bytes == self.bytes;
        if took < if is_keep_alive { SILENCE } else { BETWEEN } {
            return None;
        }
        let moved = u128::from(bytes.saturating_sub(self.bytes)) * 1000;
        let rate = u64::try_from(moved / took.unsigned_abs().max(1) as u128).unwrap_or(u64::MAX);
        self.rates = [self.rates[1], Some(rate)];
        (self.bytes, self.at) = (bytes, now);
        self.total = self.total.max(bytes);
        let known: Vec<u64> = self.rates.iter().flatten().copied().collect();
        let rate = known.iter().map(|rate| rate / known.len() as u64).sum();
        let left = u128::from(self.total - bytes) * 1000;
        let eta =
            left.checked_div(u128::from(rate)).map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
        Some(Bytes { current: bytes, total: self.total, eta_ms: eta, rate, is_keep_alive })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(ms: i64) -> Time {
        Time::from_millis(ms)
    }

    #[test] // R19
    fn rates_are_the_mean_of_two_seconds_and_the_total_is_never_overtaken() {
        let mut meter = Meter::new(1000, at(0));
        assert_eq!(meter.read(50, at(500)), None);
        let event = meter.read(100, at(1000)).unwrap();
        assert_eq!((event.rate, event.eta_ms, event.total), (100, Some(9000), 1000));
        let event = meter.read(400, at(2000)).unwrap();
        assert_eq!((event.rate, event.eta_ms), (200, Some(3000)));
        let event = meter.read(1200, at(4000)).unwrap();
        assert_eq!((event.rate, event.eta_ms, event.total), (350, Some(0), 1200));
        assert!(event.to_json().get("store").is_none());
    }

    #[test] // R19
    fn a_stream_that_does_not_move_says_once_a_minute_that_it_lives() {
        let mut meter = Meter::new(1000, at(0));
        assert_eq!(meter.read(0, at(59_999)), None);
        let event = meter.read(0, at(60_000)).unwrap();
        assert!(
            event.is_keep_alive
                && event.eta_ms.is_none()
                && event.to_json()["store"] == json!(true)
        );
        assert_eq!(meter.read(0, at(61_000)), None);
        let mut most = Meter::new(u64::MAX, at(0));
        assert_eq!(most.read(u64::MAX, at(1000)).unwrap().total, u64::MAX);
        assert_eq!(Meter::new(5, at(9000)).read(1, at(0)), None, "a clock that went back");
    }

    #[test] // R19
    fn an_event_of_bytes_has_the_recorded_keys() {
        let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
        let line = text.lines().find(|line| line.contains("\"m-watch-07\"")).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let recorded = &line["response"]["stream"][1]["line"];
        let bytes =
            Bytes { current: 10, total: 100, eta_ms: Some(9000), rate: 10, is_keep_alive: false };
        assert_eq!(bytes.to_json().to_string(), recorded.to_string());
    }
}
