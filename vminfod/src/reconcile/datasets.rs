// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The datasets of the node: which are due to be listed, and the tables of the listed ones.
//!
//! An event leads to a listing of the dataset that it names. The snapshots of the node are a listing of
//! their own, which may take minutes and delays nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::asks::Waiter;
use super::slots::{Running, Slots, Taken};
use super::status::{SLOW, UNANNOUNCED};
use indexmap::IndexMap;
use tokio::time::Instant;
use vm_model::datasets::{Datasets, SnapshotTable};
use vm_model::parse::zfs_event::{Action, DatasetEvent};
use vm_model::parse::zfs_list::Row;

/// A burst of events puts off a listing by at most this many gaps.
const BURST_GAPS: u32 = 20;
/// Refreshes in a row with unannounced changes after which the event source counts as silent.
const MISSES: u32 = 2;

/// The tables and the listings.
#[derive(Debug)]
pub struct NodeDatasets {
    pub tables: Datasets,
    /// The least time between two listings of a name in a burst.
    gap: Duration,
    wanted: IndexMap<String, Wanted>,
    running: BTreeMap<String, Running>,
    pub slots: Slots,
    /// Requests that wait for listings.
    pub asked: Vec<Asked>,
    /// Names touched while the node's filesystems are being listed.
    since_refresh: Option<Vec<String>>,
    /// Names touched while the node's snapshots are being listed.
    since_snapshots: Option<Vec<String>>,
    snapshots_due: Option<Instant>,
    /// When the last good listing of the node began …
    node_at: Option<Instant>,
    /// … and when listings of single names since then ended.
    listed: BTreeMap<String, Instant>,
    /// A listing of the node's filesystems and volumes between two refreshes began then.
    between: Option<Instant>,
    silence: Silence,
    /// Names whose listing waits for a burst of events to end, and since when.
    bursts: BTreeMap<String, Instant>,
}

/// What the event source did not announce.
#[derive(Debug, Default)]
struct Silence {
    /// A change since the last refresh.
    has_missed: bool,
    /// Refreshes in a row with one.
    misses: u32,
}

/// Requests that wait until datasets of a VM were listed.
#[derive(Debug)]
pub struct Asked {
    pub zone: Arc<str>,
    /// A listing that began earlier does not count.
    pub at: Instant,
    /// What is still to be listed.
    pub names: Vec<String>,
    pub waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Wanted {
    at: Instant,
    failures: u32,
}

impl NodeDatasets {
    /// Empty tables; the snapshots are to be listed at once.
    pub fn new(gap: Duration, now: Instant) -> Self {
        Self {
            tables: Datasets::default(),
            gap,
            wanted: IndexMap::new(),
            running: BTreeMap::new(),
            slots: Slots::default(),
            asked: Vec::new(),
            since_refresh: None,
            since_snapshots: None,
            snapshots_due: Some(now),
            node_at: None,
            listed: BTreeMap::new(),
            bursts: BTreeMap::new(),
            between: None,
            silence: Silence::default(),
        }
    }

    /// Datasets changed without an event.
    pub fn missed(&mut self) {
        self.silence.has_missed = true;
    }

    /// A refresh has compared all datasets; returns true if the event source counts as silent.
    pub fn judge(&mut self) -> bool {
        let Silence { has_missed, misses } = std::mem::take(&mut self.silence);
        self.silence.misses = if has_missed { misses.saturating_add(1) } else { 0 };
        self.is_silent()
    }

    /// Returns true if the last refreshes found changes that no event announced.
    pub fn is_silent(&self) -> bool {
        self.silence.misses >= MISSES
    }

    /// Begins a listing of the filesystems and volumes, if the last one is too old and none is under way.
    pub fn begin_between(&mut self, now: Instant) -> bool {
        let is_due = self.between_due().is_some_and(|due| due <= now);
        if is_due {
            self.between = Some(now);
            self.since_refresh = Some(Vec::new());
        }
        is_due
    }

    /// When [`NodeDatasets::begin_between`] begins one.
    pub fn between_due(&self) -> Option<Instant> {
        let last = self.node_at.filter(|_| self.since_refresh.is_none())?;
        Some(self.between.map_or(last, |at| at.max(last)) + UNANNOUNCED)
    }

