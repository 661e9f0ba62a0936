// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Signals → stale parts: what each of them makes doubtful, and when it is to be read.

use tokio::time::Instant;

use super::{Engine, NAMES_CAP, Vm};
use crate::dirty::Stale;
use crate::sources::inbox::Pending;

impl Engine {
    /// Turns signals into stale parts.
    pub(super) fn take(&mut self, pending: Pending) {
        // A fold begins with its first signal, not when somebody looks.
        let now = pending.since.unwrap_or_else(Instant::now);
        for (name, events) in pending.zones {
            if name == "global" {
                continue;
            }
            let Some(vm) = self.mark(&name, Stale::ON_ZONE_EVENT, now + self.config.fold) else {
                continue;
            };
            vm.announced |= Stale::ON_ZONE_EVENT;
            vm.looks = Some(0);
            events.iter().for_each(|event| vm.trace.note(event));
        }
        for (name, file) in pending.files {
            let name = self.zone_named(name);
            let stale = Stale::on_file(file);
            // A file of a zone that nobody knows says nothing, except that the zone may be new.
            if !self.vms.contains_key(&*name) && !stale.has(Stale::XML) {
                continue;
            }
            if let Some(vm) = self.mark_file(&name, stale, now + self.config.fold) {
                vm.announced |= stale;
            }
        }
        let burst = pending.datasets.len() > 1;
        for event in pending.datasets.into_values() {
            self.dataset_event(event, burst);
        }
        if pending.index {
            // Its news are in zoneadm's list; one that is being read may be too old to have them.
            self.sweep_due = self.sweep_due.min(now + self.config.fold);
            self.sweep_again = self.sweeping;
        }
        self.unseen |= pending.unseen;
        if pending.sysinfo {
            self.sysinfo_stale = true;
        }
        if pending.everything {
            self.refresh_due = self.refresh_due.min(now);
        }
    }

    /// Marks parts of a VM stale and plans its reading.
    pub(super) fn mark(&mut self, name: &str, stale: Stale, when: Instant) -> Option<&mut Vm> {
        if self.vms.len() >= NAMES_CAP && !self.vms.contains_key(name) {
            return None;
        }
        let vm: &mut Vm = self.vms.entry(name.into()).or_default();
        vm.stale |= stale;
        vm.asked.get_or_insert_with(Instant::now);
        if let Some(reading) = &mut vm.reading {
            if when < reading.until {
                super::held::sooner(&mut self.held, name, reading, when);
            }
            return Some(vm);
        }
        // A failing VM's retry may be early: something changed, perhaps for the better.
        if vm.due.is_none_or(|due| when < due) {
            vm.early = false;
            let before = vm.due.replace(when).map(|due| (due, name.to_owned()));
            if let Some(before) = &before {
                self.due.remove(before);
            }
            self.due.insert((when, name.to_owned()));
            // Shown as it is, not copied whole at every turn: all VMs may be due at once.
            self.board.edit(|view| {
                before.map(|before| view.due.remove(&before));
                view.due.insert((when, name.to_owned()));
            });
        }
        Some(vm)
    }
}
