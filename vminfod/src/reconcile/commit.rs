// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The reading of one VM: how it begins, and how it leads to a commit.

use std::sync::Arc;

use daemon::tasks::caught;
use sdc_clients::retry::Backoff;
use tokio::time::Instant;
use tracing::Instrument;
use vm_model::origin::Origin;
use vm_model::outline::Outline;
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use super::asks::{Waiter, answer};
use super::datasets::Asked;
use super::engine::Reconciler;
use super::reading::{Loaded, ReadFault, Reading, Sources};
use super::status::Concerns;
use super::tasks::{Done, Like};
use super::vms::{Reasons, Under};
use super::witness::{Witnesses, sets_aside};
use crate::node::LoadError;
use crate::node::load::{assemble, composed, outranked_by, own_datasets};
use crate::store::Outcome;

impl Reconciler {
    /// Begins the reading of a VM that is due.
    pub(super) fn begin_reading(&mut self, name: &Arc<str>, now: Instant) {
        let Some(vm) = self.vms.get_mut(name) else { return };
        let reasons = std::mem::take(&mut vm.reasons);
        let signalled = vm.signalled.take().unwrap_or(now);
        let under = Under {
            stale: std::mem::take(&mut vm.stale),
            trace: std::mem::take(&mut vm.trace),
            repeats: vm.repeats.take(),
            waiters: std::mem::take(&mut vm.waiters),
        };
        let (stale, known, xml_changed) = (under.stale, vm.parts.clone(), vm.xml_changed);
        vm.reading = Some(Box::new(under));
        self.status.edit(|view| view.begins(name, signalled, now));
        let span = tracing::info_span!("reading", vm = &**name, reason = %reasons.text());
        let parts = stale.names().collect::<Vec<_>>().join(" ");
        let waited_ms = now.duration_since(signalled).as_millis() as u64;
        tracing::debug!(parent: &span, %parts, waited_ms, "reading begins");
        if let Some(known) = known.as_ref().filter(|_| stale == Stale::OBJECT) {
            // No source is stale: the datasets or the sysinfo in memory changed.
            let _entered = span.enter();
            let parts = self.with_node((**known).clone());
            self.parts_read(name, Ok(Some(parts)));
            return;
        }
        let (ctx, name) = (self.seams.ctx.clone(), Arc::clone(name));
        let reading =
            Reading { ctx, name: Arc::clone(&name), known, stale, signalled, xml_changed };
        let work = async move {
            let read = caught("reading", reading.run()).await;
            Done::Vm(name, read.unwrap_or(Err(ReadFault::Panic)))
        };
        self.tasks.spawn(Like::Vm(stale), work.instrument(span));
    }

    /// The reading of a VM has ended.
    pub(super) fn vm_read(&mut self, name: &Arc<str>, result: Result<Loaded, ReadFault>) {
        let result = result.map(|loaded| match loaded {
            Loaded::Gone => None,
            Loaded::Elsewhere(zone) => {
                let reading = self.vms.get_mut(name).and_then(|vm| vm.reading.as_mut());
                for waiter in reading.map(|it| std::mem::take(&mut it.waiters)).unwrap_or_default()
                {
                    self.fresh(&zone, waiter);
                }
                None
            }
            Loaded::Sources(sources) => Some(self.parts_of(name, *sources)),
        });
        self.parts_read(name, result);
    }

    /// Commits what was read of a VM; `None`: there is no such zone.
    fn parts_read(&mut self, name: &Arc<str>, result: Result<Option<Parts>, ReadFault>) {
        let Some(under) = self.vms.get_mut(name).and_then(|vm| vm.reading.take()) else { return };
        let under = *under;
        match result {
            Ok(None) => self.gone(name, under),
            Ok(Some(parts)) => {
                let is_known = self.vms.parts(name).is_some();
                match self.judge_and_commit(name, parts, &under) {
                    Ok(()) => self.succeeded(name, under, is_known),
                    Err(fault) => self.failed(name, under, &fault),
                }
            }
            Err(fault) => self.failed(name, under, &fault),
        }
        self.vms.ended(name);
        // Last: a client that sees nothing pending sees the result.
        self.status.edit(|view| view.ends(name));
    }

    /// The parts of a VM from its sources and what is known of the node.
    fn parts_of(&mut self, name: &Arc<str>, sources: Sources) -> Parts {
        let Sources { row, kstat, files } = sources;
        match files.doubts.first() {
            Some(doubt) => self.status.doubt(name, doubt),
            None => self.status.clear_doubt(name),
        }
        assemble(&row, files, kstat, &self.datasets.tables, &self.sysinfo.value)
    }

