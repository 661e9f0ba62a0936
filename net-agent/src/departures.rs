// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The NICs that left the node and are not settled: one entry per MAC, with why it waits and when
//! it is looked at again; and the MACs of the last run that are on no VM now. What comes back is
//! removed at once. Nothing here decides that a record may be deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::timing::Clock;
use sdc_clients::{Jitter, MacAddr};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::config::Config;
use crate::plan::Reason;
use crate::view::{LocalView, LocalVm};

/// VMAPI is asked again after the waits of `verdict_retry` (5, 15, 60, 300 s, then the last with
/// jitter). With waits above a minute its answer would be heard too late for the two minutes in
/// which the NICs of a removed VM should go. So while at most this many departures wait, ...
const FEW: usize = 20;
/// ... a longer wait for VMAPI is cut to this (with jitter), which leaves time for the delete, ...
const SOON: Duration = Duration::from_secs(85);
/// ... for about the first hour. What VMAPI has not said by then it may never say.
const SOON_TRIES: usize = 45;

/// How a NIC left the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Its VM was deleted and an event said so.
    WithVm,
    Alone,
    /// Its VM was deleted during an earlier run of this agent, or without an event: age and a
    /// second look are required.
    Before,
}

/// What a departure waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    /// Its next try: the settle delay, the end of a hold, a service that answers.
    #[default]
    Try,
    /// VMAPI, which knows the VM and does not say yet that it is destroyed.
    Verdict,
    /// The operator, because of the mass-delete brake (G10).
    Brake,
}

/// A NIC that left the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    pub vm: String,
    pub left: Left,
    /// When to try (again), on the agent's clock.
    pub due: Duration,
    pub tries: usize,
    pub waits: Waits,
    pub why: Reason,
}

/// All departures. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Departures {
    queue: Mutex<Queue>,
    clock: Clock,
    settle: Duration,
    second_look: Duration,
    verdict_retry: Vec<Duration>,
    /// Wakes the task that saves the state file.
    save: Arc<Notify>,
}

#[derive(Debug)]
struct Queue {
    left: BTreeMap<MacAddr, Departure>,
    strays: BTreeMap<MacAddr, String>,
    jitter: Jitter,
}

impl Queue {
    fn get(&mut self, mac: MacAddr, vm: &str) -> Option<&mut Departure> {
        self.left.get_mut(&mac).filter(|departure| departure.vm == vm)
    }
}

