// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Caps and deadlines of a server, and what it counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Caps and deadlines of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; more are closed as soon as they are accepted.
    pub connections: usize,
    /// Requests per second in the long run, twice as many at once; more wait their turn. 0: no limit.
    pub requests_per_second: u32,
    /// Largest head of a request, in bytes.
    pub head_bytes: usize,
    /// A request head must be complete this long after its first byte.
    pub head: Duration,
    /// An idle connection is closed after this.
    pub idle: Duration,
    /// The peer must take some of the written bytes within this.
    pub write: Duration,
    /// Streams have this long to end after the shutdown.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            requests_per_second: 10_000,
            head_bytes: 16 << 10,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            write: Duration::from_secs(60),
            drain: Duration::from_secs(3),
        }
    }
}

/// Counters since the start of a server.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered, refusals included.
    pub requests: AtomicU64,
    pub connections: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Connections closed at once because too many were open.
    pub refused: AtomicU64,
    /// Requests answered with 403: not a local client.
    pub foreign: AtomicU64,
    /// Connections cut because the peer took nothing, or did not finish a request head.
    pub stalled: AtomicU64,
    /// Event streams ended because their next event had left the ring.
    pub fell_behind: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
