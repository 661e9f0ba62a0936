// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The monotonic clock of all decisions (R12): time since boot, which means the same after a restart of
//! the daemon.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Duration,
    since: Instant,
}

impl Clock {
    /// Reads the time since boot; from then on tokio's clock counts.
    pub fn start() -> Self {
        Self { base: uptime(), since: Instant::now() }
    }

    /// Returns the time since boot.
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
        // No /proc/uptime: the wall clock gives the base. Saved histories are then off by as much as
        // the clock was stepped since.
        _ => Duration::try_from(daemon::wall::now().as_duration()).unwrap_or_default(),
    }
}

/// What the kernel knows of the process at the other end.
pub mod process {
    use crate::qmp::Peer;

    /// Returns a process with its start time, where the system tells it.
    pub fn identify(pid: i32) -> Peer {
        Peer { pid, start: start(pid) }
    }

    /// Returns its start in ticks since boot: field 22 of `stat`, counted from the end of the name, which
    /// may contain anything.
    fn start(pid: i32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }
}
