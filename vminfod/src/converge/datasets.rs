// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Dataset events: the node-wide table is edited by listing exactly the dataset that was touched.

use std::collections::HashMap;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::{Done, Engine, Purpose};
use crate::dirty::Stale;
use crate::load::LoadError;
use crate::load::datasets::{self, Row};
use crate::sources::zfs::{Action, DatasetSignal, depth, pool, vm_uuid};
use crate::vm::Parts;

/// Listings at once.
const AT_ONCE: usize = 4;
/// For how many folds a burst of events may put off a listing.
const BURST_FOLDS: u32 = 20;
/// More snapshots of one dataset than this are listed with it instead of one by one.
const SNAPSHOTS_EACH: usize = 4;

/// Which datasets are to be listed, and which are being listed.
#[derive(Debug, Default)]
pub(super) struct DatasetWork {
    /// Name → when, and failed attempts.
    wanted: IndexMap<String, (Instant, u32)>,
    /// Name → "something happened to it, or below it, meanwhile", and failed attempts.
    running: HashMap<String, (bool, u32)>,
    /// Names touched while a refresh was reading the node.
    pub(super) since_refresh: Vec<String>,
    /// When the last good listing of the node began.
    pub(super) node_at: Option<Instant>,
    /// When the listings of single names since then ended.
    since: HashMap<String, Instant>,
    /// Names that wait for a burst of events to end, and since when.
    bursts: HashMap<String, Instant>,
}

impl DatasetWork {
    /// The node was listed: what is known of single names is older than that.
    pub(super) fn node_listed(&mut self, began: Instant) {
        self.node_at = Some(began);
        self.since.retain(|_, at| *at > began);
    }

    /// When this name was last listed by itself.
    pub(super) fn read_at(&self, name: &str) -> Option<Instant> {
        self.since.get(name).copied()
    }

    /// Is a listing of this name wanted or under way?
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.wanted.contains_key(name) || self.running.contains_key(name)
    }

    /// When the next listing is due.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        self.wanted
            .iter()
            .filter(|(name, _)| !self.running.contains_key(*name))
            .map(|(_, (at, _))| *at)
            .min()
    }

    /// Wants a listing. Many snapshots of one dataset are listed with it at once, so that a storm
    /// of them costs no more than the datasets that it touches.
    pub(super) fn want(&mut self, name: &str) {
        let Some((parent, _)) = name.split_once('@') else {
            self.wanted.insert(name.to_owned(), (Instant::now(), 0));
            return;
        };
        let now = Instant::now();
        if self.bursts.contains_key(parent)
            || self.wanted.get(parent).is_some_and(|(at, _)| *at <= now)
        {
            return;
        }
        let twin = |other: &String| {
            other.strip_prefix(parent).is_some_and(|rest| rest.starts_with('@')) && other != name
        };
        if self.wanted.keys().filter(|other| twin(other)).count() < SNAPSHOTS_EACH {
            self.wanted.insert(name.to_owned(), (Instant::now(), 0));
            return;
        }
        self.wanted.retain(|other, _| other != name && !twin(other));
        self.wanted.insert(parent.to_owned(), (Instant::now(), 0));
    }

    /// Wants a listing in a burst of events: only when none came for a while, so that a burst costs
    /// one listing of each name, but not much later than its first event.
    fn want_after_burst(&mut self, name: &str, fold: Duration) {
        self.want(name);
        let parent = name.split_once('@').map_or(name, |(parent, _)| parent);
        let wanted = if self.wanted.contains_key(name) { name } else { parent };
        if let Some((at, 0)) = self.wanted.get_mut(wanted) {
            let now = Instant::now();
            let began = *self.bursts.entry(wanted.to_owned()).or_insert(now);
            *at = (now + fold).min(began + fold * BURST_FOLDS);
        }
    }

    /// Was this name listed just now, or is it being listed?
    fn is_fresh(&self, name: &str, fold: Duration) -> bool {
        self.running.contains_key(name)
            || self.since.get(name).is_some_and(|ended| ended.elapsed() < fold)
    }

    fn next(&self) -> Option<String> {
        let now = Instant::now();
        let due = |(name, (at, _)): &(&String, &(Instant, u32))| {
            *at <= now && !self.running.contains_key(*name)
        };
        self.wanted.iter().find(due).map(|(name, _)| name.clone())
    }
}

impl Engine {
    /// Takes one event in.
    pub(super) fn dataset_event(&mut self, event: DatasetSignal, burst: bool) {
        let zone = self.zone_of(&event.name);
        let known = zone.is_some();
        // Names outside the VMs' own places are kept only where a VM may come to use them.
        if !known && depth(&event.name) != 2 && !self.pool_is_used(pool(&event.name)) {
            return;
        }
        if self.refreshing {
            self.dataset_work.since_refresh.push(event.name.clone());
        }
        self.disturb(&event.name);
        if event.action == Action::Expire {
            self.datasets.expire(&event.name);
            self.dataset_work.wanted.shift_remove(&event.name);
        } else if burst || self.dataset_work.is_fresh(&event.name, self.config.fold) {
            self.dataset_work.want_after_burst(&event.name, self.config.fold);
        } else {
            self.dataset_work.want(&event.name);
        }
        let Some(zone) = zone else { return };
        let now = Instant::now();
        if event.renamed {
            // Its children have other names now, and no event says so.
            self.everything();
        }
        if event.rolled_back {
            self.mark(&zone, Stale::ON_ROLLBACK, now + self.config.fold);
        } else if event.action == Action::Expire {
            self.mark(&zone, Stale::OBJECT, now + self.config.fold);
        }
    }

