// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What concerns every VM: how its readings begin, and what follows from them.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Instrument;
use vm_model::datasets::SnapshotTable;
use vm_model::origin::Origin;
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parse::zfs_list::Row;
use vm_model::parts::{FILES, Parts};
use vm_model::reboot::{Trace, Verdict};
use vm_model::stale::Stale;

use super::asks::{Waiter, answer, waiter};
use super::engine::Reconciler;
use super::status::Phase;
use super::sweep::{self, Difference, Scope, Seen};
use super::tasks::{Done, Purpose};
use super::vms::Reasons;
use crate::node::LoadError;
use crate::node::blocking::threads;
use crate::node::load::{self, Known, Node};
use crate::node::read::{datasets, sysinfo};
use crate::sources::fswatcher;
use crate::sources::sysevent::Channel;
use crate::store::Outcome;

/// Threads that read files for a refresh that nobody waits for.
const BACKGROUND: usize = 1;

impl Reconciler {
    /// Begins the node-wide readings that are due.
    pub(super) fn begin_node_wide(&mut self, now: Instant) {
        while let Some(name) = self.datasets.next(now) {
            let (ctx, span) = (self.seams.ctx.clone(), tracing::info_span!("dataset", name));
            let purpose = Purpose::Dataset(name.clone());
            let list = async move { Done::Dataset(name.clone(), datasets::one(&ctx, &name).await) };
            self.tasks.spawn(purpose, list.instrument(span));
        }
        if self.datasets.begin_snapshots(now) {
            let (ctx, span) = (self.seams.ctx.clone(), tracing::info_span!("snapshots"));
            let list = async move { Done::Snapshots(datasets::snapshots(&ctx).await) };
            self.tasks.spawn(Purpose::Snapshots, list.instrument(span));
        }
        if self.sysinfo.begin(now) {
            let (ctx, span) = (self.seams.ctx.clone(), tracing::info_span!("sysinfo"));
            let read = async move { Done::Sysinfo(sysinfo::load(&ctx).await) };
            self.tasks.spawn(Purpose::Sysinfo, read.instrument(span));
        }
        if let Some((scope, index)) = self.sweep.begin(now) {
            let (ctx, zones) = (self.seams.ctx.clone(), self.seams.zones.borrow().clone());
            let span = tracing::info_span!("look", ?scope);
            let look = async move {
                Done::Sweep(Some(Box::new(sweep::look(&ctx, scope, zones, index).await)))
            };
            self.tasks.spawn(Purpose::Sweep, look.instrument(span));
        }
        if let Some(reads_all) = self.refresh.begin(now) {
            self.begin_refresh(reads_all, now);
        }
    }

    fn begin_refresh(&mut self, reads_all: bool, now: Instant) {
        self.datasets.begin_refresh();
        self.datasets.want_snapshots(now);
        self.status.show_refresh(now, Phase::Reading);
        let settled = self.vms.iter().filter(|(_, vm)| {
            !reads_all && !vm.is_failing() && vm.reading.is_none() && vm.stale.is_empty()
        });
        let known: Known =
            settled.filter_map(|(name, vm)| Some((name.clone(), vm.parts.clone()?))).collect();
        let at_once = if self.refresh.is_asked_for() { threads() } else { BACKGROUND };
        let (ctx, span) = (self.seams.ctx.clone(), tracing::info_span!("refresh", reads_all));
        let read =
            async move { Done::Node(Some(Box::new(load::node(&ctx, known, at_once).await))) };
        self.tasks.spawn(Purpose::Node, read.instrument(span));
    }

