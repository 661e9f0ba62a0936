// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! From what happens on the node to work: the watch stream and the comparison feed one function,
//! `Agent::noticed`, and the lanes do the rest. An event carries no work of its own; it wakes
//! the VM's lane. What a snapshot holds is not an event.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::MacAddr;
use sdc_clients::vminfod::{VmObject, WatchEvent, watch};

use crate::agent::Agent;
use crate::apply::Outcome;
use crate::inventory::{LocalView, LocalVm};
use crate::lanes::Due;
use crate::plan::backfill::unwritable;
use crate::plan::reap::Basis;
use crate::shared::{Left, Waits};
use crate::status::{Count, history};

impl Agent {
    /// Follows vminfod's stream, for ever.
    pub(crate) async fn follow(&self) {
        let status = &self.shared.status;
        status.step(history::WATCHER);
        let jitter = self.shared.draw(|jitter| jitter.fork());
        let mut watcher = watch(&self.clients.vminfod, jitter);
        status.step(history::WATCHER_DONE);
        status.step(history::STARTING);
        loop {
            match watcher.next().await {
                WatchEvent::Synced(objects) => {
                    let all: Vec<&VmObject> =
                        objects.iter().map(|vm| -> &VmObject { vm }).collect();
                    self.synced(&all);
                }
                WatchEvent::Created(vm)
                | WatchEvent::Modified { vm, .. }
                | WatchEvent::Hidden { vm }
                | WatchEvent::Shown { vm } => self.told(&vm),
                WatchEvent::Deleted { vm } => self.deleted(&vm),
                WatchEvent::Lost(err) => {
                    let text = daemon::log::chain(&err);
                    if self.shared.learn(|i| std::mem::take(&mut i.synced)) {
                        tracing::warn!(
                            reason = text,
                            "vminfod's stream is lost: nothing is written"
                        );
                        status.count(Count::StreamsLost);
                    }
                    status.waiting("follow", Some(format!("waiting for vminfod: {text}")));
                }
            }
        }
    }

    fn synced(&self, objects: &[&VmObject]) {
        let view = LocalView::read(objects.iter().copied(), self.shared.clock());
        let complete = view.complete;
        let first = !self.told_once.swap(true, std::sync::atomic::Ordering::SeqCst);
        let memory = self.shared.config.hidden_memory;
        let differing = self.shared.learn(|inventory| {
            inventory.synced = true;
            inventory.replace(view, memory)
        });
        self.shared.status.waiting("follow", None);
        self.shared.status.step(history::STARTED);
        tracing::info!(complete, "vminfod's snapshot is read");
        if first {
            self.resume();
        } else {
            for (uuid, before) in differing {
                self.noticed(&uuid, before, Left::Before);
            }
        }
    }

    /// Takes up what the last run left: what is here again is struck out, the rest comes due.
    fn resume(&self) {
        let here: Vec<LocalVm> =
            self.shared.look(|inventory| inventory.view.vms.values().cloned().collect());
        for vm in &here {
            self.shared.returned(vm);
        }
        self.shared.match_strays();
        self.wake_departed();
    }

    /// Lets the lanes look at everything that left, when it is due.
    pub(crate) fn wake_departed(&self) {
        for (_, departure) in self.shared.all_departed() {
            let due = Due { at: departure.due, upkeep: false, tries: 0 };
            self.lanes.wake(&departure.vm, due);
        }
    }

    fn told(&self, object: &VmObject) {
        let (now, memory) = (self.shared.clock(), self.shared.config.hidden_memory);
        let Some((before, vm)) = self.shared.learn(|inventory| inventory.put(object, now, memory))
        else {
            tracing::warn!("vminfod told of a VM without a name");
            self.shared.learn(|inventory| inventory.view.complete = false);
            return;
        };
        if before.as_ref() != Some(&vm) {
            self.noticed(&vm.uuid, before, Left::WithVm);
        }
    }

    fn deleted(&self, object: &VmObject) {
        let (now, memory) = (self.shared.clock(), self.shared.config.hidden_memory);
        let Some((vm, _)) = LocalVm::read(object) else { return };
        let (before, synced) = self
            .shared
            .learn(|inventory| (inventory.remove(&vm.uuid, now, memory), inventory.synced));
        if let Some(before) = before {
            // Before the view is whole again this may be read off a snapshot: nobody saw it go.
            let went = if synced { Left::WithVm } else { Left::Before };
            self.noticed(&before.uuid.clone(), Some(before), went);
        }
    }

    /// A fresh view differed from memory: as if an event had told it (R13).
    pub(crate) fn told_by_view(&self, differing: Vec<(String, Option<LocalVm>)>) {
        for (uuid, before) in differing {
            self.shared.status.count(Count::MissedEvents);
            tracing::info!(vm = uuid, "differs from memory: an event was missed");
            self.noticed(&uuid, before, Left::Before);
        }
    }

    /// Why a delete of this record is considered, as things stand.
    pub(crate) fn basis_of(&self, mac: MacAddr, vm: &str) -> Basis {
        let departure = self.shared.departed(vm).into_iter().find(|(left, _)| *left == mac);
        match departure.map(|(_, departure)| departure.left) {
            Some(Left::WithVm) => Basis::Witnessed,
            Some(Left::Alone) => Basis::LeftVm,
            Some(Left::Before) => Basis::Remembered,
            None => Basis::pass(self.shared.first_look(mac)),
        }
    }

