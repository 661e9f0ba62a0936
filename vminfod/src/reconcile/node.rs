// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Readings of sources that concern more than one VM: how they begin, and what follows.

use std::sync::Arc;

use daemon::tasks::caught;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span};
use vm_model::datasets::SnapshotTable;
use vm_model::origin::Origin;
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parse::zfs_event::vm_uuid;
use vm_model::parse::zfs_list::Row;
use vm_model::stale::Stale;

use super::asks::{answer, waiter};
use super::engine::Reconciler;
use super::listing::{self, Differing, Question};
use super::status::Concerns;
use super::sweep::{self, Comparison, Difference, Scope};
use super::tasks::{Done, Like, read};
use super::vms::Reasons;
use crate::node::load::{self, Node};
use crate::node::read::{datasets, sysinfo};
use crate::node::{Ctx, LoadError};
use crate::sources::fswatcher;
use crate::sources::sysevent::Channel;

impl Reconciler {
    /// Begins the node-wide readings that are due.
    pub(super) fn begin_node_wide(&mut self, now: Instant) {
        while let Some(name) = self.datasets.next(now) {
            let span = tracing::info_span!("dataset", name);
            self.status.edit(|view| view.listings.insert(name.clone(), now));
            self.begin(Like::Dataset, span, |ctx| async move {
                let listed = read(Origin::Datasets, datasets::one(&ctx, &name)).await;
                Done::Dataset(name, listed)
            });
        }
        if self.datasets.begin_snapshots(now) {
            self.list_snapshots();
        }
        if self.are_datasets_unannounced() && self.datasets.begin_between(now) {
            self.begin(Like::Nothing, tracing::info_span!("datasets"), move |ctx| async move {
                Done::Datasets(now, read(Origin::Datasets, datasets::node(&ctx)).await)
            });
        }
        if self.sysinfo.begin(now) {
            self.begin(Like::Nothing, tracing::info_span!("sysinfo"), |ctx| async move {
                Done::Sysinfo(read(Origin::Sysinfo, sysinfo::load(&ctx)).await)
            });
        }
        if let Some((scope, index)) = self.sweep.begin(now) {
            let zones = self.seams.zones.borrow().clone();
            let span = tracing::info_span!("look", scope = scope.name());
            self.begin(Like::Nothing, span, move |ctx| async move {
                let seen = caught("sweep", sweep::compare(&ctx, scope, zones, index)).await;
                Done::Sweep(seen.map(Box::new))
            });
        }
        if self.listing.begin() {
            self.begin(Like::Nothing, tracing::info_span!("zones"), |ctx| async move {
                Done::Zones(read(Origin::Zoneadm, listing::list(&ctx)).await.map(Box::new))
            });
        }
        if let Some(reads_all) = self.refresh.begin(now) {
            self.begin_refresh(reads_all, now);
        }
    }

    pub(super) fn list_snapshots(&mut self) {
        self.begin(Like::Nothing, tracing::info_span!("snapshots"), |ctx| async move {
            Done::Snapshots(read(Origin::Datasets, datasets::snapshots(&ctx)).await)
        });
    }

    /// Begins a task.
    pub(super) fn begin<F>(&mut self, like: Like, span: Span, work: impl FnOnce(Ctx) -> F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        self.tasks.spawn(like, work(self.seams.ctx.clone()).instrument(span));
    }

    /// Takes over what a reading of the whole node says of the node itself.
    pub(super) fn take_node(&mut self, node: &mut Node, began: Instant) {
        self.status.clear_trouble("node");
        self.status.edit(|view| view.is_blind = node.zones.is_blind);
        self.status.show_sysinfo(node.sysinfo.value());
        self.take_datasets(std::mem::take(&mut node.datasets), began);
        self.sysinfo.replace(Arc::clone(&node.sysinfo));
    }

    /// The listing of one dataset has ended.
    pub(super) fn dataset_read(&mut self, name: &str, result: Result<Vec<Row>, LoadError>) {
        let now = Instant::now();
        let began = self.datasets.began(name);
        self.status.edit(|view| view.listings.remove(name));
        let ended = result.as_ref().map(drop).map_err(|error| format!("zfs: {error}"));
        let mut zones: Vec<Arc<str>> = self.zone_of(name).into_iter().collect();
        match result {
            Ok(rows) => {
                zones.extend(rows.iter().filter_map(|row| self.zone_of(row.name())));
                self.datasets.listed(name, rows, now);
                if vm_uuid(name).is_some_and(|uuid| self.departed.has(uuid)) {
                    self.note_left();
                }
                let owners = zones.iter().filter(|zone| self.is_root_of(name, zone));
                for zone in owners.cloned().collect::<Vec<_>>() {
                    self.has_datasets(&zone);
                }
                self.status.clear_trouble(name);
            }
            Err(error) => {
                let pause = self.pause(self.datasets.failures(name) + 1);
                self.datasets.failed(name, now, pause);
                let zone = zones.first().map(|zone| Concerns::Zone(Arc::clone(zone)));
                let concerns = zone.unwrap_or(Concerns::Nothing);
                if self.status.trouble(name, concerns, "zfs", error.to_string()) {
                    tracing::warn!(dataset = name, reason = %error, "listing failed: trying again");
                }
            }
        }
        self.show_slow();
        zones.sort();
        zones.dedup();
        for zone in zones {
            self.vms.mark(&zone, Stale::OBJECT, Reasons::DATASET, now);
        }
        if let Some(began) = began {
            self.answer_listed(name, began, &ended);
        }
    }

