// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state file task: takes over what the last run left, then saves what changes. Times in the
//! file are the wall clock's. A clock that is ahead at a restart must not end the protection of hidden
//! VMs or the count of deletes, so both begin anew with each start.

use std::collections::BTreeMap;
use std::time::Duration;

use daemon::Window;
use daemon::state_file::Seen;
use daemon::timing::{HOUR, policy};
use jiff::{SignedDuration, Timestamp};
use sdc_clients::MacAddr;
use sdc_clients::retry::Backoff;

use crate::brake::Deletes;
use crate::departures::{Departure, Left};
use crate::parts::Parts;
use crate::plan::Reason;
use crate::state_file::{Kept, KeptDeparture};
use crate::view::LocalVm;

/// The waits after a write that failed.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(4) };

/// Returns the wall clock's time `ago`.
fn time(now: Timestamp, ago: Duration) -> Seen {
    let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
    Seen(now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Takes over what the last run left. Called once, before the tasks start.
pub(crate) async fn restore(parts: &Parts) {
    let now = daemon::wall::now();
    let cn_uuid = &parts.config.policy.cn_uuid;
    let kept = match parts.state_file.read::<Kept>(cn_uuid).await {
        Ok(None) => return,
        Ok(Some(kept)) => kept,
        Err(damage) => {
            tracing::error!(reason = %damage, "the state file cannot be used: deletes have to wait");
            parts.state_file.damaged(&damage, Seen(now));
            Kept::new(cn_uuid)
        }
    };
    parts.state_file.restore(kept.lost);
    let (clock, memory) = (parts.clock.now(), parts.config.times.hidden_memory);
    let unknown = parts.state_file.lost().map(|lost| clock + lost.rest(memory, now));
    let hidden = kept.hidden.into_keys().map(|vm| (vm, clock + memory)).collect();
    let mut vms: BTreeMap<&String, Vec<MacAddr>> = BTreeMap::new();
    kept.macs.iter().for_each(|(mac, vm)| vms.entry(vm).or_default().push(*mac));
    let vms = vms.into_iter().map(|(vm, macs)| LocalVm::remembered(vm.clone(), macs));
    parts.node.restore(|i| i.restore(vms, hidden, unknown.unwrap_or_default()));
    let until = |times: Vec<Seen>| times.into_iter().map(|_| clock + HOUR).collect();
    let deletes = Deletes { counted: until(kept.deletes), exempted: until(kept.exempted) };
    parts.brake.restore(kept.reference, deletes);
    let left = kept.departed.iter().map(|it| &it.vm);
    parts.brake.saw(kept.macs.values().chain(left).chain(&kept.seen).cloned());
    let departures =
        kept.departed.into_iter().map(|KeptDeparture { mac, vm, left, waits, why }| {
            let left = if left == Left::Alone { Left::Alone } else { Left::Before };
            let (due, tries, why) = (Duration::ZERO, 0, Reason::LastRun(why));
            (mac, Departure { vm, left, due, tries, waits, why })
        });
    parts.departures.restore(departures, kept.macs);
}

/// Returns what the file should say now.
fn collect(parts: &Parts) -> Kept {
    let (now, clock) = (daemon::wall::now(), parts.clock.now());
    let memory = parts.config.times.hidden_memory;
    let mut kept = Kept::new(&parts.config.policy.cn_uuid);
    kept.macs = parts.departures.strays();
    parts.node.look(|inventory| {
        let shown = inventory.remembered().chain(inventory.view.vms.values());
        for vm in shown.filter(|vm| !vm.hidden) {
            kept.macs.extend(vm.nics.iter().map(|nic| (nic.mac, vm.uuid.clone())));
        }
        for (vm, until) in inventory.hidden() {
            let here = inventory.view.vms.contains_key(vm);
            let since = (clock + memory).saturating_sub(*until);
            kept.hidden.insert(vm.clone(), (!here).then(|| time(now, since)));
        }
    });
    let keep = |(mac, departure): (MacAddr, Departure)| {
        let Departure { vm, left, waits, why, .. } = departure;
        KeptDeparture { mac, vm, left, waits, why: why.to_string() }
    };
    kept.departed = parts.departures.all().into_iter().map(keep).collect();
    let when = |until: Duration| time(now, (clock + HOUR).saturating_sub(until));
    let Deletes { counted, exempted } = parts.brake.deletes();
    kept.deletes = counted.into_iter().map(when).collect();
    kept.exempted = exempted.into_iter().map(when).collect();
    (kept.reference, kept.seen) = (parts.brake.reference(), parts.brake.seen());
    let span = HOUR.max(memory);
    kept.lost = parts.state_file.lost().filter(|lost| !lost.rest(span, now).is_zero());
    kept
}

/// Saves the file whenever its content changes, for ever.
pub(crate) async fn keep_saving(parts: &Parts) {
    if parts.state_file.is_damaged() {
        parts.state_file.keep_damaged().await;
    }
    let mut saved = None;
    let mut retry = Backoff::new(&policy(RETRY, None), parts.random.fork());
    loop {
        if save(parts, &mut saved).await {
            retry.reset();
            parts.state_file.changed().await;
        } else {
            tokio::time::sleep(retry.next_delay().unwrap_or(RETRY.max)).await;
        }
    }
}

/// Saves the file if its content differs from `saved`. Returns false if that failed.
pub(crate) async fn save(parts: &Parts, saved: &mut Option<Kept>) -> bool {
    let kept = collect(parts);
    if saved.as_ref().is_some_and(|saved| same(saved, &kept)) {
        return true;
    }
    let fault = parts.state_file.write(kept.clone()).await.err().map(|err| err.to_string());
    let good = fault.is_none();
    if good {
        *saved = Some(kept);
    }
    if parts.state_file.set_fault(fault.clone())
        && let Some(reason) = fault
    {
        tracing::error!(reason, "nothing is deleted while the state file cannot be written");
    }
    good
}

/// Compares two contents. Times are computed back from the monotonic clock and differ by the drift
/// of the wall clock, so less than a second is no difference.
fn same(one: &Kept, two: &Kept) -> bool {
    let close = |a: Seen, b: Seen| a.0.duration_since(b.0).abs() < SignedDuration::from_secs(1);
    let both = |a: &Option<Seen>, b: &Option<Seen>| match (a, b) {
        (Some(a), Some(b)) => close(*a, *b),
        (a, b) => a.is_none() && b.is_none(),
    };
    let all =
        |a: &[Seen], b: &[Seen]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(*a, *b));
    one.reference == two.reference
        && one.macs == two.macs
        && one.hidden.len() == two.hidden.len()
        && one.hidden.iter().zip(&two.hidden).all(|((v, a), (w, b))| v == w && both(a, b))
        && one.departed == two.departed
        && all(&one.deletes, &two.deletes)
        && all(&one.exempted, &two.exempted)
        && both(&one.lost, &two.lost)
}
