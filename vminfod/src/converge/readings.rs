// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a VM's reading leads to: judge, compose, commit, look again, retry.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::time::Instant;

use super::vm_load::{Fresh, LoadFault, Loaded};
use super::{Engine, LOOKS, Reading, Vm, answer, note_name};
use crate::dirty::{Stale, Verdict};
use crate::load::ZoneRow;
use crate::store::{Made, Outcome};
use crate::vm::{Parts, compose};
use crate::word::word;

impl Engine {
    /// A VM's reading has ended.
    pub(super) fn vm_read(&mut self, name: &str, result: Result<Loaded, LoadFault>) {
        self.readings = self.readings.saturating_sub(1);
        if let Some(result) = self.hold(name, result) {
            self.take_reading(name, result, None);
        }
    }

    /// Takes in what a VM's reading brought, and what was made of that if it is made already.
    pub(super) fn take_reading(
        &mut self,
        name: &str,
        result: Result<Loaded, LoadFault>,
        made: Option<Result<Made, LoadFault>>,
    ) {
        self.took(name, result, made);
        // Only now: who sees nothing pending must see what came of it.
        self.board.edit(|view| view.pending.shift_remove(name));
    }

    fn took(
        &mut self,
        name: &str,
        result: Result<Loaded, LoadFault>,
        made: Option<Result<Made, LoadFault>>,
    ) {
        let Some(reading) = self.vms.get_mut(name).and_then(|vm| vm.reading.take()) else { return };
        let known = self.vms.get(name).is_some_and(|vm| vm.parts.is_some());
        let result = match result {
            Ok(Loaded::Gone) => {
                self.gone(name, *reading);
                return;
            }
            Ok(Loaded::Parts(parts, fresh)) => {
                self.take_fresh(fresh);
                self.adopt(name, *parts, &reading, made)
            }
            Err(fault) => Err(fault),
        };
        let reading = *reading;
        match result {
            Ok(()) => {
                if let Some(vm) = self.vms.get_mut(name) {
                    vm.failures = 0;
                    let parts = if known { reading.stale } else { Stale::ALL };
                    vm.reads.note(parts, reading.began);
                }
                if self.board.well(name) {
                    tracing::info!(vm = name, "reading succeeded again");
                }
                answer(reading.waiters, &Ok(()));
                self.plan_rest(name);
            }
            Err(fault) => self.failed(name, reading, &fault),
        }
    }

    /// Takes new parts of a VM in and commits what follows from them.
    fn adopt(
        &mut self,
        name: &str,
        parts: Parts,
        reading: &Reading,
        made: Option<Result<Made, LoadFault>>,
    ) -> Result<(), LoadFault> {
        let Some(vm) = self.vms.get_mut(name) else { return Ok(()) };
        let before = vm.parts.clone();
        let is_new = before.is_none();
        // The files' times and the object alone are no sign that zoneadm has caught up.
        let moved = before.as_ref().is_none_or(|before| {
            before.zone != parts.zone || before.kstat != parts.kstat || before.xml != parts.xml
        });
        // What is shown was made of exactly this.
        let same = vm.failures == 0
            && before.as_ref() == Some(&parts)
            && !reading.stale.has(Stale::OBJECT | Stale::DATASETS);
        let last_look = reading.looks.is_none_or(|looks| usize::from(looks) >= LOOKS.len());
        let mut verdict = Verdict::Plain;
        if let Some(before) = before.as_ref().filter(|_| reading.stale.has(Stale::ZONEADM)) {
            verdict = reading.trace.judge(&before.zone, &parts.zone, last_look);
        } else if !reading.stale.has(Stale::ZONEADM) {
            // The question is still open.
            let newer = std::mem::take(&mut vm.trace);
            vm.trace = newer.after(reading.trace.clone());
        }
        match (&verdict, before) {
            (Verdict::Show(state), Some(before)) => self.show_away(name, before, state),
            (Verdict::LookAgain, _) => {
                if let Some(vm) = self.vms.get_mut(name) {
                    let newer = std::mem::take(&mut vm.trace);
                    vm.trace = newer.after(reading.trace.clone());
                }
            }
            _ => {}
        }
        let settled = moved && verdict != Verdict::LookAgain;
        self.look_again(name, reading.looks.filter(|_| !settled));
        if same && !matches!(verdict, Verdict::Show(_)) {
            return Ok(());
        }
        let made = made.unwrap_or_else(|| self.make(name, &parts));
        self.put_made(name, parts, made)?;
        if is_new {
            self.want_unknown(name);
        }
        Ok(())
    }

    /// Composes and commits one VM from these parts, which are kept.
    pub(super) fn put(&mut self, name: &str, parts: Parts) -> Result<(), LoadFault> {
        let made = self.make(name, &parts);
        self.put_made(name, parts, made)
    }

    /// Composes one VM of these parts, and all of its commit but the moment.
    pub(super) fn make(&self, name: &str, parts: &Parts) -> Result<Made, LoadFault> {
        let (datasets, sysinfo) = (&self.datasets, &self.sysinfo);
        // One VM's odd parts must not end the loop for all others.
        match catch_unwind(AssertUnwindSafe(|| compose(parts, datasets, sysinfo))) {
            Ok(Ok(object)) => Ok(self.store.make(name, object)),
            Ok(Err(error)) => {
                Err(LoadFault::Compose { origin: error.origin.name(), what: error.what })
            }
            Err(_) => Err(LoadFault::Panic),
        }
    }

