// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When the whole node is read: every few minutes, after lost signals, and on request.
//!
//! A refresh repairs what neither an event nor a stamp shows. It is committed VM by VM (`Taking`), so that signals and
//! requests do not wait for a whole node. Now and then one reads every file, since equal stamps do not prove equal
//! bytes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use vm_model::datasets::Datasets;
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;

use super::asks::Waiter;
use crate::node::LoadError;
use crate::node::load::Node;

/// One in this many refreshes reads all files, whether their stamps differ or not.
const READ_ALL_EVERY: u32 = 12;

/// The state of the full refresh.
#[derive(Debug)]
pub struct Refresh {
    due: Instant,
    /// When the one under way began.
    running: Option<Instant>,
    /// When the last successful one ended.
    ended: Instant,
    failures: u32,
    /// Refreshes since one that succeeded has read every file.
    unread: u32,
    /// Requests that wait for the next one, and for the one under way.
    waiters: Vec<Waiter>,
    running_waiters: Vec<Waiter>,
    /// What the one under way has read and not committed yet.
    pub taking: Option<Taking>,
}

/// A node that was read, and how much of it is committed.
#[derive(Debug)]
pub struct Taking {
    node: Node,
    at: usize,
    /// Changes that no event had announced: zone name and type of event.
    pub changes: Vec<(String, &'static str)>,
}

impl Taking {
    pub fn new(node: Node) -> Self {
        Self { node, at: 0, changes: Vec::new() }
    }

    /// The next VM; its datasets are taken from `tables`.
    pub fn next(&mut self, tables: &Datasets) -> Option<(Arc<ZoneRow>, Result<Parts, LoadError>)> {
        let next = self.node.parts_at(self.at, tables);
        self.at += 1;
        next
    }

    /// The zones that have no readable row, but a line of the index or an XML.
    pub fn unlisted(&self) -> impl Iterator<Item = &String> {
        self.node.zones.unlisted.iter().chain(&self.node.zones.strays)
    }

    /// The names of all zones that were listed.
    pub fn listed(&self) -> HashSet<Arc<str>> {
        self.node.zones.rows.iter().map(|row| Arc::clone(&row.zonename)).collect()
    }
}

impl Refresh {
    /// The first refresh is due at this time.
    pub fn new(due: Instant) -> Self {
        Self {
            due,
            running: None,
            ended: Instant::now(),
            failures: 0,
            unread: 0,
            waiters: Vec::new(),
            running_waiters: Vec::new(),
            taking: None,
        }
    }

    pub fn plan(&mut self, due: Instant) {
        self.due = due;
    }

    /// One is due at this time or earlier.
    pub fn want(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// A request that waits for a refresh that begins after now.
    pub fn ask(&mut self, waiter: Waiter) {
        self.waiters.push(waiter);
    }

    /// Begins one, if it is due and none is under way; returns true in it if all files are to be read.
    pub fn begin(&mut self, now: Instant) -> Option<bool> {
        if self.running.is_some() || self.due > now && self.waiters.is_empty() {
            return None;
        }
        self.running = Some(now);
        self.running_waiters = std::mem::take(&mut self.waiters);
        self.unread += 1;
        Some(self.unread >= READ_ALL_EVERY)
    }

    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let at = if self.waiters.is_empty() { self.due } else { now };
        self.running.is_none().then_some(at)
    }

    /// When the one under way began.
    pub fn running(&self) -> Option<Instant> {
        self.running
    }

    /// Returns true if a request waits for the one under way.
    pub fn is_asked_for(&self) -> bool {
        !self.running_waiters.is_empty()
    }

    /// The one under way has ended; returns the requests that wait for it.
    pub fn ended(&mut self, now: Instant) -> Vec<Waiter> {
        (self.running, self.failures, self.ended) = (None, 0, now);
        if self.unread >= READ_ALL_EVERY {
            self.unread = 0;
        }
        std::mem::take(&mut self.running_waiters)
    }

    /// How many failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The one under way has failed: the next one is due after the pause. Returns the requests that wait
    /// for it.
    pub fn failed(&mut self, now: Instant, pause: Duration) -> Vec<Waiter> {
        self.running = None;
        self.failures = self.failures.saturating_add(1);
        self.due = now + pause.max(Duration::from_secs(1));
        std::mem::take(&mut self.running_waiters)
    }

    /// The time since the last successful one ended.
    pub fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_twelfth_refresh_reads_all_and_a_request_begins_one() {
        let now = Instant::now();
        let mut refresh = Refresh::new(now + Duration::from_secs(270));
        assert_eq!(refresh.begin(now), None);
        let (waiter, _answer) = tokio::sync::oneshot::channel();
        refresh.ask(waiter);
        assert_eq!((refresh.deadline(now), refresh.begin(now)), (Some(now), Some(false)));
        assert_eq!((refresh.begin(now), refresh.deadline(now)), (None, None));
        assert_eq!(refresh.ended(now).len(), 1);
        let mut reads_all = 0;
        for _ in 0..24 {
            refresh.want(now);
            reads_all += u32::from(refresh.begin(now).unwrap());
            refresh.ended(now);
        }
        assert_eq!(reads_all, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_refresh_is_due_later_each_time() {
        let now = Instant::now();
        let mut refresh = Refresh::new(now);
        for failures in 1..4 {
            refresh.want(now);
            assert!(refresh.begin(now + Duration::from_secs(9)).is_some());
            refresh.failed(now, Duration::from_secs(failures * 2));
            assert_eq!(refresh.deadline(now), Some(now + Duration::from_secs(failures * 2)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_refresh_that_was_to_read_all_files_is_followed_by_one_that_does() {
        let now = Instant::now();
        let mut refresh = Refresh::new(now);
        let begin = |refresh: &mut Refresh| {
            refresh.want(now);
            refresh.begin(now + Duration::from_secs(9)).unwrap()
        };
        while !begin(&mut refresh) {
            refresh.ended(now);
        }
        for _ in 0..2 {
            refresh.failed(now, Duration::ZERO);
            assert!(begin(&mut refresh));
        }
        refresh.ended(now);
        assert!(!begin(&mut refresh));
    }
}
