// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMs: the last reading of each, and which of its parts are stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;
use daemon::schedule::Queue;
use sdc_clients::retry::Backoff;
use tokio::time::Instant;
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;
use vm_model::reboot::{Trace, Verdict};
use vm_model::stale::Stale;

use super::asks::Waiter;
use super::reads::Reads;
use super::status::Status;
use super::witness::Witnesses;

/// Pauses before a reading is repeated that showed no change after a kernel event: the event may precede
/// the new state.
const REPEATS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(1000),
];

/// The most names; more can only be garbage from a source.
const NAMES_CAP: usize = 50_000;

bitflags! {
    /// Why a VM is read.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Reasons: u16 {
        /// A zone sysevent.
        const ZONE_EVENT = 1;
        /// One of its files changed.
        const FILE = 1 << 1;
        /// One of its datasets changed.
        const DATASET = 1 << 2;
        /// The node's sysinfo changed.
        const SYSINFO = 1 << 3;
        /// A sweep or the zone index differs from the last reading.
        const SWEEP = 1 << 4;
        /// A refresh did not list it, or it changed meanwhile.
        const REFRESH = 1 << 5;
        /// A client asked for a fresh reading.
        const ASKED = 1 << 6;
        /// The last reading failed.
        const RETRY = 1 << 7;
        /// The last reading did not show the state of the kernel event.
        const REPEAT = 1 << 8;
        /// It is shown now: the zone of its uuid that ranked before it does not any more.
        const SHOWN = 1 << 9;
    }
}

impl Reasons {
    pub fn text(self) -> String {
        let names = self.iter_names().map(|(name, _)| name.to_ascii_lowercase());
        names.collect::<Vec<_>>().join("+")
    }
}

/// One VM, or a name that may be one.
#[derive(Default)]
pub struct Vm {
    /// The parts of its object: the last successful reading.
    pub parts: Option<Arc<Parts>>,
    /// What is to be read.
    pub stale: Stale,
    pub reasons: Reasons,
    /// When the first signal came that the next reading answers.
    pub signalled: Option<Instant>,
    /// What is being read now.
    pub reading: Option<Box<Under>>,
    /// The kernel events since the last reading began.
    pub trace: Trace,
    /// How often a reading was repeated after a kernel event; `None`: no event is open.
    pub repeats: Option<u8>,
    pub backoff: Option<Box<Backoff>>,
    /// Requests that wait for a reading.
    pub waiters: Vec<Waiter>,
    /// Parts that something announced since the last sweep.
    pub announced: Stale,
    /// When the last readings of its sources began.
    pub reads: Reads,
    /// What its witnesses said at the last reading; `None`: it was not asked yet, or a source failed.
    pub witnesses: Option<Witnesses>,
    /// The file watcher reported a change of its XML that no reading has seen since.
    pub xml_changed: bool,
}

/// A reading under way.
#[derive(Default)]
pub struct Under {
    /// What it reads.
    pub stale: Stale,
    /// The kernel events before it began.
    pub trace: Trace,
    /// As in [`Vm`].
    pub repeats: Option<u8>,
    pub waiters: Vec<Waiter>,
}

impl Vm {
    /// Returns true if the last reading failed.
    pub fn is_failing(&self) -> bool {
        self.backoff.is_some()
    }

    /// Returns true if those of these parts that have a source of their own were read since then.
    pub fn is_read_since(&self, parts: Stale, at: Instant) -> bool {
        self.parts.is_some() && self.reads.oldest(parts) >= Some(at)
    }

    /// Returns true if these parts are to be read, or are being read.
    pub fn is_stale(&self, parts: Stale) -> bool {
        self.stale.intersects(parts)
            || self.reading.as_ref().is_some_and(|reading| reading.stale.intersects(parts))
    }

    /// Returns the list in which a request waits until nothing of this VM is stale: that of the next
    /// reading if parts are to be read, else that of the reading under way. `None` if nothing is to be
    /// read, or only after a failure.
    pub fn open_list(&mut self) -> Option<&mut Vec<Waiter>> {
        let is_due = !self.stale.is_empty() && !self.is_failing();
        match &mut self.reading {
            Some(reading) if !is_due => Some(&mut reading.waiters),
            _ => is_due.then_some(&mut self.waiters),
        }
    }

