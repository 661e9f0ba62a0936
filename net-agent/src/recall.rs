// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Between the disk and what the tasks share: reading the last run's memory at the start, and
//! keeping this run's on the disk as it changes. Times on the disk are the wall clock's; a clock
//! that went back makes what is remembered younger, never older.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sdc_clients::MacAddr;

use crate::departed::{Departure, Left};
use crate::memory::{Kept, KeptDeparture, Seen};
use crate::shared::{Shared, lock};

/// The brake's memory.
const HOUR: Duration = Duration::from_secs(3600);
/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What is left of `span` since `seen`.
fn rest(seen: Seen, span: Duration, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(seen.0)).unwrap_or_default();
    span.saturating_sub(passed)
}

/// The moment that was `ago`.
fn moment(now: Timestamp, ago: Duration) -> Seen {
    let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
    Seen(now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH))
}

impl Shared {
    /// Takes up what the last run left. Damage is said, and what is lost counts as the worst.
    pub(crate) fn recall(&self) {
        let now = Timestamp::now();
        let kept = match self.memory.read(&self.policy.cn_uuid) {
            Ok(None) => return,
            Ok(Some(kept)) => kept,
            Err(damage) => {
                tracing::error!(reason = %damage, "the memory of the last run is lost: deletes wait");
                *lock(&self.lost) = Some(Seen(now));
                self.status.memory(Some(format!("lost: {damage}")));
                Kept::new(&self.policy.cn_uuid)
            }
        };
        let clock = self.clock();
        let memory = self.config.hidden_memory;
        let mut lost = lock(&self.lost);
        *lost = lost.or(kept.lost);
        let unknown = lost.map(|since| clock + rest(since, memory, now));
        drop(lost);
        let hidden = kept.hidden.into_iter().map(|(vm, gone)| {
            // Hidden and here when it was written: it may have gone a moment ago.
            let left = gone.map_or(memory, |gone| rest(gone, memory, now));
            (vm, clock + left)
        });
        let hidden = hidden.filter(|(_, until)| *until > clock).collect();
        self.learn(|i| i.recall(kept.vms, hidden, unknown.unwrap_or_default()));
        lock(&self.deletes).extend(
            kept.deletes
                .into_iter()
                .map(|at| clock + rest(at, HOUR, now))
                .filter(|until| *until > clock),
        );
        let due = clock + self.config.settle.max(self.config.second_look);
        let mut departed = lock(&self.departed);
        for KeptDeparture { mac, vm, left, waits, why } in kept.departed {
            let left = if left == Left::Alone { Left::Alone } else { Left::Before };
            departed.recall(mac, Departure { vm, left, due, tries: 0, waits, why });
        }
        drop(departed);
        *lock(&self.strays) = kept.macs;
    }

    /// Was an earlier memory lost within this time?
    pub(crate) fn lost_within(&self, span: Duration) -> bool {
        lock(&self.lost).is_some_and(|since| !rest(since, span, Timestamp::now()).is_zero())
    }

    /// Takes the lost memory off the board once nothing depends on it any more.
    pub(crate) fn forget_loss(&self) {
        let span = HOUR.max(self.config.hidden_memory);
        if self.memory_fault().is_none() && !self.lost_within(span) {
            self.status.memory(None);
        }
    }

    /// Strikes out of the last run's addresses what is here, or waits as a departure.
    pub(crate) fn match_strays(&self) {
        let departed: Vec<MacAddr> = self.all_departed().into_iter().map(|(mac, _)| mac).collect();
        let mut strays = lock(&self.strays);
        self.look(|inventory| {
            if !inventory.view.complete {
                return;
            }
            let here: Vec<MacAddr> = inventory.view.macs().map(|(mac, _)| mac).collect();
            strays.retain(|mac, _| !here.contains(mac) && !departed.contains(mac));
        });
    }

    /// Addresses of the last run that are not here, with their VMs.
    pub fn strays(&self) -> BTreeMap<MacAddr, String> {
        lock(&self.strays).clone()
    }