    /// Handles an event: the dataset becomes due, or is removed from the tables.
    pub fn event(&mut self, event: &DatasetEvent, is_burst: bool, now: Instant) {
        let name = &event.name;
        for touched in [&mut self.since_refresh, &mut self.since_snapshots].into_iter().flatten() {
            touched.push(name.clone());
        }
        let has_expired = event.action == Action::Expire;
        if has_expired {
            self.tables.remove(name);
            self.slots.forget(name);
            // A request that waits for it hears from the listing that it is gone.
            if !self.asked.iter().any(|asked| asked.names.contains(name)) {
                self.wanted.shift_remove(name);
            }
        }
        // A listing under way that covers this name may be older than the event.
        let parent = name.rsplit_once(['/', '@']).map_or("", |(parent, _)| parent);
        for covers in [name, parent] {
            if self.running.contains_key(covers) && !self.wanted.contains_key(covers) {
                self.want(covers, now);
            }
        }
        let is_in_parent = name.contains('@') && self.running.contains_key(parent);
        if has_expired || is_in_parent {
            return;
        }
        self.want(name, now);
        let was_just_listed = self.running.contains_key(name)
            || self.listed.get(name).is_some_and(|ended| now.duration_since(*ended) < self.gap);
        if is_burst || was_just_listed {
            self.put_off(name, now);
        }
    }

    /// Makes a listing of this name due. A second snapshot of a dataset is listed with the dataset: its
    /// listing alone has the order in which snapshots of one second were made.
    pub fn want(&mut self, name: &str, now: Instant) {
        let mut one = name;
        if let Some((parent, _)) = name.split_once('@') {
            let is_sibling = |other: &String| {
                other != name && other.split_once('@').is_some_and(|(of, _)| of == parent)
            };
            let is_second =
                self.wanted.keys().any(is_sibling) || self.running.keys().any(is_sibling);
            if is_second || self.wanted.contains_key(parent) {
                self.wanted.retain(|other, _| other != name && !is_sibling(other));
                one = parent;
            }
        }
        // In a burst it stays put off.
        let is_put_off = one != name && self.bursts.contains_key(one);
        if !is_put_off || !self.wanted.contains_key(one) {
            self.wanted.insert(one.to_owned(), Wanted { at: now, failures: 0 });
        }
    }

    /// Delays a listing until no event came for a gap, but at most [`BURST_GAPS`].
    fn put_off(&mut self, name: &str, now: Instant) {
        let parent = name.split_once('@').map_or(name, |(parent, _)| parent);
        let wanted = if self.wanted.contains_key(name) { name } else { parent };
        if let Some(Wanted { at, failures: 0 }) = self.wanted.get_mut(wanted) {
            let began = *self.bursts.entry(wanted.to_owned()).or_insert(now);
            *at = (now + self.gap).min(began + self.gap * BURST_GAPS);
        }
    }

    /// Takes the next name that is due and has a place; those that requests wait for come first.
    pub fn next(&mut self, now: Instant) -> Option<String> {
        let (taken, asked) = (Taken::new(&self.running, now), self.asked_for());
        let may_begin = |name: &str, is_asked: bool| {
            self.wanted.get(name).is_some_and(|wanted| wanted.at <= now)
                && !self.running.contains_key(name)
                && taken.has_place(name, self.slots.lane(name, is_asked))
        };
        let first = asked.iter().copied().find(|name| may_begin(name, true));
        let others = || self.wanted.keys().map(String::as_str);
        let mut others = others().filter(|name| !asked.contains(name));
        let name = first.or_else(|| others.find(|name| may_begin(name, false)))?.to_owned();
        let lane = self.slots.lane(&name, first.is_some());
        let failures = self.wanted.shift_remove(&name).map_or(0, |wanted| wanted.failures);
        self.bursts.remove(&name);
        self.running.insert(name.clone(), Running { began: now, failures, lane });
        Some(name)
    }

    /// The names that requests wait for.
    fn asked_for(&self) -> BTreeSet<&str> {
        self.asked.iter().flat_map(|asked| &asked.names).map(String::as_str).collect()
    }

    /// When [`NodeDatasets::next`] or [`NodeDatasets::begin_snapshots`] has to be called.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let (taken, asked) = (Taken::new(&self.running, now), self.asked_for());
        // A name without a place has one when a listing ends, or counts as slow.
        let is_slow_at = self.running.values().map(|running| running.began + SLOW);
        let freed = is_slow_at.filter(|at| *at > now).min();
        let waiting = self.wanted.iter().filter(|(name, _)| !self.running.contains_key(*name));
        let next = waiting.filter_map(|(name, wanted)| {
            let lane = self.slots.lane(name, asked.contains(&**name));
            if taken.has_place(name, lane) {
                Some(wanted.at)
            } else {
                freed.map(|at| at.max(wanted.at))
            }
        });
        let snapshots = self.snapshots_due.filter(|_| self.since_snapshots.is_none());
        next.min().into_iter().chain(snapshots).min()
    }