    /// The same parts with the datasets and the sysinfo that are known now.
    pub(super) fn with_node(&self, parts: Parts) -> Parts {
        let (datasets, sysinfo) =
            (own_datasets(&parts, &self.datasets.tables), Arc::clone(&self.sysinfo.value));
        Parts { datasets, sysinfo, ..parts }
    }

    fn judge_and_commit(
        &mut self,
        name: &Arc<str>,
        parts: Parts,
        under: &Under,
    ) -> Result<(), ReadFault> {
        let Some(vm) = self.vms.get_mut(name) else { return Ok(()) };
        // New times or datasets do not show that zoneadm has caught up with the kernel.
        let is_moved = vm.parts.as_ref().is_none_or(|before| {
            before.zone != parts.zone || before.kstat != parts.kstat || before.xml != parts.xml
        });
        let (away, pause) = vm.judge(under, &parts.zone, is_moved);
        if let Some(pause) = pause {
            let at = Instant::now() + pause;
            self.vms.mark(name, Stale::ON_ZONE_EVENT, Reasons::REPEAT, at);
        }
        self.commit(name, parts, away).map(drop)
    }

    /// Commits the object of these parts. `away`: the state between the last reading and this one, which
    /// is shown first.
    /// Errors: there is no object, or another zone of the uuid is shown.
    pub(super) fn commit(
        &mut self,
        name: &Arc<str>,
        parts: Parts,
        away: Option<String>,
    ) -> Result<Outcome, ReadFault> {
        let before = self.vms.parts(name).cloned();
        if away.is_none() && before.as_deref() == Some(&parts) {
            return self.check_first(name).map(|()| Outcome::Unchanged);
        }
        let object = self.composed(&parts)?;
        let is_moved =
            |old: &Arc<Parts>| old.zone.zone_state != parts.zone.zone_state || old.xml != parts.xml;
        if before.is_none()
            && let Some(dataset) = self.departed.forget(&parts.zone.uuid)
        {
            self.status.clear_trouble(&left_key(&dataset));
        }
        let has_moved = away.is_some() || before.as_ref().is_none_or(is_moved);
        let uuid = Arc::clone(&parts.zone.uuid);
        let earlier = before.as_ref().map(|old| Arc::clone(&old.zone.uuid));
        let earlier = earlier.filter(|earlier| *earlier != uuid);
        self.vms.adopt(name, parts);
        if let Err(fault) = self.check_first(name) {
            if self.store.shows(name) {
                self.show_first(&uuid, Some(name));
            }
            return Err(fault);
        }
        let hidden = self.hide_others(name, &uuid);
        let mut old = before.filter(|_| self.store.shows(name));
        if let (Some(state), Some(before)) = (away, &old) {
            let zone = ZoneRow { zone_state: state, ..(*before.zone).clone() };
            let shown = Parts { zone: Arc::new(zone), ..(**before).clone() };
            let outcome = self.store.put(name, self.composed(&shown)?, &[], || self.old(before));
            self.status.edit(|view| view.counters.reboots_shown += 1);
            self.log(name, outcome);
            old = Some(Arc::new(shown));
        }
        let old = || old.as_ref().and_then(|old| self.old(old));
        let outcome = self.store.put(name, object, &hidden, old);
        self.log(name, outcome);
        if let Some(uuid) = earlier {
            self.show_first(&uuid, None);
        }
        if has_moved {
            self.want_unknown_datasets(name);
        }
        Ok(outcome)
    }

    /// Fails if another zone of its uuid ranks before this one.
    fn check_first(&self, name: &str) -> Result<(), ReadFault> {
        let first = self.vms.shown_instead_of(name);
        first.map_or(Ok(()), |first| Err(outranked_by(&first).into()))
    }

    /// The zones of this uuid that `first` is to be shown instead of. They are reported before they are
    /// removed: a view that lacks one names it.
    fn hide_others(&mut self, first: &Arc<str>, uuid: &str) -> Vec<Arc<str>> {
        let mut shown = self.vms.of_uuid(uuid);
        shown.retain(|name| name != first && self.store.shows(name));
        for name in &shown {
            self.note_broken(name, outranked_by(first), Reasons::RETRY);
        }
        shown
    }

    /// Shows the zone that ranks first among those of this uuid, if there is one, and not `hidden`.
    fn show_first(&mut self, uuid: &str, hidden: Option<&Arc<str>>) {
        let hidden = hidden.map(std::slice::from_ref).unwrap_or_default();
        let Some(first) = self.vms.of_uuid(uuid).into_iter().next() else {
            for name in hidden {
                let outcome = self.store.remove(name);
                self.log(name, outcome);
            }
            return;
        };
        // It may have changed while it was not shown.
        self.vms.mark(&first, Stale::ALL, Reasons::SHOWN, Instant::now());
        let Some(parts) = self.vms.parts(&first).map(|parts| self.with_node((**parts).clone()))
        else {
            return;
        };
        if let Ok(object) = self.composed(&parts) {
            let outcome = self.store.put(&first, object, hidden, || self.old(&parts));
            self.log(&first, outcome);
            self.vms.adopt(&first, parts);
        }
    }

