// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The true state of the world, which only the simulator knows, and the promises that were broken.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Where a VM is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// Being provisioned: it has NICs, and no node has it yet.
    Planned,
    /// On this compute node.
    On(String),
    /// Gone for good since then, last on this node.
    Gone(Instant, String),
}

#[derive(Debug, Default)]
struct Known {
    began: Option<Instant>,
    quiet: bool,
    /// Nodes whose brake is on, until an operator comes.
    braked: HashSet<String>,
    /// Nodes of whose uuid there is a second machine: nobody knows which one is the node.
    doubted: HashSet<String>,
    vms: HashMap<String, Life>,
    /// Addresses in use that no configuration shows now.
    hidden: HashSet<String>,
    /// VMs that are or were hidden, and from when on no request to VMAPI may name them.
    secret: HashMap<String, Option<Instant>>,
    /// VMs that a node gave away when it was evacuated.
    given: HashSet<String>,
    /// VMs that their node does not have at the moment, and will have again.
    vanished: HashSet<String>,
    faults: Vec<String>,
    trace: Vec<String>,
}

/// The truth; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Truth(Arc<Mutex<Known>>);

impl Truth {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A VM's life goes on.
    pub fn set(&self, vm: &str, life: Life) {
        self.known().vms.insert(vm.to_owned(), life);
    }

    /// Where a VM is; `None` for one that never was.
    pub fn life(&self, vm: &str) -> Option<Life> {
        self.known().vms.get(vm).cloned()
    }

    /// The VMs on a node.
    pub fn on(&self, cn: &str) -> Vec<String> {
        let known = self.known();
        let here = known.vms.iter().filter(|(_, life)| matches!(life, Life::On(on) if on == cn));
        let mut names: Vec<String> = here.map(|(vm, _)| vm.clone()).collect();
        names.sort();
        names
    }

    /// A broken promise, by its name in docs/contract/faults.md.
    pub fn fault(&self, name: &str, what: impl std::fmt::Display) {
        let what = format!("{name}: {what}");
        self.note(format!("BROKEN {what}"));
        self.known().faults.push(what);
    }

    /// Returns the broken promises.
    pub fn faults(&self) -> Vec<String> {
        self.known().faults.clone()
    }

    /// So much looks leaked on this node that its brake has to be on.
    pub fn brake(&self, cn: &str) {
        self.known().braked.insert(cn.to_owned());
    }

    /// Returns true if the node's brake has to be on.
    pub fn is_braked(&self, cn: &str) -> bool {
        self.known().braked.contains(cn)
    }

    /// A second machine has the uuid of this node, or not any more.
    pub(super) fn doubt(&self, cn: &str, is_doubted: bool) {
        let doubted = &mut self.known().doubted;
        match is_doubted {
            true => doubted.insert(cn.to_owned()),
            false => doubted.remove(cn),
        };
    }

    /// Returns true if a second machine has the uuid of this node.
    pub(super) fn is_doubted(&self, cn: &str) -> bool {
        self.known().doubted.contains(cn)
    }

    /// An agent of this node writes.
    pub(super) fn writes(&self, cn: &str, what: &str) {
        if self.is_doubted(cn) {
            self.fault("P18", format!("{what} of a node of which there are two"));
        }
    }

    /// These addresses are in use by a VM whose configuration cannot be read.
    pub(super) fn hide_use(&self, macs: &[String]) {
        self.known().hidden = macs.iter().map(|mac| mac.replace(':', "")).collect();
    }

    /// Returns true if such a VM uses this address.
    pub(super) fn is_hidden_use(&self, mac: &str) -> bool {
        self.known().hidden.contains(&mac.replace(':', ""))
    }

    /// The node hides a VM, and nobody may name it from then on.
    pub(super) fn hide(&self, vm: &str, from: Instant) {
        self.known().secret.entry(vm.to_owned()).or_default().get_or_insert(from);
    }

    /// The node hides it no more.
    pub(super) fn show(&self, vm: &str) {
        if let Some(from) = self.known().secret.get_mut(vm) {
            *from = None;
        }
    }

    /// Returns true if the VM is hidden and may not be named any more.
    pub(super) fn is_secret(&self, vm: &str) -> bool {
        let from = self.known().secret.get(vm).copied().flatten();
        from.is_some_and(|from| from <= Instant::now())
    }

    /// Returns true if the VM is hidden or once was.
    pub(super) fn was_hidden(&self, vm: &str) -> bool {
        self.known().secret.contains_key(vm)
    }

    /// A node that is evacuated gives a VM away.
    pub(super) fn give(&self, vm: &str) {
        self.known().given.insert(vm.to_owned());
    }

    /// Returns true if a node that was evacuated gave the VM away.
    pub(super) fn is_given(&self, vm: &str) -> bool {
        self.known().given.contains(vm)
    }

    /// Nothing on their node shows these VMs any more, though they live.
    pub(super) fn vanish(&self, vms: HashSet<String>) {
        self.known().vanished = vms;
    }

    /// Returns true if the VM is one of these.
    pub(super) fn has_vanished(&self, vm: &str) -> bool {
        self.known().vanished.contains(vm)
    }

    /// Nothing goes wrong or changes from now on, and every node's vminfod knows its node.
    pub fn quiet(&self) {
        self.known().quiet = true;
    }

    /// Returns true if nothing goes wrong any more.
    pub fn is_quiet(&self) -> bool {
        self.known().quiet
    }

    /// Notes what happened, for whoever replays the seed.
    pub fn note(&self, what: impl std::fmt::Display) {
        let mut known = self.known();
        let now = Instant::now();
        let began = *known.began.get_or_insert(now);
        known.trace.push(format!("{:9.3} {what}", (now - began).as_secs_f64()));
    }

    /// What happened so far.
    pub fn trace(&self) -> Vec<String> {
        self.known().trace.clone()
    }
}
