// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The events task: follows vminfod's stream. A snapshot is not an event: what it holds is only
//! compared.

use daemon::agent::State;
use sdc_clients::vminfod::{VmObject, WatchEvent, watch};
use std::sync::Arc;

use crate::changes::{changed, wake_departures};
use crate::departures::Left;
use crate::parts::Parts;
use crate::parts::Upkeep;
use crate::status::{Count, Task, history};
use crate::view::{LocalView, LocalVm};

/// Follows the stream, for ever.
pub(crate) async fn follow(parts: Arc<Parts>) {
    let parts = &*parts;
    parts.status.step(history::WATCHER);
    let mut watcher = watch(&parts.clients.vminfod, parts.random.fork());
    parts.status.step(history::WATCHER_DONE);
    parts.status.step(history::STARTING);
    let mut is_first = true;
    loop {
        match watcher.next().await {
            WatchEvent::Synced(objects) => {
                let objects = objects.iter().map(|vm| -> &VmObject { vm });
                synced(parts, LocalView::read(objects, parts.clock.now()), is_first);
                is_first = false;
            }
            WatchEvent::Created(vm)
            | WatchEvent::Modified { vm, .. }
            | WatchEvent::Hidden(vm)
            | WatchEvent::Shown(vm) => present(parts, &vm),
            WatchEvent::Deleted(vm) => deleted(parts, &vm),
            WatchEvent::Lost(error) => {
                let lost = (Task::Events, Count::StreamsLost);
                parts.status.stream_lost(&parts.gate, lost, &error);
            }
            _ => {}
        }
    }
}

fn synced(parts: &Parts, view: LocalView, is_first: bool) {
    let (complete, vms) = (view.is_complete(), view.vms.len());
    parts.brake.saw(view.vms.keys().cloned());
    let differing = parts.node.synced(view);
    parts.gate.sync(true);
    parts.status.is(Task::Events, State::Working);
    parts.status.step(history::STARTED);
    tracing::info!(complete, vms, "read vminfod's snapshot");
    if !is_first {
        for (uuid, before) in differing {
            changed(parts, &uuid, before, Left::Before);
        }
        return;
    }
    // What the last run left: departures that are here again are removed, the others are due.
    parts.node.with(|inventory| {
        inventory.view.vms.values().for_each(|vm| parts.departures.returned(vm));
        parts.departures.match_strays(&inventory.view);
    });
    wake_departures(parts);
}

fn present(parts: &Parts, object: &VmObject) {
    match parts.node.put(object) {
        Some((before, vm)) if before.as_ref() != Some(&vm) => {
            parts.brake.saw([vm.uuid.clone()]);
            changed(parts, &vm.uuid, before, Left::WithVm);
        }
        // R10: any event has the VM's NICs looked at. Those that change nothing here fold.
        Some((_, vm)) if !vm.hidden => {
            let at = parts.clock.now() + parts.config.times.settle;
            parts.schedule.wake(&vm.uuid, at, Upkeep(true));
        }
        Some(_) => {}
        None => tracing::warn!("vminfod sent a VM without a name: the view is not complete"),
    }
}

fn deleted(parts: &Parts, object: &VmObject) {
    let Some((vm, _)) = LocalVm::read(object) else { return };
    let synced = parts.gate.is_synced();
    let before = parts.node.remove(&vm.uuid, synced);
    // Out of sync, the watcher makes deletes of what a snapshot lacks: no event reported it.
    let gone = if synced { Left::WithVm } else { Left::Before };
    changed(parts, &vm.uuid, before, gone);
}
