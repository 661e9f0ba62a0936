// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The time of day: the system's, or a simulated one that follows tokio's clock.

use std::time::Duration;

use tokio::time::Instant;

use migration_core::time::Time;

#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// It showed this time at that moment of tokio's clock, and goes on with it.
    Simulated(Time, Instant),
}

impl Clock {
    /// Returns a clock that shows `time` now and then follows tokio's.
    pub fn simulated(time: Time) -> Clock {
        Clock::Simulated(time, Instant::now())
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        match self {
            Clock::System => Time::from_millis(daemon::wall::now().as_millisecond()),
            Clock::Simulated(time, at) => time.plus(millis(at.elapsed())),
        }
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