    fn composed(&self, parts: &Parts) -> Result<Outline, LoadError> {
        composed(&self.seams.ctx.root, parts)
    }

    fn old(&self, parts: &Parts) -> Option<Outline> {
        self.composed(parts).ok()
    }

    fn log(&self, name: &str, outcome: Outcome) {
        if outcome != Outcome::Unchanged {
            let seq = self.store.published().snapshot().seq;
            let changes = match outcome {
                Outcome::Modified(changes) => Some(changes),
                _ => None,
            };
            tracing::info!(vm = name, %outcome, changes, seq, "committed");
        }
    }

    fn succeeded(&mut self, name: &Arc<str>, under: Under, is_known: bool) {
        let began = self.vms.queue.began(name);
        if let Some(vm) = self.vms.get_mut(name) {
            vm.backoff = None;
            vm.witnesses = Some(Witnesses::ALL);
            vm.xml_changed = false;
            let read = if is_known { under.stale } else { Stale::ALL };
            began.into_iter().for_each(|began| vm.reads.note(read, began));
        }
        if self.status.clear_trouble(name) {
            tracing::info!(vm = &**name, "reading succeeded again");
        }
        if under.stale.contains(Stale::DATASETS) && !under.waiters.is_empty() {
            self.want_datasets(name, under.waiters);
        } else {
            answer(under.waiters, &Ok(()));
        }
    }

    /// Lists the datasets of a VM for requests. They are no part of its reading, since ZFS may be slow: what else
    /// changes of the VM is shown meanwhile.
    fn want_datasets(&mut self, name: &Arc<str>, waiters: Vec<Waiter>) {
        let names = self.vms.parts(name).map(|parts| self.listable(parts)).unwrap_or_default();
        if names.is_empty() {
            return answer(waiters, &Ok(()));
        }
        let now = Instant::now();
        for dataset in &names {
            self.datasets.want(dataset, now);
        }
        self.datasets.asked.push(Asked { zone: Arc::clone(name), at: now, names, waiters });
    }

    /// A listing that began then has ended: goes on with the requests that waited for it.
    pub(super) fn answer_listed(
        &mut self,
        dataset: &str,
        began: Instant,
        result: &Result<(), String>,
    ) {
        for asked in self.datasets.take_asked(dataset, began, result.is_err()) {
            let shown = result.clone().and_then(|()| self.show_datasets(&asked.zone));
            answer(asked.waiters, &shown);
        }
    }

    /// Commits the datasets that are known now. Errors: there is no object of the VM.
    fn show_datasets(&mut self, name: &Arc<str>) -> Result<(), String> {
        let Some(known) = self.vms.parts(name).cloned() else { return Ok(()) };
        let parts = self.with_node((*known).clone());
        let shown = self.commit(name, parts, None).map(drop);
        shown.map_err(|fault| format!("{}: {fault}", fault.source_name()))
    }

    /// Removes a VM: zoneadm, the index and the XML agree that there is no such zone.
    fn gone(&mut self, name: &Arc<str>, under: Under) {
        let known = self.vms.forget(name);
        let was_seen = self.vms.get(name).is_some_and(|vm| vm.xml_changed);
        if let Some(parts) = &known {
            // Before it is told: who hears of it may ask at once.
            if was_seen && self.vms.of_uuid(&parts.zone.uuid).is_empty() {
                self.departed.note(Arc::clone(&parts.zone.uuid));
                self.note_left();
            }
            self.show_first(&parts.zone.uuid, Some(name));
        }
        self.status.clear_trouble(name);
        self.status.clear_doubt(name);
        self.status.has_datasets(name);
        if known.is_none() {
            // The event of a new zone may come before the index is written.
            let pause = self.vms.get_mut(name).and_then(|vm| vm.repeat(under.repeats));
            if let Some(pause) = pause {
                let at = Instant::now() + pause;
                self.vms.mark(name, Stale::ON_ZONE_EVENT, Reasons::REPEAT, at);
            }
        }
        if let Some(vm) = self.vms.get_mut(name) {
            vm.backoff = None;
            vm.witnesses = Some(Witnesses::default());
            vm.xml_changed = false;
        }
        answer(under.waiters, &Ok(()));
    }