impl Departures {
    /// No departures.
    pub fn new(config: &Config, clock: Clock, jitter: Jitter, save: Arc<Notify>) -> Self {
        let (left, strays) = (BTreeMap::new(), BTreeMap::new());
        Self {
            queue: Mutex::new(Queue { left, strays, jitter }),
            clock,
            settle: config.times.settle,
            second_look: config.policy.second_look,
            verdict_retry: config.times.verdict_retry.clone(),
            save,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The delay before the first look at a NIC whose departure no event reported.
    fn unseen(&self) -> Duration {
        self.settle.max(self.second_look)
    }

    /// Takes over what the last run left.
    pub fn restore(
        &self,
        left: impl IntoIterator<Item = (MacAddr, Departure)>,
        strays: BTreeMap<MacAddr, String>,
    ) {
        let due = self.clock.now() + self.unseen();
        let mut queue = self.queue();
        for (mac, departure) in left {
            queue.left.entry(mac).or_insert(Departure { due, ..departure });
        }
        queue.strays = strays;
    }

    /// NICs of a VM left the node. Returns when they are looked at.
    pub fn add(&self, vm: &str, macs: impl IntoIterator<Item = MacAddr>, left: Left) -> Duration {
        let wait = if left == Left::Before { self.unseen() } else { self.settle };
        let due = self.clock.now() + wait;
        let mut queue = self.queue();
        for mac in macs {
            let (vm, waits, why) = (vm.to_owned(), Waits::Try, Reason::Settling);
            queue.left.insert(mac, Departure { vm, left, due, tries: 0, waits, why });
        }
        drop(queue);
        self.save.notify_one();
        due
    }

    /// A VM is here: removes its own departures, except NICs that it lacks, and all those of its
    /// MACs.
    pub fn returned(&self, vm: &LocalVm) {
        let mut queue = self.queue();
        let before = queue.left.len();
        queue.left.retain(|mac, departure| {
            let same_vm = departure.vm == vm.uuid;
            !(vm.has(*mac) || (same_vm && (vm.hidden || departure.left != Left::Alone)))
        });
        if queue.left.len() != before {
            self.save.notify_one();
        }
    }

    /// Returns the departures of one VM.
    pub fn of(&self, vm: &str) -> Vec<(MacAddr, Departure)> {
        self.all().into_iter().filter(|(_, departure)| departure.vm == vm).collect()
    }

    /// Returns all departures.
    pub fn all(&self) -> Vec<(MacAddr, Departure)> {
        self.queue().left.iter().map(|(mac, departure)| (*mac, departure.clone())).collect()
    }

    /// Returns the number of departures.
    pub fn count(&self) -> usize {
        self.queue().left.len()
    }

    /// Returns how this NIC left this VM, if it is still not settled.
    pub fn how(&self, mac: MacAddr, vm: &str) -> Option<Left> {
        self.queue().get(mac, vm).map(|departure| departure.left)
    }

    /// Returns the departures that the brake blocks, with their VMs.
    pub fn braked(&self) -> BTreeMap<MacAddr, String> {
        let queue = self.queue();
        let braked = queue.left.iter().filter(|(_, d)| d.waits == Waits::Brake);
        braked.map(|(mac, d)| (*mac, d.vm.clone())).collect()
    }

    /// The operator approved: the departures that the brake blocks are due at once.
    pub fn unbrake(&self) {
        let now = self.clock.now();
        for departure in self.queue().left.values_mut().filter(|d| d.waits == Waits::Brake) {
            departure.due = now;
        }
    }

    /// Removes a departure.
    pub fn settled(&self, mac: MacAddr, vm: &str) {
        let mut queue = self.queue();
        if queue.get(mac, vm).is_some() {
            queue.left.remove(&mac);
            self.save.notify_one();
        }
    }

    /// NAPI refused the delete of a departure: it waits this long.
    pub fn refused(&self, mac: MacAddr, vm: &str, pause: Duration, why: Reason) {
        let due = self.clock.now() + pause;
        if let Some(departure) = self.queue().get(mac, vm) {
            (departure.due, departure.waits, departure.why) = (due, Waits::Try, why);
        }
        self.save.notify_one();
    }

    /// A departure has to wait longer.
    pub fn put_off(&self, mac: MacAddr, vm: &str, waits: Waits, why: Reason) {
        let now = self.clock.now();
        let mut queue = self.queue();
        let few = queue.left.len() <= FEW;
        let Queue { left, jitter, .. } = &mut *queue;
        let Some(departure) = left.get_mut(&mac).filter(|d| d.vm == vm) else { return };
        let mut wait = match self.verdict_retry.get(departure.tries) {
            Some(wait) => *wait,
            None => jitter.around(self.verdict_retry.last().copied().unwrap_or(SOON), 0.25),
        };
        if few && waits == Waits::Verdict && departure.tries < SOON_TRIES {
            wait = wait.min(jitter.around(SOON, 0.15));
        }
        departure.tries += 1;
        departure.due = now + wait;
        (departure.waits, departure.why) = (waits, why);
        self.save.notify_one();
    }

    /// Returns the MACs of the last run that are on no VM now and not decided, with their VMs.
    pub fn strays(&self) -> BTreeMap<MacAddr, String> {
        self.queue().strays.clone()
    }

    /// Removes the strays that are on a VM of this view or wait as departures.
    pub fn match_strays(&self, view: &LocalView) {
        if view.is_complete() {
            let Queue { left, strays, .. } = &mut *self.queue();
            strays.retain(|mac, _| !left.contains_key(mac) && view.holders(*mac).next().is_none());
        }
    }

    /// Removes a stray.
    pub fn stray_settled(&self, mac: MacAddr) {
        if self.queue().strays.remove(&mac).is_some() {
            self.save.notify_one();
        }
    }
}