    /// Shows which datasets are slow, if that changed.
    fn show_slow(&self) {
        let slow = self.datasets.slots.slow();
        self.status.edit(|view| {
            if view.slow != *slow {
                view.slow.clone_from(slow);
            }
        });
    }

    /// Takes over a listing of the filesystems and volumes of the node.
    fn take_datasets(&mut self, listed: Vec<Row>, began: Instant) {
        self.datasets.refreshed(listed, began, Instant::now());
        self.note_left();
        self.status.edit(|view| view.datasets_listed = Some(began));
    }

    /// Returns true if changes of datasets may come without an event.
    pub(super) fn are_datasets_unannounced(&self) -> bool {
        self.datasets.is_silent() || self.status.edit(|view| view.is_down(Channel::Datasets.name()))
    }

    /// The listing of the node's filesystems and volumes between two refreshes has ended.
    pub(super) fn datasets_read(&mut self, began: Instant, result: Result<Vec<Row>, LoadError>) {
        let now = Instant::now();
        if self.datasets.between() != Some(began) {
            // A refresh has begun meanwhile and lists them itself.
            return;
        }
        match result {
            Ok(listed) => {
                self.take_datasets(listed, began);
                self.status.clear_trouble("datasets");
                if self.mark_changed_datasets(now) {
                    self.datasets.missed();
                    self.status.unannounced(Origin::Datasets.name());
                }
            }
            Err(error) => {
                self.datasets.refresh_failed();
                self.status.trouble("datasets", Concerns::Nothing, "zfs", error.to_string());
            }
        }
    }

    /// The listing of the node's snapshots has ended.
    pub(super) fn snapshots_read(&mut self, result: Result<SnapshotTable, LoadError>) {
        let now = Instant::now();
        match result {
            Ok(table) => {
                tracing::debug!(count = table.len(), "snapshots listed");
                self.datasets.snapshots_listed(table, now);
                self.status.clear_trouble("snapshots");
                for zone in self.status.edit(|view| view.without_snapshots.clone()) {
                    self.has_datasets(&zone);
                }
                self.mark_changed_datasets(now);
            }
            Err(error) => {
                let names = self.vms.known().filter_map(|(_, parts)| {
                    let root = self.datasets.tables.at(&parts.zone.zonepath)?;
                    Some(root.name().to_owned())
                });
                let names = names.collect();
                let again = now + self.config.refresh.0;
                self.datasets.snapshots_failed(again, names, now);
                if self.status.trouble("snapshots", Concerns::Nothing, "zfs", error.to_string()) {
                    tracing::warn!(reason = %error, "cannot list all snapshots; listing those of each VM");
                }
            }
        }
    }

    /// The datasets of a VM are known. One that a view names for want of them is shown with them first.
    fn has_datasets(&mut self, zone: &Arc<str>) {
        let parts = self.vms.parts(zone).cloned();
        let is_named = self.status.edit(|view| view.incomplete().has(zone));
        if let (true, Some(parts)) = (is_named, parts) {
            let parts = self.with_node((*parts).clone());
            if let Err(fault) = self.commit(zone, parts, None) {
                tracing::debug!(vm = &**zone, reason = %fault, "not shown with its datasets");
            }
        }
        self.status.has_datasets(zone);
    }

    /// Marks the VMs whose datasets differ from those of their object; returns true if there is one.
    fn mark_changed_datasets(&mut self, now: Instant) -> bool {
        let tables = &self.datasets.tables;
        let changed = self
            .vms
            .known()
            .filter(|(_, parts)| load::own_datasets(parts, tables) != parts.datasets);
        let changed: Vec<Arc<str>> = changed.map(|(name, _)| Arc::clone(name)).collect();
        for name in &changed {
            self.vms.mark(name, Stale::OBJECT, Reasons::DATASET, now);
        }
        !changed.is_empty()
    }