    /// The listing of one dataset has ended.
    pub(super) fn dataset_read(&mut self, name: &str, result: Result<Vec<Row>, LoadError>) {
        let now = Instant::now();
        let mut zones: Vec<Arc<str>> = self.zone_of(name).into_iter().collect();
        match result {
            Ok(rows) => {
                zones.extend(rows.iter().filter_map(|row| self.zone_of(row.name())));
                self.datasets.listed(name, rows, now);
                self.status.clear_trouble(name);
            }
            Err(error) => {
                let pause = self.pause(self.datasets.failures(name) + 1);
                self.datasets.failed(name, now, pause);
                if self.status.trouble(name, "zfs", error.to_string()) {
                    tracing::warn!(dataset = name, reason = %error, "listing failed: it is tried again");
                }
            }
        }
        zones.sort();
        zones.dedup();
        for zone in zones {
            self.vms.mark(&zone, Stale::OBJECT, Reasons::DATASET, now);
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
                if self.status.trouble("snapshots", "zfs", error.to_string()) {
                    tracing::warn!(reason = %error, "listing of snapshots failed: each VM's are listed alone");
                }
            }
        }
    }

    /// Marks the VMs whose own datasets are not what their object was made of.
    fn mark_changed_datasets(&mut self, now: Instant) {
        let tables = &self.datasets.tables;
        let changed = self
            .vms
            .known()
            .filter(|(_, parts)| load::own_datasets(parts, tables) != parts.datasets);
        let changed: Vec<Arc<str>> = changed.map(|(name, _)| Arc::clone(name)).collect();
        for name in changed {
            self.vms.mark(&name, Stale::OBJECT, Reasons::DATASET, now);
        }
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
                if self.status.trouble("sysinfo", "sysinfo", error.to_string()) {
                    tracing::warn!(reason = %error, "reading of sysinfo failed: the last good one stays");
                }
            }
        }
    }

    /// A sweep, or a smaller look, has ended.
    pub(super) fn swept(&mut self, seen: Option<Box<Seen>>) {
        let Some(seen) = seen else {
            self.sweep.failed();
            return self.plan_sweep();
        };
        self.sweep.ended(seen.index);
        // What was signalled up to now is announced.
        let pending = self.seams.inbox.take();
        self.signalled(pending);
        let now = Instant::now();
        if let Some(rows) = &seen.rows {
            match rows {
                Ok(rows) => {
                    self.status.clear_trouble("sweep");
                    let differences = sweep::compare_rows(&self.vms, rows);
                    let misses = self.found(differences, now);
                    if seen.scope == Scope::All && self.sweep.judge_zones(misses) {
                        self.status.restarted(Channel::Zones.name());
                        // Where no helper waits for it, the permit restarts the next one: harmless.
                        self.seams.restart_zones.notify_one();
                    }
                }
                Err(error) => {
                    if self.status.trouble("sweep", error.source_name(), error.to_string()) {
                        tracing::warn!(reason = %error, "sweep failed");
                    }
                }
            }
        }
        let is_unwatched = seen.scope == Scope::Files;
        let differences = sweep::compare_files(&self.vms, &seen.files, is_unwatched);
        let misses = self.found(differences, now);
        if let Some(stamp) = seen.sysinfo {
            self.sysinfo.look(stamp, now);
        }
        if seen.scope == Scope::All {
            if self.sweep.judge_files(misses) && self.status.is_up(fswatcher::NAME) {
                self.status.restarted(fswatcher::NAME);
                self.seams.restart_files.notify_one();
            }
            self.status.edit(|view| view.counters.sweeps += 1);
            self.vms.swept();
            self.plan_sweep();
        }
    }

    /// Marks what a look found; returns how much of it no event announced.
    fn found(&mut self, differences: Vec<Difference>, now: Instant) -> usize {
        let mut misses = 0;
        for Difference { name, stale, missed } in differences {
            if let Some(origin) = missed {
                misses += 1;
                self.status.unannounced(origin.name());
                tracing::warn!(
                    vm = &*name,
                    source = origin.name(),
                    "sweep found a change that no event announced"
                );
            }
            self.vms.mark(&name, stale, Reasons::SWEEP, now);
        }
        misses
    }

    /// The reading of the whole node has ended.
    pub(super) fn refreshed(&mut self, result: Option<Box<Result<Node, LoadError>>>) {
        let now = Instant::now();
        let began = self.refresh.running().unwrap_or(now);
        match result.map(|result| *result) {
            Some(Ok(mut node)) => {
                self.status.edit(|view| view.stale = false);
                self.status.clear_trouble("node");
                self.status.show_sysinfo(node.sysinfo.value());
                self.datasets.refreshed(std::mem::take(&mut node.datasets), began, now);
                self.sysinfo.replace(Arc::clone(&node.sysinfo));
                self.status.show_refresh(began, Phase::Committing);
                self.refresh.take_in(node);
            }
            Some(Err(error)) => self.refresh_failed(began, error.to_string()),
            None => self.refresh_failed(began, "the reading panicked".to_owned()),
        }
    }

    fn refresh_failed(&mut self, began: Instant, message: String) {
        let now = Instant::now();
        self.datasets.refresh_failed();
        let pause = self.pause(self.refresh.failures() + 1);
        let waiters = self.refresh.failed(now, pause);
        if self.status.trouble("node", "refresh", message.clone()) {
            tracing::warn!(reason = %message, "refresh failed: all objects stay");
        }
        let is_stale = self.refresh.age(now) > self.config.refresh.1 * 2;
        self.status.edit(|view| view.stale = is_stale);
        answer(waiters, &Err(message.clone()));
        self.status.refreshed(began, Err(message));
    }

    /// Takes in the next VMs of a refresh, so many at once; returns true if there was one.
    pub(super) fn take_refreshed(&mut self, count: usize) -> bool {
        let Some(mut taking) = self.refresh.taking() else { return false };
        let now = Instant::now();
        let began = self.refresh.running().unwrap_or(now);
        for _ in 0..count {
            let Some((row, parts)) = taking.next(&self.datasets.tables) else {
                let waiters = self.refresh.ended(now);
                self.confirm_missing(&taking.listed(), waiters, now);
                let (ms, found) = (began.elapsed().as_millis() as u64, taking.changes.len());
                tracing::debug!(ms, found, "refresh done");
                self.status.refreshed(began, Ok(taking.changes));
                self.plan_refresh();
                return true;
            };
            match parts {
                Ok(parts) => {
                    taking.changes.extend(self.take_parts(&row.zonename, parts, began, now));
                }
                Err(error) => self.note_broken(&row.zonename, &error, Reasons::REFRESH),
            }
        }
        self.refresh.give_back(taking);
        true
    }

    /// Takes one VM of a refresh in, unless something newer is known or under way.
    fn take_parts(
        &mut self,
        name: &Arc<str>,
        parts: Parts,
        began: Instant,
        now: Instant,
    ) -> Option<(String, &'static str)> {
        let vm = self.vms.get(name);
        let is_newer = vm.is_some_and(|vm| {
            vm.is_stale(Stale::ALL) || vm.reads.last().is_some_and(|at| at >= began)
        });
        if is_newer {
            self.vms.mark(name, Stale::ALL, Reasons::REFRESH, now);
            return None;
        }
        let before = vm.and_then(|vm| vm.parts.as_ref());
        if before.is_some_and(|known| Arc::ptr_eq(&known.xml, &parts.xml)) {
            let files = (0..FILES).filter(|file| parts.stamps.has(*file)).count() as u64;
            self.status.edit(|view| view.counters.confirmed += files);
        }
        let differing = differing(before, &parts);
        let change = if before.is_some() { "modify" } else { "create" };
        let verdict = before.map(|before| Trace::default().judge(&before.zone, &parts.zone, true));
        let away = match verdict {
            Some(Verdict::Show(state)) => Some(state),
            _ => None,
        };
        match self.commit(name, parts, away) {
            Ok(outcome) => {
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.reads.note(Stale::ALL, began);
                    vm.backoff = None;
                }
                self.status.clear_trouble(name);
                if outcome == Outcome::Unchanged {
                    return None;
                }
                for origin in &differing {
                    self.status.unannounced(origin.name());
                }
                let sources: Vec<&str> = differing.iter().map(|origin| origin.name()).collect();
                tracing::warn!(
                    vm = &**name,
                    change,
                    ?sources,
                    "refresh found a change that no event announced"
                );
                Some((name.to_string(), change))
            }
            Err(fault) => {
                if self.status.trouble(name, fault.source_name(), fault.to_string()) {
                    tracing::warn!(vm = &**name, source = fault.source_name(), reason = %fault, "reading failed");
                }
                let at = self.retry_at(name);
                self.vms.mark(name, Stale::ALL, Reasons::RETRY, at);
                None
            }
        }
    }

    /// Notes a zone that could not be read, and plans another try.
    pub(super) fn note_broken(&mut self, name: &Arc<str>, error: &LoadError, reason: Reasons) {
        if self.status.trouble(name, error.source_name(), error.to_string()) {
            tracing::warn!(vm = &**name, source = error.source_name(), reason = %error,
                "reading failed: the last good object stays, if there is one");
        }
        let now = Instant::now();
        self.vms.mark(name, Stale::ALL, reason, now + self.config.retry.1);
        let at = self.retry_at(name);
        self.vms.mark(name, Stale::ALL, reason, at);
    }

    /// VMs that a complete list lacks: each is asked for by name before it is given up. Requests
    /// that wait for the refresh wait for that as well, and for what was being read meanwhile.
    fn confirm_missing(&mut self, listed: &HashSet<Arc<str>>, waiters: Vec<Waiter>, now: Instant) {
        let known = self.vms.known().map(|(name, _)| name);
        let missing: Vec<_> = known.filter(|name| !listed.contains(*name)).cloned().collect();
        for name in missing {
            self.vms.mark(&name, Stale::ON_ZONE_EVENT, Reasons::REFRESH, now);
        }
        if waiters.is_empty() {
            return;
        }
        let mut open = Vec::new();
        for (_, vm) in self.vms.iter_mut() {
            if vm.reading.is_some() || !vm.stale.is_empty() && !vm.is_failing() {
                let (done, confirmed) = waiter();
                vm.waiters.push(done);
                open.push(confirmed);
            }
        }
        let confirm = async move {
            let mut result = Ok(());
            for confirmed in open {
                if let Ok(Err(message)) = confirmed.await {
                    result = Err(message);
                }
            }
            answer(waiters, &result);
            Done::Nothing
        };
        self.tasks.spawn(Purpose::Confirm, confirm);
    }
}

/// The sources that say something else than before.
fn differing(before: Option<&Parts>, now: &Parts) -> Vec<Origin> {
    let Some(before) = before else { return vec![Origin::Zoneadm] };
    let mut origins: Vec<Origin> = [
        (Origin::Zoneadm, before.zone != now.zone),
        (Origin::ZoneXml, before.xml != now.xml),
        (Origin::Kstat, before.kstat != now.kstat),
        (Origin::Config, before.config != now.config),
        (Origin::LastExited, before.lastexited != now.lastexited),
        (Origin::Receiving, before.receiving != now.receiving),
        (Origin::Sysinfo, before.sysinfo != now.sysinfo),
        (Origin::Datasets, before.datasets != now.datasets),
    ]
    .into_iter()
    .filter_map(|(origin, differs)| differs.then_some(origin))
    .collect();
    if origins.is_empty() && before.stamps.last_modified != now.stamps.last_modified {
        origins.push(Origin::Times);
    }
    origins
}
