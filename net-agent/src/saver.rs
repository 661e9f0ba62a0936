// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the last run left, and what the state file should say now. Times in the
//! file are the wall clock's. A clock that is ahead at a restart must not end the protection of hidden
//! VMs or the count of deletes, so both begin anew with each start.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::state_file::WallTime;
use daemon::timing::HOUR;
use sdc_clients::MacAddr;

use crate::brake::Deletes;
use crate::departures::{Departure, Left};
use crate::parts::Parts;
use crate::plan::Reason;
use crate::state_file::{Saved, SavedDeparture};
use crate::view::LocalVm;

/// Takes over what the last run left. Called once, before the tasks start.
pub(crate) async fn restore(parts: &Parts) {
    let now = daemon::wall::now();
    let kept = parts.state_file.restore::<Saved>("deletes have to wait").await;
    let Some(kept) = kept else { return };
    let (clock, memory) = (parts.clock.now(), parts.config.times.hidden_memory);
    let unknown = parts.state_file.lost().map(|lost| clock + lost.rest(memory, now));
    let hidden = kept.hidden.into_keys().map(|vm| (vm, clock + memory)).collect();
    let mut vms: BTreeMap<&String, Vec<MacAddr>> = BTreeMap::new();
    kept.macs.iter().for_each(|(mac, vm)| vms.entry(vm).or_default().push(*mac));
    let vms = vms.into_iter().map(|(vm, macs)| LocalVm::remembered(vm.clone(), macs));
    parts.node.restore(|i| i.restore(vms, hidden, unknown.unwrap_or_default()));
    let until = |times: Vec<WallTime>| times.into_iter().map(|_| clock + HOUR).collect();
    let deletes = Deletes { counted: until(kept.deletes), exempted: until(kept.exempted) };
    parts.brake.restore(kept.reference, deletes);
    parts.brake.restore_day(kept.day);
    let left = kept.departed.iter().map(|it| &it.vm);
    parts.brake.saw(kept.macs.values().chain(left).chain(&kept.seen).cloned());
    let departures =
        kept.departed.into_iter().map(|SavedDeparture { mac, vm, left, waits, why }| {
            let left = if left == Left::Alone { Left::Alone } else { Left::Before };
            let (due, tries, why) = (Duration::ZERO, 0, Reason::LastRun(why));
            (mac, Departure { vm, left, due, tries, waits, why })
        });
    parts.departures.restore(departures, kept.macs);
}

/// Returns what the file should say now.
pub(crate) fn collect(parts: &Parts) -> Saved {
    let (now, clock) = (daemon::wall::now(), parts.clock.now());
    let memory = parts.config.times.hidden_memory;
    let mut kept = Saved { macs: parts.departures.strays(), ..Saved::default() };
    parts.node.with(|inventory| {
        let shown = inventory.remembered().chain(inventory.view.vms.values());
        for vm in shown.filter(|vm| !vm.hidden) {
            kept.macs.extend(vm.nics.iter().map(|nic| (nic.mac, vm.uuid.clone())));
        }
        for (vm, until) in inventory.hidden() {
            let here = inventory.view.vms.contains_key(vm);
            let since = (clock + memory).saturating_sub(*until);
            kept.hidden.insert(vm.clone(), (!here).then(|| WallTime::ago(now, since)));
        }
    });
    let keep = |(mac, departure): (MacAddr, Departure)| {
        let Departure { vm, left, waits, why, .. } = departure;
        SavedDeparture { mac, vm, left, waits, why: why.to_string() }
    };
    kept.departed = parts.departures.all().into_iter().map(keep).collect();
    let when = |until: Duration| WallTime::ago(now, (clock + HOUR).saturating_sub(until));
    let Deletes { counted, exempted } = parts.brake.deletes();
    kept.deletes = counted.into_iter().map(when).collect();
    kept.exempted = exempted.into_iter().map(when).collect();
    kept.day = parts.brake.kept_day();
    (kept.reference, kept.seen) = (parts.brake.reference(), parts.brake.seen());
    let span = HOUR.max(memory);
    kept.lost = parts.state_file.lost().filter(|lost| !lost.rest(span, now).is_zero());
    kept
}