    /// The reading of sysinfo has ended.
    pub(super) fn sysinfo_read(&mut self, result: Result<Sysinfo, LoadError>) {
        let now = Instant::now();
        match result {
            Ok(value) => {
                self.status.clear_trouble("sysinfo");
                self.status.show_sysinfo(value.value());
                if self.sysinfo.read(value) {
                    let names: Vec<_> =
                        self.vms.known().map(|(name, _)| Arc::clone(name)).collect();
                    for name in names {
                        self.vms.mark(&name, Stale::OBJECT, Reasons::SYSINFO, now);
                    }
                }
            }
            Err(error) => {
                let pause = self.pause(self.sysinfo.failures() + 1);
                self.sysinfo.failed(now, pause);
                if self.status.trouble("sysinfo", Concerns::Nothing, "sysinfo", error.to_string()) {
                    tracing::warn!(reason = %error, "cannot read sysinfo; the last good one stays");
                }
            }
        }
    }

    /// A sweep, or a smaller look, has ended.
    pub(super) fn swept(&mut self, seen: Option<Box<Comparison>>) {
        let Some(seen) = seen else {
            self.sweep.failed();
            return self.plan_sweep();
        };
        self.sweep.ended(seen.index);
        // All signals up to now count as announcements.
        let pending = self.seams.inbox.take();
        self.signalled(pending);
        let now = Instant::now();
        if let Some(rows) = &seen.rows {
            match rows {
                Ok(rows) => {
                    self.status.clear_trouble("sweep");
                    let differences = sweep::compare_rows(&self.vms, rows);
                    let misses = self.found(differences, now);
                    if seen.scope == Scope::All && self.sweep.zones.judge(misses) {
                        self.status.restarted(Channel::Zones.name());
                        // Without a waiting helper this restarts the next one, which is harmless.
                        self.seams.restart_zones.notify_one();
                    }
                }
                Err(error) => {
                    let (source, what) = (error.source_name(), error.to_string());
                    if self.status.trouble("sweep", Concerns::Listing, source, what) {
                        tracing::warn!(reason = %error, "sweep failed");
                    }
                }
            }
        }
        let is_unwatched = seen.scope == Scope::Files;
        let differences = sweep::compare_files(&self.vms, &seen.files, is_unwatched);
        let misses = self.found(differences, now);
        if let Some(stamp) = seen.sysinfo {
            self.sysinfo.compare(stamp, now);
        }
        if seen.scope == Scope::All {
            if self.sweep.files.judge(misses) && self.status.is_up(fswatcher::NAME) {
                self.status.restarted(fswatcher::NAME);
                self.seams.restart_files.notify_one();
            }
            self.status.edit(|view| view.counters.sweeps += 1);
            self.vms.swept();
            self.plan_sweep();
        }
    }

    /// The zones are listed for requests: reads those that differ, and answers.
    pub(super) fn zones_listed(&mut self, result: Result<Box<listing::Listed>, LoadError>) {
        let (questions, now) = (self.listing.ended(), Instant::now());
        let seen = match result {
            Ok(seen) => seen,
            Err(error) => {
                let message = format!("{}: {error}", error.source_name());
                return questions.into_iter().for_each(|question| question.fail(&message));
            }
        };
        let mut waiters = Vec::new();
        for question in questions {
            match question {
                Question::Zones(waiter) => waiters.push(waiter),
                Question::Name(name, waiter) if seen.zones.has(&name) => self.fresh(&name, waiter),
                Question::Name(_, waiter) => answer(vec![waiter], &Ok(())),
            }
        }
        if waiters.is_empty() {
            return;
        }
        self.status.edit(|view| view.is_blind = seen.zones.is_blind);
        let (zones, mut open) = (seen.differing(&self.vms), Vec::new());
        for (name, stale) in &zones {
            if let Some(vm) = self.vms.mark(name, *stale, Reasons::ASKED, now) {
                let (done, read) = waiter();
                vm.waiters.push(done);
                open.push(read);
            }
        }
        let differing = Box::new(Differing { zones, seen, waiters });
        if open.is_empty() {
            return differing.answer(&self.vms);
        }
        let read = async move {
            // What is late or fails is named.
            let _late = timeout(listing::LIMIT, join_all(open)).await;
            Done::ZonesRead(differing)
        };
        self.tasks.spawn(Like::Nothing, read);
    }

    /// Marks what a look found; returns how many changes no event announced.
    fn found(&mut self, differences: Vec<Difference>, now: Instant) -> usize {
        let mut misses = 0;
        for Difference { name, stale, missed } in differences {
            if let Some(origin) = missed {
                misses += 1;
                self.status.unannounced(origin.name());
                tracing::warn!(
                    vm = &*name,
                    source = origin.name(),
                    "a sweep found a change that no event announced"
                );
            }
            self.vms.mark(&name, stale, Reasons::SWEEP, now);
        }
        misses
    }
}