    /// Compares a new reading of the zone's row with the last one and the kernel events. Returns the
    /// state of the VM between the two, if there was another one, and the pause after which the reading
    /// is repeated, if the event is still open.
    pub fn judge(
        &mut self,
        reading: &Under,
        new: &ZoneRow,
        is_moved: bool,
    ) -> (Option<String>, Option<Duration>) {
        let mut verdict = Verdict::Plain;
        let before = self.parts.as_ref().map(|parts| Arc::clone(&parts.zone));
        match before {
            Some(before) if reading.stale.contains(Stale::ZONEADM) => {
                let repeats = usize::from(reading.repeats.unwrap_or(u8::MAX));
                verdict = reading.trace.judge(&before, new, repeats >= REPEATS.len());
            }
            // The row was not read: the event stays open.
            _ if !reading.stale.contains(Stale::ZONEADM) => self.reopen(reading.trace.clone()),
            _ => {}
        }
        if verdict == Verdict::LookAgain {
            self.reopen(reading.trace.clone());
        }
        let is_settled = is_moved && verdict != Verdict::LookAgain;
        let pause = self.repeat(reading.repeats.filter(|_| !is_settled));
        match verdict {
            Verdict::Show(state) => (Some(state), pause),
            Verdict::Plain | Verdict::LookAgain => (None, pause),
        }
    }

    /// Restores the kernel events of a reading that did not settle them.
    pub fn reopen(&mut self, earlier: Trace) {
        let newer = std::mem::take(&mut self.trace);
        self.trace = newer.after(earlier);
    }

    /// The pause before the next repeated reading, unless a newer event restarted the count.
    pub fn repeat(&mut self, repeats: Option<u8>) -> Option<Duration> {
        let repeats = repeats.filter(|_| self.repeats.is_none())?;
        let pause = REPEATS.get(usize::from(repeats))?;
        self.repeats = Some(repeats + 1);
        Some(*pause)
    }
}

/// All VMs, in the order of their zone names, and when each is to be read.
pub struct Vms {
    vms: BTreeMap<Arc<str>, Vm>,
    /// VM uuid → names of its zones, where they differ.
    names: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    pub queue: Queue<Arc<str>, Instant>,
    status: Status,
    /// The list of zones, or which of their files exist, changed.
    is_moved: bool,
}

impl Vms {
    /// `gap`: the least time between the beginnings of two readings of a VM.
    pub fn new(gap: Duration, at_once: usize, status: Status) -> Self {
        let (vms, names, queue) = (BTreeMap::new(), BTreeMap::new(), Queue::new(gap, at_once));
        Self { vms, names, queue, status, is_moved: true }
    }