    fn put_made(
        &mut self,
        name: &str,
        parts: Parts,
        made: Result<Made, LoadFault>,
    ) -> Result<(), LoadFault> {
        let zonepath = parts.zone.zonepath.clone();
        let vm = self.vms.entry(name.into()).or_default();
        let old = vm.parts.replace(parts);
        let parts = vm.parts.as_ref();
        let stamps = |parts: &Parts| parts.stamps;
        if old.as_ref().map(stamps) != parts.map(stamps) {
            self.read_since.insert(name.into());
        }
        if old.as_ref().map(|old| &old.zone) != parts.map(|parts| &parts.zone) {
            self.rows_agree = false;
        }
        if old.as_ref().is_none_or(|old| old.zone.zonepath != zonepath) {
            self.zones_changed = true;
        }
        if let Some(parts) = parts {
            note_name(&mut self.names, &parts.zone.uuid, name);
        }
        match self.store.put_made(name, made?) {
            Outcome::Unchanged => {}
            outcome => {
                let seq = self.store.published().snapshot().seq;
                self.committed.push((name.to_owned(), outcome, seq));
            }
        }
        Ok(())
    }

    /// Logs what was committed, after those who follow the changes had their turn: writing a line
    /// takes longer than all else that stands between them and a commit.
    pub(super) async fn tell_committed(&mut self) {
        if self.committed.is_empty() {
            return;
        }
        tokio::task::yield_now().await;
        for (vm, outcome, seq) in self.committed.drain(..) {
            tracing::info!(vm, ?outcome, seq, "committed");
        }
    }

    /// Shows that a zone was away although both readings say `running`.
    pub(super) fn show_away(&mut self, name: &str, before: Parts, state: &str) {
        let zone = ZoneRow { zone_state: word(state), ..(*before.zone).clone() };
        let away = Parts { zone: Arc::new(zone), ..before.clone() };
        let (datasets, sysinfo) = (&self.datasets, &self.sysinfo);
        let Ok(Ok(object)) = catch_unwind(AssertUnwindSafe(|| compose(&away, datasets, sysinfo)))
        else {
            return;
        };
        self.store.put(name, object);
        self.board.edit(|view| view.counters.reboots_shown += 1);
        tracing::info!(vm = name, state, "zone was away between two readings");
    }

    /// Plans another look after a kernel event whose effect did not show.
    fn look_again(&mut self, name: &str, looks: Option<u8>) {
        let Some(vm) = self.vms.get_mut(name) else { return };
        // A newer event starts the count anew by itself.
        if vm.looks.is_some() {
            return;
        }
        if let Some((done, pause)) =
            looks.and_then(|done| Some((done, LOOKS.get(usize::from(done))?)))
        {
            vm.looks = Some(done + 1);
            self.mark(name, Stale::ON_ZONE_EVENT, Instant::now() + *pause);
        }
    }

    /// zoneadm and the index agree that there is no such zone.
    fn gone(&mut self, name: &str, reading: Reading) {
        if self.store.remove(name) == Outcome::Deleted {
            tracing::info!(vm = name, seq = self.store.published().snapshot().seq, "deleted");
            self.zones_changed = true;
        }
        self.board.well(name);
        let known = self.vms.get_mut(name).and_then(|vm| vm.parts.take());
        if let Some(parts) = known {
            self.names.remove(&*parts.zone.uuid);
            self.rows_agree = false;
        } else {
            // A new zone's event may come before the index is written.
            self.look_again(name, reading.looks);
        }
        answer(reading.waiters, &Ok(()));
        if self.vms.get(name).is_some_and(|vm| vm.stale.is_none() && vm.waiters.is_empty()) {
            self.vms.remove(name);
        } else {
            self.plan_rest(name);
        }
    }

    fn failed(&mut self, name: &str, reading: Reading, fault: &LoadFault) {
        let message = fault.to_string();
        if self.board.trouble(name, fault.source_name(), message.clone()) {
            tracing::warn!(vm = name, source = fault.source_name(), reason = %message,
                "reading failed: the last good object stays");
        }
        self.board.edit(|view| view.counters.load_failures += 1);
        answer(reading.waiters, &Err(format!("{}: {message}", fault.source_name())));
        let Some(vm) = self.vms.get_mut(name) else { return };
        vm.failures = vm.failures.saturating_add(1);
        vm.looks = vm.looks.or(reading.looks);
        let newer = std::mem::take(&mut vm.trace);
        vm.trace = newer.after(reading.trace);
        let failures = vm.failures;
        // News that came meanwhile are worth a try at once.
        let news = !vm.stale.is_none();
        let pause = if news && failures <= 1 { self.config.fold } else { self.backoff(failures) };
        self.mark(name, reading.stale, Instant::now() + pause);
    }

    /// Plans what became stale while the VM was being read.
    fn plan_rest(&mut self, name: &str) {
        let Some(Vm { stale, waiters, due, .. }) = self.vms.get(name).map(|vm| &**vm) else {
            return;
        };
        if stale.is_none() && waiters.is_empty() || due.is_some() {
            return;
        }
        let when =
            if waiters.is_empty() { Instant::now() + self.config.fold } else { Instant::now() };
        self.mark(name, Stale::NONE, when);
    }

    fn take_fresh(&mut self, fresh: Vec<Fresh>) {
        for one in fresh {
            self.datasets.expire(&one.name);
            self.datasets.insert(one.rows);
        }
    }
}
