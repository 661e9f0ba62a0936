// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has left the node and is not settled: one entry per address, with why it waits and when
//! it is looked at again. Pure bookkeeping; what comes back is struck out at once, and nothing
//! here ever decides that something may be deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use sdc_clients::MacAddr;
use serde::{Deserialize, Serialize};

use crate::inventory::LocalVm;

/// How a NIC left the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Its VM was deleted before our eyes.
    WithVm,
    /// It left a VM that stays.
    Alone,
    /// Its VM was deleted before the eyes of an earlier run of this agent, or while nobody told it:
    /// age and a second look are asked for again.
    Before,
}

/// What a departure waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    /// Its next try: time to settle, a hold to end, a service to answer.
    #[default]
    Try,
    /// VMAPI, which knows the VM and has not called it destroyed.
    Verdict,
    /// The mass-change brake to be taken off (G10).
    Brake,
}

/// A NIC that left the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its VM.
    pub vm: String,
    /// How.
    pub left: Left,
    /// When to try (again), on the agent's clock.
    pub due: Duration,
    /// Tries so far.
    pub tries: usize,
    /// What it waits for.
    pub waits: Waits,
    /// Why it is not settled yet.
    pub why: String,
}

/// All of them, by address.
#[derive(Clone, Debug, Default)]
pub struct Departed(BTreeMap<MacAddr, Departure>);

impl Departed {
    /// These left, and are due after settling.
    pub fn add(
        &mut self,
        vm: &str,
        macs: impl IntoIterator<Item = MacAddr>,
        left: Left,
        due: Duration,
    ) {
        for mac in macs {
            let (vm, waits, why) = (vm.to_owned(), Waits::Try, "settling".to_owned());
            self.0.insert(mac, Departure { vm, left, due, tries: 0, waits, why });
        }
    }

    /// A VM is here: nothing of it has left but what it lacks, and its addresses are its own.
    /// Says whether anything was struck out.
    pub fn returned(&mut self, vm: &LocalVm) -> bool {
        let before = self.0.len();
        self.0.retain(|mac, departure| {
            let same_vm = departure.vm == vm.uuid;
            !(vm.has(*mac) || (same_vm && (vm.hidden || departure.left != Left::Alone)))
        });
        before != self.0.len()
    }

    /// Those of one VM.
    pub fn of(&self, vm: &str) -> Vec<(MacAddr, Departure)> {
        self.0.iter().filter(|(_, d)| d.vm == vm).map(|(m, d)| (*m, d.clone())).collect()
    }

    /// All.
    pub fn all(&self) -> Vec<(MacAddr, Departure)> {
        self.0.iter().map(|(m, d)| (*m, d.clone())).collect()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that the brake keeps.
    pub fn braked(&self) -> Vec<(MacAddr, String)> {
        let kept = self.0.iter().filter(|(_, d)| d.waits == Waits::Brake);
        kept.map(|(mac, d)| (*mac, d.vm.clone())).collect()
    }

    /// The brake is off for them: they are due at once.
    pub fn unbrake(&mut self, now: Duration) {
        for departure in self.0.values_mut().filter(|d| d.waits == Waits::Brake) {
            departure.due = now;
        }
    }

    /// Is this one still waiting?
    pub fn has(&self, mac: MacAddr, vm: &str) -> bool {
        self.0.get(&mac).is_some_and(|departure| departure.vm == vm)
    }

    /// This one is settled; says whether it was known.
    pub fn settle(&mut self, mac: MacAddr, vm: &str) -> bool {
        let known = self.has(mac, vm);
        if known {
            self.0.remove(&mac);
        }
        known
    }

    /// This one, to be changed.
    pub fn get_mut(&mut self, mac: MacAddr, vm: &str) -> Option<&mut Departure> {
        self.0.get_mut(&mac).filter(|departure| departure.vm == vm)
    }

    /// One that an earlier run left undecided.
    pub fn recall(&mut self, mac: MacAddr, departure: Departure) {
        self.0.entry(mac).or_insert(departure);
    }
}