    /// One of them is decided.
    pub(crate) fn stray_settled(&self, mac: MacAddr) {
        if lock(&self.strays).remove(&mac).is_some() {
            self.changed.notify_one();
        }
    }

    /// Why nothing may be deleted for want of a memory, if so.
    pub fn memory_fault(&self) -> Option<String> {
        lock(&self.memory_fault).clone()
    }

    /// What would be lost by a crash now.
    pub(crate) fn kept(&self) -> Kept {
        let (now, clock) = (Timestamp::now(), self.clock());
        let span = self.config.hidden_memory;
        let mut kept = Kept::new(&self.policy.cn_uuid);
        kept.macs = self.strays();
        self.look(|inventory| {
            kept.vms = inventory.most_vms(clock);
            for (mac, vm) in inventory.view.macs().filter(|(_, vm)| !vm.hidden) {
                kept.macs.insert(mac, vm.uuid.clone());
            }
            for (vm, until) in inventory.hidden() {
                let here = inventory.view.vms.contains_key(vm);
                let since = (clock + span).saturating_sub(*until);
                kept.hidden.insert(vm.clone(), (!here).then(|| moment(now, since)));
            }
        });
        kept.departed = self
            .all_departed()
            .into_iter()
            .map(|(mac, Departure { vm, left, waits, why, .. })| KeptDeparture {
                mac,
                vm,
                left,
                waits,
                why,
            })
            .collect();
        let deletes = lock(&self.deletes);
        let young = deletes.iter().filter(|until| clock < **until);
        kept.deletes =
            young.map(|until| moment(now, (clock + HOUR).saturating_sub(*until))).collect();
        drop(deletes);
        kept.lost = lock(&self.lost).filter(|since| !rest(*since, HOUR.max(span), now).is_zero());
        kept
    }

    /// Keeps the memory on the disk as it changes, for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        if lock(&self.lost).is_some() && self.memory.read(&self.policy.cn_uuid).is_err() {
            self.memory.put_aside();
        }
        let mut last = None;
        loop {
            if self.keep_once(&mut last).await {
                self.changed.notified().await;
            } else {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Writes the memory if it says anything new; says whether the disk is as we want it.
    pub(crate) async fn keep_once(&self, last: &mut Option<Kept>) -> bool {
        let kept = self.kept();
        if last.as_ref().is_some_and(|last| same(last, &kept)) {
            return true;
        }
        let (file, content) = (self.memory.clone(), kept.clone());
        let written = tokio::task::spawn_blocking(move || file.write(&content)).await;
        let fault = match written {
            Ok(Ok(())) => None,
            Ok(Err(err)) => Some(format!("the memory cannot be kept on the disk: {err}")),
            Err(_) => Some("the memory cannot be kept on the disk".to_owned()),
        };
        let good = fault.is_none();
        if good {
            *last = Some(kept);
        }
        let mut known = lock(&self.memory_fault);
        if *known != fault {
            if let Some(why) = &fault {
                tracing::error!(reason = why, "nothing is deleted");
            }
            self.status.memory(fault.clone());
            *known = fault;
        }
        good
    }
}

/// Do two memories say the same? Moments are computed back from the monotonic clock and differ
/// by what the wall clock drifts, so a second more or less is no difference.
fn same(one: &Kept, two: &Kept) -> bool {
    let close = |a: Seen, b: Seen| a.0.duration_since(b.0).abs() < SignedDuration::from_secs(1);
    let both = |a: &Option<Seen>, b: &Option<Seen>| match (a, b) {
        (Some(a), Some(b)) => close(*a, *b),
        (a, b) => a.is_none() && b.is_none(),
    };
    one.vms == two.vms
        && one.macs == two.macs
        && one.hidden.len() == two.hidden.len()
        && one.hidden.iter().zip(&two.hidden).all(|((v, a), (w, b))| v == w && both(a, b))
        && one.departed == two.departed
        && one.deletes.len() == two.deletes.len()
        && one.deletes.iter().zip(&two.deletes).all(|(a, b)| close(*a, *b))
        && both(&one.lost, &two.lost)
}
