// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Starts what is due and has room, each in a task of its own, and takes what the tasks bring.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use super::vm_load::{LoadFault, Loaded, Task, datasets_of};
use super::{Done, Engine, Purpose, Reading};
use crate::dirty::Stale;
use crate::load::sysinfo;
use crate::sweep::{Before, Look, look};

/// VMs at most that are begun before the loop looks at what else there is.
const TURNS: usize = 16;

impl Engine {
    /// Starts all that is due and has room.
    pub(super) fn start_due(&mut self) {
        let now = Instant::now();
        let mut turns = 0;
        while self.readings < self.config.concurrency && turns < TURNS {
            turns += 1;
            let Some((at, name)) = self.due.first().cloned() else { break };
            if at > now {
                break;
            }
            let first = self.due.pop_first();
            self.begin(name);
            // Only now: at no moment it is neither queued nor pending.
            if let Some(first) = first {
                self.board.edit(|view| view.due.remove(&first));
            }
        }
        self.start_datasets();
        if self.sysinfo_stale
            && !self.sysinfo_reading
            && self.sysinfo_retry.is_none_or(|at| at <= now)
        {
            self.sysinfo_stale = false;
            self.sysinfo_reading = true;
            let ctx = self.ctx.clone();
            self.spawn(Purpose::Sysinfo, async move { Done::Sysinfo(sysinfo::load(&ctx).await) });
        }
        if !self.refreshing && (self.refresh_due <= now || !self.node_waiters.is_empty()) {
            self.start_refresh();
        }
        let is_whole = self.sweep_due <= now;
        if !self.sweeping && (is_whole || self.unseen) {
            self.sweeping = true;
            let unseen = std::mem::take(&mut self.unseen);
            // Its list is shared as long as it stays the same: a sweep must cost next to nothing.
            self.tell_watcher();
            let (ctx, zones) = (self.ctx.clone(), self.zones.borrow().clone());
            let before = Before {
                // Of what nobody watched all is to be judged.
                files: if unseen { Arc::default() } else { Arc::clone(&self.files) },
                read_since: std::mem::take(&mut self.read_since),
            };
            let listed = is_whole.then(|| Arc::clone(&self.listed));
            self.spawn(Purpose::Sweep, async move {
                Done::Sweep(Box::new(Look { unseen, ..look(&ctx, zones, before, listed).await }))
            });
        }
    }

    pub(super) fn start_reading(&mut self, name: String, until: Instant) {
        let Some(vm) = self.vms.get_mut(&*name) else { return };
        (vm.due, vm.early) = (None, false);
        let stale = std::mem::take(&mut vm.stale);
        let began = Instant::now();
        let reading = Reading {
            stale,
            trace: std::mem::take(&mut vm.trace),
            looks: vm.looks.take(),
            waiters: std::mem::take(&mut vm.waiters),
            began,
            until,
            brought: None,
        };
        let asked = vm.asked.take().unwrap_or(began);
        let waited = began.saturating_duration_since(asked).as_millis() as u64;
        tracing::debug!(
            vm = name,
            parts = %stale.names().collect::<Vec<_>>().join(" "),
            waited,
            "reading begins"
        );
        vm.reading = Some(Box::new(reading));
        self.readings += 1;
        let known = vm.parts.clone();
        let datasets = match &known {
            Some(parts) if stale.has(Stale::DATASETS) => datasets_of(parts, &self.datasets),
            _ => Vec::new(),
        };
        if let Some(parts) = known.as_ref().filter(|_| stale == Stale::OBJECT) {
            // Nothing is to be read: what concerns all VMs, or its datasets, said something new.
            let parts = Box::new(parts.clone());
            self.board.edit(|view| view.counters.loads += 1);
            self.vm_read(&name, Ok(Loaded::Parts(parts, Vec::new())));
            return;
        }
        let task = Task {
            ctx: self.ctx.clone(),
            kstats: Arc::clone(&self.kstats),
            name: name.clone(),
            known,
            stale,
            datasets,
        };
        self.board.edit(|view| {
            view.counters.loads += 1;
            view.pending.insert(name.clone(), (asked, began));
        });
        self.spawn(Purpose::Vm(name.clone()), async move { Done::Vm(name, task.run().await) });
    }

    pub(super) fn spawn(
        &mut self,
        purpose: Purpose,
        work: impl Future<Output = Done> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(work);
        self.purposes.insert(handle.id(), purpose);
    }

    pub(super) async fn finished(
        &mut self,
        done: Result<(tokio::task::Id, Done), tokio::task::JoinError>,
    ) {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let purpose = self.purposes.remove(&id);
        match (done, purpose) {
            (Ok((_, Done::Vm(name, result))), _) => self.vm_read(&name, result),
            (Ok((_, Done::Dataset(name, result))), _) => self.dataset_read(&name, result),
            (Ok((_, Done::Sysinfo(result))), _) => {
                self.sysinfo_read(result.map_err(|error| error.to_string()))
            }
            (Ok((_, Done::Node(began, result))), _) => {
                self.node_read(began, *result).await;
            }
            (Ok((_, Done::Sweep(look))), _) => self.swept(*look),
            (Err(_), Some(Purpose::Vm(name))) => self.vm_read(&name, Err(LoadFault::Panic)),
            (Err(_), Some(Purpose::Dataset(name))) => {
                self.dataset_failed(&name, "the reading panicked".to_owned())
            }
            (Err(_), Some(Purpose::Sysinfo)) => {
                self.sysinfo_read(Err("the reading panicked".to_owned()))
            }
            (Err(_), Some(Purpose::Node)) => {
                self.node_read(Instant::now(), Err("the reading panicked".to_owned())).await
            }
            (Err(_), Some(Purpose::Sweep)) | (Err(_), None) => {
                self.sweeping = false;
                // What was read before it is not known any more: the next one judges all.
                self.files = Arc::default();
                self.plan_sweep();
            }
        }
    }
}
