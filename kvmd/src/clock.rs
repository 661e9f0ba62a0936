// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The monotonic clock that all decisions use (R12): time since the system's boot, so that it
//! means the same before and after a restart of this daemon.

use std::time::Duration;

use tokio::time::Instant;

/// The clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Duration,
    since: Instant,
}

impl Clock {
    /// Reads the time since boot once; from there on tokio's clock counts.
    pub fn start() -> Self {
        Self { base: uptime(), since: Instant::now() }
    }

    /// Time since boot.
    pub fn now(&self) -> Duration {
        self.base + self.since.elapsed()
    }
}

fn uptime() -> Duration {
    let seconds = std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(uptime)) => uptime,
        // Elsewhere the wall clock gives the base, once: only what a daemon before this one wrote
        // down can be off, by as much as the clock was stepped in between.
        _ => Duration::try_from(jiff::Timestamp::now().as_duration()).unwrap_or_default(),
    }
}

/// What the kernel tells of the process at the other end.
pub mod process {
    use crate::qmp::Peer;

    /// The peer of this number, with its start where the system tells it.
    pub fn identify(pid: i32) -> Peer {
        Peer { pid, start: start(pid) }
    }

    /// Ticks since boot at which it started: field 22 of `stat`, counted behind the name, which
    /// may hold anything.
    fn start(pid: i32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }
}
