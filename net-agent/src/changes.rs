// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From a change of the node to work: stream and comparison both end here, in [`changed`]. A change
//! carries no work of its own; it wakes the VM, and the job looks at the node as it is then.

use crate::departures::Left;
use crate::parts::Parts;
use crate::parts::Upkeep;
use crate::status::Count;
use crate::view::{Differing, LocalVm};

/// A VM differs from what it was: it came, changed, was hidden or shown, or went. `gone` says how
/// its departure is judged if it went.
pub(crate) fn changed(parts: &Parts, uuid: &str, before: Option<LocalVm>, gone: Left) {
    let now = parts.clock.now();
    let (after, was_hidden) = parts.node.with(|inventory| {
        (inventory.view.vms.get(uuid).cloned(), inventory.recently_hidden(uuid, now))
    });
    match (before, after) {
        (before, Some(after)) => {
            parts.departures.returned(&after);
            if after.hidden {
                return;
            }
            if let Some(before) = before.filter(|before| !before.hidden) {
                let macs = before.nics.iter().map(|nic| nic.mac);
                let left: Vec<_> = macs.filter(|mac| !after.has(*mac)).collect();
                if !left.is_empty() {
                    parts.departures.add(&before.uuid, left, Left::Alone);
                }
            }
            parts.schedule.wake_changed(uuid, now, Upkeep(true));
        }
        (Some(before), None) => {
            if before.hidden || was_hidden {
                tracing::info!(vm = uuid, "a hidden VM is gone: its NICs are left alone");
                return;
            }
            let macs = before.nics.iter().map(|nic| nic.mac);
            let at = parts.departures.add(&before.uuid, macs, gone);
            parts.schedule.wake(uuid, at, Upkeep(false));
        }
        (None, None) => {}
    }
}

/// Handles the differences that a fresh view showed, as if events had reported them (R13).
pub(crate) fn missed(parts: &Parts, differing: Vec<Differing>) {
    for (uuid, before) in differing {
        parts.status.count(Count::MissedEvents);
        tracing::info!(vm = uuid, "found a change that no event reported");
        changed(parts, &uuid, before, Left::Before);
    }
}

/// Wakes the VMs of all departures when they are due.
pub(crate) fn wake_departures(parts: &Parts) {
    for (_, departure) in parts.departures.all() {
        parts.schedule.wake(&departure.vm, departure.due, Upkeep(false));
    }
}
