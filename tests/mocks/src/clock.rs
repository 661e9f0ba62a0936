// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The time of a mock: real at its start, then tokio's, so that paused time works.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A clock that can be moved forward.
#[derive(Debug)]
pub(crate) struct Clock {
    wall: i64,
    start: Instant,
    shift: Mutex<i64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::at(jiff::Timestamp::now().as_millisecond())
    }
}

impl Clock {
    /// A clock that shows so many milliseconds since 1970.
    pub(crate) fn at(wall: i64) -> Self {
        Self { wall, start: Instant::now(), shift: Mutex::new(0) }
    }

    /// Moves it; records made before become older.
    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let mut shift = self.shift.lock().unwrap_or_else(PoisonError::into_inner);
        *shift = shift.saturating_add(by);
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        let elapsed = Instant::now().saturating_duration_since(self.start).as_millis();
        let shift = *self.shift.lock().unwrap_or_else(PoisonError::into_inner);
        self.wall.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX)).saturating_add(shift)
    }
}