    /// A listing under way that covers this name may be older than the event.
    fn disturb(&mut self, name: &str) {
        let parent = name.rsplit_once(['/', '@']).map_or("", |(parent, _)| parent);
        for (running, (again, _)) in &mut self.dataset_work.running {
            *again |= running == name || running == parent;
        }
    }

    fn zone_of(&self, dataset: &str) -> Option<String> {
        let of_uuid = vm_uuid(dataset).and_then(|uuid| {
            let known = self.vms.contains_key(uuid).then(|| uuid.to_owned());
            self.names.get(uuid).cloned().or(known)
        });
        of_uuid.or_else(|| self.zone_at(dataset))
    }

    /// The zone whose zonepath is this dataset's or lies above it: not every name has the uuid.
    fn zone_at(&self, dataset: &str) -> Option<String> {
        let dataset = dataset.split('@').next()?;
        let holds = |parts: &Parts| {
            let rest = dataset.strip_prefix(self.root_dataset(parts));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = self.vms.iter().find(|(_, vm)| vm.parts.as_ref().is_some_and(holds));
        found.map(|(name, _)| name.to_string())
    }

    fn root_dataset<'a>(&'a self, parts: &'a Parts) -> &'a str {
        let zonepath = &parts.zone.zonepath;
        self.datasets.at(zonepath).map_or(zonepath.trim_start_matches('/'), Row::name)
    }

    /// A new VM may have datasets whose events came before it, or never.
    pub(super) fn want_unknown(&mut self, zone: &str) {
        let Some(parts) = self.vms.get(zone).and_then(|vm| vm.parts.as_ref()) else { return };
        for name in super::datasets_of(parts, &self.datasets) {
            if self.datasets.get(&name).is_none() && !self.dataset_work.is_wanted(&name) {
                self.dataset_work.want(&name);
            }
        }
    }

    fn pool_is_used(&self, pool: &str) -> bool {
        let mut parts = self.vms.values().filter_map(|vm| vm.parts.as_ref());
        parts.any(|parts| crate::sources::zfs::pool(self.root_dataset(parts)) == pool)
    }

    /// Starts the listings that are due.
    pub(super) fn start_datasets(&mut self) {
        while self.dataset_work.running.len() < AT_ONCE {
            let Some(name) = self.dataset_work.next() else { return };
            let failures =
                self.dataset_work.wanted.shift_remove(&name).map_or(0, |(_, failures)| failures);
            self.dataset_work.bursts.remove(&name);
            self.dataset_work.running.insert(name.clone(), (false, failures));
            let ctx = self.ctx.clone();
            self.spawn(Purpose::Dataset(name.clone()), async move {
                let rows = datasets::one(&ctx, &name).await;
                Done::Dataset(name, rows)
            });
        }
    }

    /// A listing has ended.
    pub(super) fn dataset_read(&mut self, name: &str, result: Result<Vec<Row>, LoadError>) {
        let rows = match result {
            Ok(rows) => rows,
            Err(error) => return self.dataset_failed(name, error.to_string()),
        };
        if let Some((true, _)) = self.dataset_work.running.remove(name)
            && !self.dataset_work.wanted.contains_key(name)
        {
            self.dataset_work.want(name);
        }
        self.dataset_work.since.insert(name.to_owned(), Instant::now());
        self.board.well(name);
        let mut zones: Vec<String> =
            rows.iter().filter_map(|row| self.zone_of(row.name())).collect();
        zones.extend(self.zone_of(name));
        zones.sort();
        zones.dedup();
        self.datasets.expire(name);
        self.datasets.insert(rows);
        self.compose(zones);
    }

    /// A listing has failed: the VM is composed of what is known, and it is tried again.
    pub(super) fn dataset_failed(&mut self, name: &str, message: String) {
        let failures =
            self.dataset_work.running.remove(name).map_or(0, |(_, failures)| failures) + 1;
        let at = Instant::now() + self.backoff(failures);
        self.dataset_work.wanted.insert(name.to_owned(), (at, failures));
        if self.board.trouble(name, "zfs", message.clone()) {
            tracing::warn!(dataset = name, reason = %message, "listing failed: it is tried again");
        }
        let zone = self.zone_of(name);
        self.compose(zone);
    }

    fn compose(&mut self, zones: impl IntoIterator<Item = String>) {
        let now = Instant::now();
        for zone in zones {
            self.mark(&zone, Stale::OBJECT, now);
        }
    }
}