    /// Names in the status which datasets are left of VMs that were seen to go. They hold nothing.
    pub(super) fn note_left(&mut self) {
        let (left, ended) = self.departed.compare(&self.datasets.tables);
        for dataset in ended {
            self.status.clear_trouble(&left_key(&dataset));
        }
        for dataset in left {
            let what = format!("left of a VM whose zone is gone: {}", sets_aside(&dataset));
            self.status.trouble(&left_key(&dataset), Concerns::Nothing, "zfs", what);
        }
    }

    /// Keeps the last good object of the VM; its stale parts are read again.
    fn failed(&mut self, name: &Arc<str>, under: Under, fault: &ReadFault) {
        if let Some(vm) = self.vms.get_mut(name) {
            vm.witnesses = match fault {
                ReadFault::Disputed(witnesses) => Some(*witnesses),
                ReadFault::Load(error) if error.origin == Origin::ZoneXml && error.is_absent() => {
                    Some(Witnesses { xml: false, ..Witnesses::ALL })
                }
                _ => None,
            };
        }
        self.note_failed(name, fault);
        self.status.edit(|view| view.counters.load_failures += 1);
        answer(under.waiters, &Err(format!("{}: {fault}", fault.source_name())));
        let at = self.retry_at(name);
        if let Some(vm) = self.vms.get_mut(name) {
            vm.repeats = vm.repeats.or(under.repeats);
            vm.reopen(under.trace);
        }
        // The zone may be made anew while its configuration is away.
        let is_away = matches!(fault, ReadFault::Load(error)
            if error.origin == Origin::ZoneXml && error.is_absent());
        let row = if is_away { Stale::ON_ZONE_EVENT } else { Stale::empty() };
        self.vms.mark(name, under.stale | row, Reasons::RETRY, at);
    }

    fn note_failed(&self, name: &Arc<str>, fault: &ReadFault) {
        let (concerns, source) = (Concerns::Zone(Arc::clone(name)), fault.source_name());
        if self.status.trouble(name, concerns, source, fault.to_string()) {
            tracing::warn!(vm = &**name, source, reason = %fault,
                "reading failed: the last good object stays, if there is one");
        }
    }

    /// Records a zone that could not be read, and plans the next attempt.
    pub(super) fn note_broken(
        &mut self,
        name: &Arc<str>,
        fault: impl Into<ReadFault>,
        reason: Reasons,
    ) {
        self.note_failed(name, &fault.into());
        let now = Instant::now();
        self.vms.mark(name, Stale::ALL, reason, now + self.config.retry.1);
        let at = self.retry_at(name);
        self.vms.mark(name, Stale::ALL, reason, at);
    }

    /// When a VM whose reading failed is read again: at once if it is the first failure and a signal
    /// came meanwhile.
    fn retry_at(&mut self, name: &str) -> Instant {
        let now = Instant::now();
        let (policy, jitter) = (self.retry(), self.seams.jitter.fork());
        let Some(vm) = self.vms.get_mut(name) else { return now };
        let is_first = vm.backoff.is_none();
        let backoff = vm.backoff.get_or_insert_with(|| Box::new(Backoff::new(&policy, jitter)));
        let pause = backoff.next_delay().unwrap_or(policy.max);
        if is_first && !vm.stale.is_empty() { now } else { now + pause }
    }

    /// Lists the unknown datasets of a VM that is new, or has another state or configuration: their
    /// events may have come before it, or were lost. Until then a VM that must have one is incomplete.
    pub(super) fn want_unknown_datasets(&mut self, name: &Arc<str>) {
        let Some(parts) = self.vms.parts(name) else { return };
        let (names, now) = (self.listable(parts), Instant::now());
        let is_installed = !matches!(&*parts.zone.zone_state, "configured" | "incomplete");
        if is_installed && self.datasets.tables.get(self.root_dataset(parts)).is_none() {
            let (concerns, what) =
                (Concerns::Zone(Arc::clone(name)), "its dataset is not known yet");
            self.status.trouble(&format!("{name} zfs"), concerns, "zfs", what.to_owned());
        }
        for name in names {
            if self.datasets.tables.get(&name).is_none() && !self.datasets.is_wanted(&name) {
                self.datasets.want(&name, now);
            }
        }
    }

    /// The datasets of a VM that are listed by name: an unknown delegated one is listed with its parent.
    fn listable(&self, parts: &Parts) -> Vec<String> {
        let tables = &self.datasets.tables;
        let mut names = parts.dataset_names(tables);
        names.retain(|name| tables.get(name).is_some() || !name.ends_with("/data"));
        names
    }
}

/// The name of a dataset that is left among the failures.
fn left_key(dataset: &str) -> String {
    format!("{dataset} left")
}