    /// Stores a finished listing of one name.
    pub fn listed(&mut self, name: &str, rows: Vec<Row>, now: Instant) {
        let began = self.running.remove(name).map(|running| running.began);
        self.slots.took(name, began.map_or(Duration::ZERO, |began| now - began));
        self.listed.insert(name.to_owned(), now);
        self.tables.replace(name, rows);
    }

    /// When the listing of this name that is under way began.
    pub fn began(&self, name: &str) -> Option<Instant> {
        self.running.get(name).map(|running| running.began)
    }

    /// Takes the requests that wait for nothing more now that a listing has ended, or that it failed.
    pub fn take_asked(&mut self, name: &str, began: Instant, has_failed: bool) -> Vec<Asked> {
        let over = |asked: &mut Asked| {
            let before = asked.names.len();
            asked.names.retain(|other| other != name || began < asked.at);
            asked.names.is_empty() || has_failed && asked.names.len() < before
        };
        self.asked.extract_if(.., |asked| over(asked)).collect()
    }

    /// How often the listing of this name, which is under way, has failed in a row.
    pub fn failures(&self, name: &str) -> u32 {
        self.running.get(name).map_or(0, |running| running.failures)
    }

    /// A listing of one name has failed: it is tried again after the pause.
    pub fn failed(&mut self, name: &str, now: Instant, pause: Duration) {
        let running = self.running.remove(name);
        if let Some(running) = running {
            self.slots.took(name, now - running.began);
        }
        let failures = running.map_or(0, |running| running.failures) + 1;
        self.wanted.insert(name.to_owned(), Wanted { at: now + pause, failures });
    }

    /// The listing of the node's filesystems begins, as a part of a refresh.
    pub fn begin_refresh(&mut self) {
        // One under way that began before is of no use any more.
        self.between = None;
        self.since_refresh = Some(Vec::new());
    }

    /// When the listing under way that is no part of a refresh began.
    pub fn between(&self) -> Option<Instant> {
        self.between.filter(|_| self.since_refresh.is_some())
    }

    pub fn refresh_failed(&mut self) {
        self.since_refresh = None;
    }

    /// That listing has ended: replaces the filesystems and volumes, keeps the snapshots. What was
    /// touched meanwhile becomes due, and so do snapshots that no listing of the node shows.
    pub fn refreshed(&mut self, listed: Vec<Row>, began: Instant, now: Instant) {
        self.node_at = Some(began);
        self.listed.retain(|_, at| *at > began);
        self.tables.replace_rows(listed);
        let touched = self.since_refresh.take().unwrap_or_default();
        let deep: BTreeSet<String> = self.tables.deep_snapshots().map(str::to_owned).collect();
        for name in touched.into_iter().chain(deep) {
            self.want(&name, now);
        }
    }

    /// Makes the snapshots of the node due at this time or earlier.
    pub fn want_snapshots(&mut self, at: Instant) {
        self.snapshots_due = Some(self.snapshots_due.map_or(at, |due| due.min(at)));
    }

    /// Begins the listing of the node's snapshots, if it is due and none is under way.
    pub fn begin_snapshots(&mut self, now: Instant) -> bool {
        let is_due = self.snapshots_due.is_some_and(|due| due <= now);
        let begins = is_due && self.since_snapshots.is_none();
        if begins {
            self.snapshots_due = None;
            self.since_snapshots = Some(Vec::new());
        }
        begins
    }

    /// Replaces the node's snapshots. Those that were touched during the listing are kept and listed
    /// again.
    pub fn snapshots_listed(&mut self, mut listed: SnapshotTable, now: Instant) {
        for name in self.since_snapshots.take().unwrap_or_default() {
            let dataset = name.split('@').next().unwrap_or_default();
            listed.keep(&self.tables, dataset);
            self.want(dataset, now);
        }
        self.tables.replace_snapshots(listed);
    }

    /// The listing of the node's snapshots has failed: it is due `again`, and until then the snapshots of
    /// these datasets are listed one by one.
    pub fn snapshots_failed(&mut self, again: Instant, datasets: Vec<String>, now: Instant) {
        self.since_snapshots = None;
        self.want_snapshots(again);
        for name in datasets {
            if !self.wanted.contains_key(&name) {
                self.want(&name, now);
            }
        }
    }

    /// When this name was last listed.
    pub fn read_at(&self, name: &str) -> Option<Instant> {
        self.node_at.max(self.listed.get(name).copied())
    }

    /// Returns true if a listing of this name is due or under way.
    pub fn is_wanted(&self, name: &str) -> bool {
        self.wanted.contains_key(name) || self.running.contains_key(name)
    }
}

#[cfg(test)]
mod tests;
