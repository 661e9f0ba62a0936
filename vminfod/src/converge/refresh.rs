// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole node at once: at the start, every few minutes, and when signals were lost.
//!
//! A refresh reads everything in one task while all else goes on; what changed meanwhile is newer
//! than it and is read again instead.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::board::Phase;
use super::{Done, Engine, Purpose, answer, note_name, waiter};
use crate::dirty::{Stale, Trace, Verdict};
use crate::load::{self, Haste, Node, Origin, times};
use crate::store::{StoredVm, written};
use crate::vm::Parts;
use crate::vm::draft::Draft;
use crate::walk::aside;

/// How often a refresh reads every file, whatever its stamp says.
const READ_ALL_EVERY: u32 = 12;
/// VMs taken in between two looks at other work.
const YIELD_EVERY: usize = 16;

impl Engine {
    /// Reads the node for the first time; returns when every zone is loaded or in error. `false`:
    /// the shutdown came first.
    pub async fn first_load(&mut self) -> bool {
        // Whatever was signalled before this moment is about to be read.
        self.inbox.take();
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let shutdown = self.shutdown.clone();
            // A reading that is dropped kills its commands: that is what is wanted at shutdown.
            let result = tokio::select! {
                result = load::node_of(&self.ctx, named) => result,
                () = shutdown.wait() => return false,
            };
            match result {
                Ok(node) => {
                    self.seed(node, began);
                    self.refreshed_at = Instant::now();
                    self.board.refreshed(self.refreshed_at, Ok(Vec::new()));
                    return true;
                }
                Err(error) => {
                    failures += 1;
                    if self.board.trouble("node", error.source_name(), error.to_string()) {
                        tracing::error!(source = error.source_name(), reason = %error,
                            "the node cannot be read: trying again until it can");
                    }
                    let pause = self.backoff(failures);
                    // Cancel-safe: nothing is held.
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = shutdown.wait() => return false,
                    }
                }
            }
        }
    }

    fn seed(&mut self, mut node: Node<Option<Named>>, began: Instant) {
        self.dataset_work.node_listed(began);
        self.board.well("node");
        self.board.show_sysinfo(node.sysinfo.value());
        self.datasets = node.datasets;
        self.sysinfo = node.sysinfo;
        self.listed = node.rows;
        // Names are kept once, in zoneadm's rows.
        let own = |(name, vm): Named| match node.parts.get(&*name) {
            Some(parts) => (Arc::clone(&parts.zone.zonename), vm),
            None => (name, vm),
        };
        self.store.seed(std::mem::take(&mut node.vms).into_iter().flatten().map(own));
        for (name, parts) in node.parts.drain() {
            note_name(&mut self.names, &parts.zone.uuid, &name);
            let vm = self.vms.entry(name).or_default();
            vm.parts = Some(parts);
            vm.reads.note(Stale::ALL, began);
        }
        self.zones_changed = true;
        let broken = std::mem::take(&mut node.broken);
        self.note_broken(broken);
        tracing::info!(vms = self.store.published().snapshot().vms.len(), "first load done");
    }

    fn note_broken(&mut self, broken: Vec<load::Broken>) {
        for one in broken {
            let message = one.error.to_string();
            if self.board.trouble(&one.zonename, one.error.source_name(), message.clone()) {
                tracing::warn!(vm = %one.zonename, source = one.error.source_name(), reason = %message,
                    "reading failed: the last good object stays, if there is one");
            }
            let pause = self.backoff(2);
            self.mark(&one.zonename, Stale::ALL, Instant::now() + pause);
        }
    }

    /// Plans the next refresh.
    pub(super) fn plan_refresh(&mut self) {
        let (min, max) = self.config.refresh;
        self.refresh_due = Instant::now() + self.jitter.uniform(min, max);
    }

    pub(super) fn start_refresh(&mut self) {
        self.refreshing = true;
        self.refresh_due = Instant::now() + self.config.refresh.1;
        self.node_reading_waiters = std::mem::take(&mut self.node_waiters);
        self.dataset_work.since_refresh.clear();
        let (ctx, began) = (self.ctx.clone(), Instant::now());
        self.board.show_refresh(began, Phase::Reading);
        let known = self.known();
        let haste =
            if self.node_reading_waiters.is_empty() { Haste::Background } else { Haste::Soon };
        tracing::debug!(?haste, "refresh begins");
        let refresh = async move { load::refresh(&ctx, known, haste).await };
        let is_simulated = self.alarm.is_none();
        self.spawn(Purpose::Node, async move {
            let read = if is_simulated { Some(refresh.await) } else { aside(refresh).await };
            let read = read.map(|read| read.map_err(|error| error.to_string()));
            Done::Node(
                began,
                Box::new(read.unwrap_or_else(|| Err("the reading panicked".to_owned()))),
            )
        });
    }

    /// What a refresh need not read again if its stamps are what they were: nothing at all every so
    /// often, since a stamp may lie.
    fn known(&mut self) -> load::Known {
        self.unread_refreshes += 1;
        if self.unread_refreshes >= READ_ALL_EVERY {
            self.unread_refreshes = 0;
            return load::Known::default();
        }
        let settled = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.failures == 0 && vm.reading.is_none() && vm.stale.is_none());
        let known = settled.filter_map(|(name, vm)| Some((name.clone(), vm.parts.clone()?)));
        let (rows, datasets) = (Arc::clone(&self.listed), self.datasets.clone());
        load::Known { zones: known.collect(), rows, datasets }
    }

    /// A refresh has ended.
    pub(super) async fn node_read(&mut self, began: Instant, result: Result<Node, String>) {
        self.refreshing = false;
        let waiters = std::mem::take(&mut self.node_reading_waiters);
        let node = match result {
            Ok(node) => node,
            Err(message) => {
                self.refresh_failures += 1;
                self.refresh_due = Instant::now()
                    + self.backoff(self.refresh_failures).max(Duration::from_secs(1));
                if self.board.trouble("node", "refresh", message.clone()) {
                    tracing::warn!(reason = %message, "refresh failed: all objects stay");
                }
                let stale = self.refreshed_at.elapsed() > self.config.refresh.1 * 2;
                self.board.edit(|view| view.stale = stale);
                answer(waiters, &Err(message.clone()));
                self.board.refreshed(began, Err(message));
                return;
            }
        };
        self.refresh_failures = 0;
        self.refreshed_at = Instant::now();
        self.board.edit(|view| view.stale = false);
        self.board.well("node");
        self.board.show_sysinfo(node.sysinfo.value());
        self.dataset_work.node_listed(began);
        self.sysinfo_differs = self.sysinfo != node.sysinfo;
        let same_for_all = self.take_datasets(node.datasets) && !self.sysinfo_differs;
        self.sysinfo = node.sysinfo;
        self.board.show_refresh(began, Phase::Comparing);

        let mut changes = Vec::new();
        let mut parts = node.parts;
        for (count, row) in node.rows.iter().enumerate() {
            if let Some(parts) = parts.remove(&row.zonename) {
                changes.extend(self.take_parts(&row.zonename, parts, began, same_for_all));
            }
            if count % YIELD_EVERY == 0 {
                tokio::task::yield_now().await;
            }
        }
        self.board.show_refresh(began, Phase::Committing);
        self.note_broken(node.broken);
        let listed: HashSet<&str> = node.rows.iter().map(|row| &*row.zonename).collect();
        self.confirm_missing(&listed, waiters);
        tracing::debug!(
            ms = began.elapsed().as_millis() as u64,
            found = changes.len(),
            "refresh done"
        );
        self.keep_list(node.rows);
        self.board.refreshed(began, Ok(changes));
        self.plan_refresh();
    }

    /// Takes one VM of a refresh in, unless something newer is known or under way.
    fn take_parts(
        &mut self,
        name: &str,
        parts: Parts,
        began: Instant,
        same_for_all: bool,
    ) -> Option<(String, &'static str)> {
        let vm = self.vms.entry(name.into()).or_default();
        if vm.parts.as_ref().is_some_and(|known| Arc::ptr_eq(&known.xml, &parts.xml)) {
            let files = (0..times::FILES).filter(|file| parts.stamps.has(*file)).count() as u64;
            self.board.edit(|view| view.counters.confirmed += files);
        }
        let newer = vm.reading.is_some()
            || vm.stale.has(Stale::ALL)
            || vm.reads.last().is_some_and(|at| at >= began);
        if newer {
            self.mark(name, Stale::ALL, Instant::now() + self.config.fold);
            return None;
        }
        if same_for_all && vm.failures == 0 && vm.parts.as_ref() == Some(&parts) {
            // What is shown was made of exactly this.
            vm.parts = Some(parts);
            vm.reads.note(Stale::ALL, began);
            return None;
        }
        let before = vm.parts.clone();
        let differing = differing(before.as_ref(), &parts, self.sysinfo_differs);
        if let Some(before) = before
            && let Verdict::Show(state) = Trace::default().judge(&before.zone, &parts.zone, true)
        {
            self.show_away(name, before, &state);
        }
        let seq = self.store.published().snapshot().seq;
        let was_there = self.store.published().snapshot().vms.contains_key(name);
        match self.put(name, parts) {
            Ok(()) => {
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.reads.note(Stale::ALL, began);
                }
                self.board.well(name);
                if self.store.published().snapshot().seq == seq {
                    return None;
                }
                let change = if was_there { "modify" } else { "create" };
                self.found(name, change, &differing);
                Some((name.to_owned(), change))
            }
            Err(fault) => {
                if self.board.trouble(name, fault.source_name(), fault.to_string()) {
                    tracing::warn!(vm = name, source = fault.source_name(), reason = %fault, "reading failed");
                }
                let pause = self.backoff(1);
                self.mark(name, Stale::ALL, Instant::now() + pause);
                None
            }
        }
    }

    /// Counts and logs what a refresh found and no event had announced.
    fn found(&self, name: &str, change: &str, differing: &[Origin]) {
        for origin in differing {
            self.board.unannounced(origin.name());
        }
        let classes: Vec<&str> = differing.iter().map(|origin| origin.name()).collect();
        tracing::warn!(vm = name, change, ?classes, "refresh found what no event announced");
    }

    /// VMs that a complete list lacks: each is asked for by name before it is given up, and those
    /// who wait for the refresh wait for that too.
    fn confirm_missing(&mut self, listed: &HashSet<&str>, waiters: Vec<super::Waiter>) {
        let missing: Vec<String> = self
            .vms
            .iter()
            .filter(|(name, vm)| vm.parts.is_some() && !listed.contains(&***name))
            .map(|(name, _)| name.to_string())
            .collect();
        let mut confirmations = Vec::new();
        for name in missing {
            if let Some(vm) = self.mark(&name, Stale::ON_ZONE_EVENT, Instant::now()) {
                let (done, confirmed) = waiter();
                vm.waiters.push(done);
                confirmations.push(confirmed);
            }
        }
        if waiters.is_empty() {
            return;
        }
        // Also what was being read while the refresh was: it is newer, and not committed yet.
        for vm in self
            .vms
            .values_mut()
            .filter(|vm| vm.reading.is_some() || vm.due.is_some() && vm.failures == 0)
        {
            let (done, confirmed) = waiter();
            vm.waiters.push(done);
            confirmations.push(confirmed);
        }
        tokio::spawn(async move {
            let mut result = Ok(());
            for confirmed in confirmations {
                if let Ok(Err(message)) = confirmed.await {
                    result = Err(message);
                }
            }
            answer(waiters, &result);
        });
    }

    /// The node's datasets, except what was touched since they were listed, and what such a
    /// listing is too shallow to show. Whether they are what they were.
    fn take_datasets(&mut self, mut fresh: load::Datasets) -> bool {
        let mut again = std::mem::take(&mut self.dataset_work.since_refresh);
        let deep = self.shown_deep(&fresh);
        let unshown: Vec<String> = fresh
            .deep_snapshots()
            .filter(|name| !deep.contains(*name))
            .map(str::to_owned)
            .collect();
        unshown.iter().for_each(|name| fresh.drop_snapshots(name));
        for name in &deep {
            fresh.keep_snapshots(&self.datasets, name);
        }
        again.extend(deep);
        let same = fresh == self.datasets;
        self.datasets = fresh;
        for name in again {
            self.dataset_work.want(&name);
        }
        same
    }

    /// The datasets of VMs that have snapshots which no listing of the node shows.
    fn shown_deep(&self, fresh: &load::Datasets) -> HashSet<String> {
        let mut deep: HashSet<&str> = self.datasets.deep_snapshots().collect();
        deep.retain(|name| fresh.get(name).is_some());
        if deep.is_empty() {
            return HashSet::new();
        }
        let parts = self.vms.values().filter_map(|vm| vm.parts.as_ref());
        let shown = parts.flat_map(|parts| super::datasets_of(parts, &self.datasets));
        shown.filter(|name| deep.contains(name.as_str())).collect()
    }
}

