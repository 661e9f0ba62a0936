// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Signals → stale parts.

use std::sync::Arc;

use tokio::time::Instant;
use vm_model::parse::zfs_event::{Action, DatasetEvent, depth, pool, vm_uuid};
use vm_model::parts::Parts;
use vm_model::stale::{Stale, ZoneFile};

use super::engine::Reconciler;
use super::vms::Reasons;
use crate::sources::inbox::Pending;

impl Reconciler {
    /// Marks what the signals make stale.
    pub(super) fn signalled(&mut self, pending: Pending) {
        let now = Instant::now();
        for (name, events) in pending.zones {
            if name == "global" {
                continue;
            }
            let marked = self.vms.mark(&name, Stale::ON_ZONE_EVENT, Reasons::ZONE_EVENT, now);
            let Some(vm) = marked else { continue };
            vm.announced |= Stale::ON_ZONE_EVENT;
            vm.repeats = Some(0);
            events.iter().for_each(|event| vm.trace.note(event));
        }
        for (name, file) in pending.files {
            // Of an unknown zone only the configuration matters: the zone may be new.
            if self.vms.get(&name).is_none() && file != ZoneFile::Xml {
                continue;
            }
            let stale = Stale::on_file(file);
            if let Some(vm) = self.vms.mark(&name, stale, Reasons::FILE, now) {
                vm.announced |= stale;
                vm.xml_changed |= file == ZoneFile::Xml;
            }
        }
        for name in pending.unwatched {
            if self.vms.parts(&name).is_some() {
                self.vms.mark(&name, Stale::TIMES, Reasons::FILE, now);
            }
        }
        let is_burst = pending.datasets.len() > 1;
        for event in pending.datasets.into_values() {
            self.dataset_event(&event, is_burst, now);
        }
        if pending.index {
            self.sweep.mark_index();
        }
        if pending.all_unwatched {
            self.sweep.mark_unwatched();
        }
        if pending.sysinfo {
            self.sysinfo.mark(now);
        }
        if pending.everything {
            self.refresh.want(now);
        }
    }

    fn dataset_event(&mut self, event: &DatasetEvent, is_burst: bool, now: Instant) {
        let zone = self.zone_of(&event.name);
        // Other datasets are listed only in pools that VMs use.
        if zone.is_none() && depth(&event.name) != 2 && !self.is_pool_used(pool(&event.name)) {
            return;
        }
        self.datasets.event(event, is_burst, now);
        if vm_uuid(&event.name).is_some_and(|uuid| self.departed.has(uuid)) {
            self.note_left();
        }
        let Some(zone) = zone else { return };
        if event.renamed {
            // Its children have other names now, without events of their own.
            self.refresh.want(now);
        }
        if event.rolled_back {
            self.vms.mark(&zone, Stale::ON_ROLLBACK, Reasons::DATASET, now);
        } else if event.action == Action::Expire {
            if self.is_root_of(&event.name, &zone) {
                self.status.has_datasets(&zone);
            }
            self.vms.mark(&zone, Stale::OBJECT, Reasons::DATASET, now);
        }
    }

    /// The zone that a dataset belongs to: by the uuid in its name, or by its zonepath.
    pub(super) fn zone_of(&self, dataset: &str) -> Option<Arc<str>> {
        let of_uuid = vm_uuid(dataset).and_then(|uuid| self.vms.zone_of_uuid(uuid));
        of_uuid.or_else(|| {
            let dataset = dataset.split('@').next()?;
            let holds = |parts: &Parts| {
                let rest = dataset.strip_prefix(self.root_dataset(parts));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let found = self.vms.known().find(|(_, parts)| holds(parts));
            found.map(|(name, _)| Arc::clone(name))
        })
    }

    /// Returns true if this is the dataset of the zone's own directory.
    pub(super) fn is_root_of(&self, dataset: &str, zone: &str) -> bool {
        self.vms.parts(zone).is_some_and(|parts| self.root_dataset(parts) == dataset)
    }

    pub(super) fn root_dataset<'a>(&'a self, parts: &'a Parts) -> &'a str {
        let zonepath = &parts.zone.zonepath;
        let root = self.datasets.tables.at(zonepath);
        root.map_or(zonepath.trim_start_matches('/'), |row| row.name())
    }

    fn is_pool_used(&self, name: &str) -> bool {
        self.vms.known().any(|(_, parts)| pool(self.root_dataset(parts)) == name)
    }
}
