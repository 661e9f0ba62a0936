// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The worker task: runs the jobs of the scheduled VMs, a few at once and one for each VM.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::MacAddr;

use crate::apply;
use crate::brake::BrakeOf;
use crate::changes::missed;
use crate::departures::{Left, Waits};
use crate::moved;
use crate::outcome::Outcome;
use crate::parts::Parts;
use crate::parts::Upkeep;
use crate::plan::Reason;
use crate::plan::reap::Basis;
use crate::plan::upkeep::unwritable;
use crate::status::Count;
use crate::view::ViewError;

/// Runs jobs, for ever.
pub(crate) async fn work(parts: Arc<Parts>) {
    let run = |vm: String, Upkeep(upkeep)| {
        let parts = Arc::clone(&parts);
        async move { job(&parts, &vm, upkeep).await }
    };
    parts.schedule.work(parts.clock, run, || parts.status.count(Count::Errors)).await;
}

#[tracing::instrument(skip(parts))]
async fn job(parts: &Parts, vm: &str, upkeep: bool) {
    parts.gate.until_writable(|_| ()).await;
    if upkeep {
        keep_up(parts, vm).await;
    }
    for (mac, departure) in parts.departures.of(vm) {
        if departure.due > parts.clock.now() {
            continue;
        }
        // No event says that a zone with this address cannot be read.
        match full_view(parts, departure.due).await {
            Ok(()) if parts.departures.how(mac, vm).is_none() => {}
            Ok(()) => settle(parts, vm, mac).await,
            Err(err) => parts.departures.put_off(mac, vm, Waits::Try, parts.failed(&err)),
        }
    }
    if parts.departures.braked().is_empty() {
        parts.brake.set(BrakeOf::Departures, None);
    }
    if let Some(at) = parts.departures.of(vm).iter().map(|(_, departure)| departure.due).min() {
        parts.schedule.wake(vm, at, Upkeep(false));
    }
}

/// Reads a full view of the node, unless the last one was asked for at this time or later. What left
/// together shares one view.
async fn full_view(parts: &Parts, since: Duration) -> Result<(), ViewError> {
    let is_read = || parts.node.with(|inventory| inventory.full()).is_some_and(|at| at >= since);
    let _one_at_a_time = parts.node.reading().await;
    if !is_read() {
        let fresh = parts.node.read_fresh(&parts.clients.vminfod).await?;
        missed(parts, fresh.differing);
    }
    Ok(())
}

async fn keep_up(parts: &Parts, vm: &str) {
    let macs: Vec<MacAddr> = parts.node.with(|inventory| {
        let found = inventory.view.vms.get(vm).filter(|vm| unwritable(vm).is_none());
        found.map(|vm| vm.nics.iter().map(|nic| nic.mac).collect()).unwrap_or_default()
    });
    let mut is_open = false;
    for mac in macs {
        is_open |= apply::keep_up(parts, mac, vm, true).await.is_open();
    }
    if is_open {
        parts.schedule.wake_later(vm, parts.clock.now(), Upkeep(true));
    } else {
        parts.schedule.succeeded(vm);
    }
}

/// Tries to delete the record of a NIC that left.
async fn settle(parts: &Parts, vm: &str, mac: MacAddr) {
    let departures = &parts.departures;
    moved::forget(parts).await;
    let outcome = apply::delete(parts, mac, vm, basis(parts, mac, vm), None).await;
    let again = parts.refused.again(mac, &outcome);
    match outcome {
        Outcome::Refused(why) => match again {
            Some(pause) => departures.refused(mac, vm, pause, why),
            None => departures.settled(mac, vm),
        },
        Outcome::Done | Outcome::Left(_) | Outcome::Missing => departures.settled(mac, vm),
        Outcome::Undecided(why) => departures.put_off(mac, vm, Waits::Verdict, why),
        Outcome::Braked(why) => departures.put_off(mac, vm, Waits::Brake, Reason::Brake(why)),
        Outcome::Deferred(why) | Outcome::Failed(why) => {
            departures.put_off(mac, vm, Waits::Try, why);
        }
    }
}

/// Returns why a delete of this record is considered now.
pub(crate) fn basis(parts: &Parts, mac: MacAddr, vm: &str) -> Basis {
    match parts.departures.how(mac, vm) {
        Some(Left::WithVm) => Basis::Witnessed,
        Some(Left::Alone) => Basis::LeftVm,
        Some(Left::Before) => Basis::Remembered,
        None => Basis::pass(parts.brake.first_look(mac)),
    }
}
