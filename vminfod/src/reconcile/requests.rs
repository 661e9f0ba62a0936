// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests → readings and answers.

use std::sync::Arc;

use tokio::time::Instant;
use vm_model::origin::Origin;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use super::asks::{Ask, Held, SourceWhy, Waiter, Why};
use super::engine::Reconciler;
use super::listing::Question;
use super::reads::OWN;
use super::vms::Reasons;
use super::witness::{Witnesses, dataset_of};

impl Reconciler {
    /// Answers a request, or makes it wait for a reading.
    pub(super) fn asked(&mut self, ask: Ask) {
        match ask {
            Ask::Fresh(None, waiter) => self.refresh.ask(waiter),
            Ask::Fresh(Some(name), waiter) if self.vms.zone_is_known(&name) => {
                self.fresh(&name, waiter)
            }
            // All names without a known VM are looked up in one list.
            Ask::Fresh(Some(name), waiter) => self.listing.ask(Question::Name(name, waiter)),
            Ask::Zones(waiter) => self.listing.ask(Question::Zones(waiter)),
            Ask::Held(answer) => {
                let parts =
                    self.vms.known().map(|(name, parts)| (Arc::clone(name), Arc::clone(parts)));
                let held = Held {
                    sysinfo: Arc::clone(&self.sysinfo.value),
                    datasets: self.datasets.tables.clone(),
                    parts: parts.collect(),
                };
                let _asker_may_have_gone = answer.send(held);
            }
            Ask::Why(name, answer) => {
                let _asker_may_have_gone = answer.send(self.why(&name));
            }
        }
    }

    /// Reads a VM for a request, which waits for it.
    pub(super) fn fresh(&mut self, name: &str, waiter: Waiter) {
        let name = self.vms.zone_named(name);
        match self.vms.mark(&name, Stale::FRESH, Reasons::ASKED, Instant::now()) {
            Some(vm) => vm.waiters.push(waiter),
            None => drop(waiter.send(Err("too many names are asked for".to_owned()))),
        }
    }

    /// Describes the sources of this VM; `None` if no witness has it, and it was not seen to go.
    fn why(&self, name: &str) -> Option<Why> {
        let name = self.vms.zone_named(name);
        let vm = self.vms.get(&name);
        let parts = vm.and_then(|vm| vm.parts.as_ref());
        let uuid = parts.map_or(&*name, |parts| &*parts.zone.uuid);
        let (dataset, seen_to_go) =
            (dataset_of(&self.datasets.tables, uuid), self.departed.has(uuid));
        let witnesses = match vm {
            Some(vm) if parts.is_some() || vm.is_failing() => vm.witnesses,
            _ => Some(Witnesses::default()),
        };
        if witnesses.is_some_and(Witnesses::are_silent) && dataset.is_none() && !seen_to_go {
            return None;
        }
        let mut sources = Vec::new();
        if let (Some(vm), Some(parts)) = (vm, parts) {
            let own = OWN.into_iter().zip(vm.reads.each());
            sources.extend(own.map(|((origin, part), at)| source(origin, at, vm.is_stale(part))));
            sources.push(self.zfs_of(parts, vm.is_stale(Stale::DATASETS)));
            let read_at = self.status.sysinfo().map(|view| view.at);
            sources.push(source(Origin::Sysinfo, read_at, self.sysinfo.is_stale()));
        }
        for key in [&*name, Origin::Sysinfo.name()] {
            self.blame(&mut sources, key);
        }
        let (uuid, zonename) = (uuid.to_owned(), name.to_string());
        Some(Why { uuid, zonename, sources, witnesses, dataset, seen_to_go })
    }

    /// Adds the failure recorded under this key to its source.
    fn blame(&self, sources: &mut Vec<SourceWhy>, key: &str) {
        let Some(trouble) = self.status.edit(|view| view.errors.get(key).cloned()) else { return };
        let error = Some(trouble.message);
        match sources.iter_mut().find(|source| source.name == trouble.source) {
            Some(source) => source.error = error,
            None => {
                let name = trouble.source;
                sources.push(SourceWhy { name, read_at: None, stale: true, error });
            }
        }
    }

    /// Describes the datasets of a VM, which are read for the node and one by one.
    fn zfs_of(&self, parts: &Parts, is_stale: bool) -> SourceWhy {
        let mut why = source(Origin::Datasets, None, is_stale);
        for dataset in parts.dataset_names(&self.datasets.tables) {
            why.read_at = why.read_at.max(self.datasets.read_at(&dataset));
            why.stale |= self.datasets.is_wanted(&dataset);
            let trouble = self.status.edit(|view| view.errors.get(&dataset).cloned());
            why.error = why.error.or(trouble.map(|trouble| trouble.message));
        }
        why
    }
}

fn source(origin: Origin, read_at: Option<Instant>, stale: bool) -> SourceWhy {
    SourceWhy { name: origin.name().to_owned(), read_at, stale, error: None }
}