/// A VM of the first load, ready to be shown.
type Named = (Arc<str>, Arc<StoredVm>);

/// Made of an object as soon as it is composed, so that its draft can go.
fn named(object: Draft) -> Option<Named> {
    let text = |name: &str| object.text(name);
    Some((text("zonename")?.into(), written(&object, text)))
}

/// The sources that say something else than before; where none of the VM's own does, what concerns
/// all VMs must.
fn differing(before: Option<&Parts>, now: &Parts, sysinfo: bool) -> Vec<Origin> {
    let Some(before) = before else { return vec![Origin::Zoneadm] };
    let mut origins: Vec<Origin> = [
        (Origin::Zoneadm, before.zone != now.zone),
        (Origin::ZoneXml, before.xml != now.xml),
        (Origin::Kstat, before.kstat != now.kstat),
        (Origin::Config, before.config != now.config),
        (Origin::LastExited, before.lastexited != now.lastexited),
        (Origin::Receiving, before.receiving != now.receiving),
        (Origin::Sysinfo, sysinfo),
    ]
    .into_iter()
    .filter_map(|(origin, differs)| differs.then_some(origin))
    .collect();
    if origins.is_empty() {
        let times = before.last_modified() != now.last_modified();
        origins.push(if times { Origin::Times } else { Origin::Datasets });
    }
    origins
}