    /// Marks parts of a VM stale, to be read at this time or earlier. Returns `None` if there are too
    /// many names.
    pub fn mark(
        &mut self,
        name: &str,
        stale: Stale,
        reason: Reasons,
        at: Instant,
    ) -> Option<&mut Vm> {
        let name: Arc<str> = match self.vms.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None if self.vms.len() >= NAMES_CAP => return None,
            None => name.into(),
        };
        let vm = self.vms.entry(Arc::clone(&name)).or_default();
        vm.stale |= stale;
        vm.reasons |= reason;
        vm.signalled.get_or_insert_with(Instant::now);
        self.queue.want(&name, at);
        self.show_due(&name);
        self.vms.get_mut(&name)
    }

    /// Shows when a VM is due that is not being read.
    fn show_due(&self, name: &Arc<str>) {
        if let (Some(due), Some(vm)) = (self.queue.due(name), self.get(name)) {
            self.status.edit(|view| view.waits(name, due, vm.signalled.unwrap_or(due)));
        }
    }

    /// The reading of a VM has ended. A name without parts goes, unless it is to be read again.
    pub fn ended(&mut self, name: &Arc<str>) {
        self.queue.ended(name);
        let is_idle = |vm: &Vm| {
            vm.parts.is_none()
                && vm.stale.is_empty()
                && vm.waiters.is_empty()
                && vm.reading.is_none()
        };
        if self.get(name).is_some_and(is_idle) {
            self.vms.remove(name);
            self.queue.forget(name);
        }
        self.show_due(name);
    }

    pub fn get(&self, name: &str) -> Option<&Vm> {
        self.vms.get(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Vm> {
        self.vms.get_mut(name)
    }

    /// The parts of a VM that has been read.
    pub fn parts(&self, name: &str) -> Option<&Arc<Parts>> {
        self.vms.get(name)?.parts.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Vm)> {
        self.vms.iter()
    }

    /// The VMs that have been read.
    pub fn known(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Parts>)> {
        self.vms.iter().filter_map(|(name, vm)| Some((name, vm.parts.as_ref()?)))
    }

    /// The zones of this uuid that have been read; the first one is shown.
    pub fn of_uuid(&self, uuid: &str) -> Vec<Arc<str>> {
        let named = self.parts(uuid).filter(|parts| *parts.zone.uuid == *uuid);
        let others = self.names.get(uuid).into_iter().flatten();
        let mut zones: Vec<&ZoneRow> =
            others.filter_map(|name| self.parts(name)).chain(named).map(|it| &*it.zone).collect();
        zones.sort_by(|a, b| b.rank().cmp(&a.rank()));
        zones.into_iter().map(|zone| Arc::clone(&zone.zonename)).collect()
    }

    /// The zone of the same uuid that is shown instead of this one.
    pub fn shown_instead_of(&self, name: &str) -> Option<Arc<str>> {
        let uuid = &self.parts(name)?.zone.uuid;
        self.of_uuid(uuid).into_iter().next().filter(|first| **first != *name)
    }

    /// The zones that are not shown because of another one of their uuid.
    pub fn outranked(&self) -> BTreeSet<Arc<str>> {
        let uuids = self.names.keys();
        uuids.flat_map(|uuid| self.of_uuid(uuid).into_iter().skip(1)).collect()
    }

    /// The zone of this name, or the zone of the VM of this uuid.
    pub fn zone_named(&self, name: &str) -> Arc<str> {
        let is_other = self.parts(name).is_some_and(|parts| *parts.zone.uuid != *name);
        let of_uuid = self.zone_of_uuid(name).filter(|_| !is_other);
        of_uuid.unwrap_or_else(|| name.into())
    }

    /// The zone of the VM of this uuid, if there is one.
    pub fn zone_of_uuid(&self, uuid: &str) -> Option<Arc<str>> {
        let own = || self.vms.get_key_value(uuid).map(|(name, _)| Arc::clone(name));
        self.of_uuid(uuid).into_iter().next().or_else(own)
    }

    /// Returns true if this is the name of a zone, or the uuid of a VM, that has been read or failed.
    pub fn zone_is_known(&self, name: &str) -> bool {
        self.vms.contains_key(name) || self.names.contains_key(name)
    }

    /// Replaces the parts of a VM.
    pub fn adopt(&mut self, name: &Arc<str>, parts: Parts) {
        self.unname(name);
        if parts.zone.uuid != *name {
            let zones = self.names.entry(Arc::clone(&parts.zone.uuid)).or_default();
            zones.insert(Arc::clone(name));
        }
        let vm = self.vms.entry(Arc::clone(name)).or_default();
        let place = |parts: &Parts| (Arc::clone(&parts.zone.zonepath), exists(parts));
        self.is_moved |= vm.parts.as_deref().map(place).as_ref() != Some(&place(&parts));
        vm.parts = Some(Arc::new(parts));
    }

    /// Removes the parts of a VM; returns them.
    pub fn forget(&mut self, name: &Arc<str>) -> Option<Arc<Parts>> {
        self.unname(name);
        let parts = self.vms.get_mut(name).and_then(|vm| vm.parts.take())?;
        self.is_moved = true;
        Some(parts)
    }

    fn unname(&mut self, name: &str) {
        let Some(uuid) = self.parts(name).map(|parts| Arc::clone(&parts.zone.uuid)) else { return };
        if let Some(zones) = self.names.get_mut(&uuid) {
            zones.remove(name);
            if zones.is_empty() {
                self.names.remove(&uuid);
            }
        }
    }

    /// Clears all announcements: a sweep has compared everything.
    pub fn swept(&mut self) {
        self.vms.values_mut().for_each(|vm| vm.announced = Stale::empty());
    }

    /// Returns true once after the list of zones, or of their files, changed.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.is_moved)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Vm)> {
        self.vms.iter_mut()
    }
}

/// One bit for each file of a VM that exists.
pub fn exists(parts: &Parts) -> u8 {
    let versions = parts.stamps.versions.iter().enumerate();
    versions.fold(0, |bits, (at, version)| bits | u8::from(*version != 0) << at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::asks::waiter;

    #[test]
    fn request_waits_for_the_reading_that_is_the_last_needed() {
        // Parts to be read, a reading under way: which list (next, under way) gets the request.
        for (stale, is_reading, lists) in [
            (Stale::empty(), false, (0, 0)),
            (Stale::empty(), true, (0, 1)),
            (Stale::ZONEADM, false, (1, 0)),
            (Stale::ZONEADM, true, (1, 0)),
        ] {
            let reading = is_reading.then(Box::default);
            let mut vm = Vm { stale, reading, ..Vm::default() };
            if let Some(list) = vm.open_list() {
                list.push(waiter().0);
            }
            let of_reading = vm.reading.map_or(0, |reading| reading.waiters.len());
            assert_eq!((vm.waiters.len(), of_reading), lists, "{stale:?} {is_reading}");
        }
    }
}
