// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's sysinfo, and when it is read again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use vm_model::parse::sysinfo::Sysinfo;

/// What is known of the node itself.
#[derive(Debug, Default)]
pub struct NodeSysinfo {
    /// The last one that was read.
    pub value: Arc<Sysinfo>,
    /// When it is to be read; `None`: it is not stale.
    due: Option<Instant>,
    is_reading: bool,
    /// The stamp of its file at the last sweep.
    stamp: Option<u64>,
    failures: u32,
}

impl NodeSysinfo {
    pub fn mark(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Compares the stamp of the file with the last one.
    pub fn compare(&mut self, stamp: Option<u64>, now: Instant) {
        if std::mem::replace(&mut self.stamp, stamp) != stamp {
            self.mark(now);
        }
    }

    /// Begins a reading, if it is stale and none is under way.
    pub fn begin(&mut self, now: Instant) -> bool {
        let begins = !self.is_reading && self.due.is_some_and(|due| due <= now);
        if begins {
            (self.due, self.is_reading) = (None, true);
        }
        begins
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_reading)
    }

    /// Stores a finished reading; returns true if it differs.
    pub fn read(&mut self, value: Sysinfo) -> bool {
        (self.is_reading, self.failures) = (false, 0);
        self.replace(Arc::new(value))
    }

    /// Replaces the value; returns true if it differs.
    pub fn replace(&mut self, value: Arc<Sysinfo>) -> bool {
        let differs = *self.value != *value;
        if differs {
            self.value = value;
        }
        differs
    }

    /// How often its reading has failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A reading has failed: the next is due after the pause.
    pub fn failed(&mut self, now: Instant, pause: Duration) {
        self.is_reading = false;
        self.failures = self.failures.saturating_add(1);
        self.mark(now + pause);
    }

    /// Returns true if it is due or being read.
    pub fn is_stale(&self) -> bool {
        self.is_reading || self.due.is_some()
    }
}