    /// A VM differs from what it was: it came, changed, was hidden or shown, or went (and `went`
    /// says before whose eyes).
    fn noticed(&self, uuid: &str, before: Option<LocalVm>, went: Left) {
        let now = self.shared.clock();
        let (after, was_hidden) = self.shared.look(|inventory| {
            (inventory.view.vms.get(uuid).cloned(), inventory.recently_hidden(uuid, now))
        });
        let upkeep = Due { at: now, upkeep: true, tries: 0 };
        match (before, after) {
            (before, Some(after)) => {
                // Hidden: everything queued about it is void; writes look once more themselves.
                self.shared.returned(&after);
                if after.hidden {
                    return;
                }
                if let Some(before) = before.filter(|before| !before.hidden) {
                    let left: Vec<_> = before
                        .nics
                        .iter()
                        .map(|nic| nic.mac)
                        .filter(|mac| !after.has(*mac))
                        .collect();
                    if !left.is_empty() {
                        self.shared.depart(&before, left, Left::Alone);
                    }
                }
                self.lanes.wake(uuid, upkeep);
            }
            (Some(before), None) => {
                if before.hidden || was_hidden {
                    tracing::info!(vm = uuid, "a hidden VM went: its NICs are left alone");
                    return;
                }
                let macs: Vec<_> = before.nics.iter().map(|nic| nic.mac).collect();
                let at = self.shared.depart(&before, macs, went);
                self.lanes.wake(uuid, Due { at, upkeep: false, tries: 0 });
            }
            (None, None) => {}
        }
    }

    /// Every 300 s ± 10 %: a fresh view against memory. No request to NAPI unless they differ.
    pub(crate) async fn compare(&self) {
        loop {
            let wait = self.shared.draw(|jitter| jitter.around(self.shared.config.resync, 0.1));
            tokio::time::sleep(wait).await;
            if !self.shared.look(|inventory| inventory.synced) {
                continue;
            }
            match self.shared.fresh_view(&self.clients.vminfod).await {
                Ok(fresh) => {
                    self.shared.status.count(Count::Resyncs);
                    self.shared.settle_size();
                    self.shared.forget_loss();
                    self.told_by_view(fresh.differing);
                }
                Err(why) => self.shared.status.failed(why),
            }
        }
    }

    /// Runs the lanes, for ever.
    pub(crate) async fn work(self: Arc<Self>) {
        let mut jobs = tokio::task::JoinSet::new();
        loop {
            let now = self.shared.clock();
            let until = match self.lanes.take(now) {
                Ok((vm, due)) => {
                    let agent = Arc::clone(&self);
                    jobs.spawn(async move {
                        // A guard, so that a panic cannot keep the lane busy for ever.
                        let lane = Busy { agent: &agent, vm: &vm };
                        agent.job(&vm, due).await;
                        drop(lane);
                    });
                    continue;
                }
                Err(until) => until,
            };
            let nap = until.map_or(Duration::from_secs(3600), |at| at.saturating_sub(now));
            // All arms are cancel-safe: a wake is kept, a finished job stays in the set.
            tokio::select! {
                () = self.lanes.wakes() => {}
                () = tokio::time::sleep(nap) => {}
                Some(ended) = jobs.join_next() => {
                    if let Err(err) = ended && err.is_panic() {
                        self.shared.status.failed("a job panicked".to_owned());
                    }
                }
            }
        }
    }

    async fn job(&self, vm: &str, due: Due) {
        let shared = &self.shared;
        self.writable(|_| ()).await;
        if due.upkeep {
            let macs: Vec<_> = shared.look(|inventory| {
                let found = inventory.view.vms.get(vm).filter(|vm| unwritable(vm).is_none());
                found.map(|vm| vm.nics.iter().map(|nic| nic.mac).collect()).unwrap_or_default()
            });
            let mut open = false;
            for mac in macs {
                let outcome = self.apply.keep_up(mac, vm, true).await;
                open |= outcome.is_open();
            }
            if open {
                let mut tries = due.tries;
                let at = shared.clock() + self.backoff(&mut tries);
                self.lanes.wake(vm, Due { at, upkeep: true, tries });
            }
        }
        for (mac, departure) in shared.departed(vm) {
            if departure.due > shared.clock() {
                continue;
            }
            let basis = self.basis_of(mac, vm);
            match self.apply.reap(mac, vm, basis, None).await {
                Outcome::Done | Outcome::Left(_) | Outcome::Missing => shared.settled(mac, vm),
                Outcome::Undecided(why) => shared.put_off(mac, vm, Waits::Verdict, why),
                Outcome::Braked(why) => shared.put_off(mac, vm, Waits::Brake, why),
                Outcome::Deferred(why) | Outcome::Failed(why) => {
                    shared.put_off(mac, vm, Waits::Try, why);
                }
            }
        }
        shared.unbrake_departures();
        if let Some(at) = shared.departed(vm).iter().map(|(_, departure)| departure.due).min() {
            self.lanes.wake(vm, Due { at, upkeep: false, tries: 0 });
        }
    }
}

struct Busy<'a> {
    agent: &'a Agent,
    vm: &'a str,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.agent.lanes.release(self.vm);
    }
}
