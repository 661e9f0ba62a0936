// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all nodes of one world share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bugs::Bug;
use super::truth::Truth;
use mocks::napi::{Era, Options, Store};
use mocks::{cnapi, vmapi};

/// NAPI, VMAPI, the truth, and how chance falls.
#[derive(Clone)]
pub struct Centre {
    /// NAPI.
    pub napi: Store,
    /// VMAPI.
    pub vmapi: vmapi::Store,
    /// CNAPI.
    pub cnapi: cnapi::Store,
    /// What is really so.
    pub truth: Truth,
    /// The seed of this world.
    pub seed: u64,
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// Nodes show less than they have, and uuids come in capitals.
    pub lies: bool,
    /// vm-agents compare everything now and then; else VMAPI learns from events and starts only.
    pub relists: bool,
    /// VMAPI does not hear from the nodes.
    pub(super) unsure: Arc<AtomicBool>,
}

impl Centre {
    /// A data centre without records, whose NAPI is of this age.
    pub fn new(era: Era, seed: u64, bug: Option<Bug>, truth: &Truth) -> Self {
        let napi = Store::new(Options { seed, ..Options::era(era) });
        // Where they do not, nobody asks VMAPI about VMs that a node does not show.
        let relists = bug == Some(Bug::ForgetTheReference)
            || seed.is_multiple_of(2) && bug != Some(Bug::LoseTheLastEvent);
        let (vmapi, cnapi) = (vmapi::Store::default(), cnapi::Store::default());
        let (truth, unsure) = (truth.clone(), Arc::default());
        Self { napi, vmapi, cnapi, truth, seed, bug, lies: false, relists, unsure }
    }

    /// VMAPI hears from the nodes, or does not: then it makes states up, and its lists are halved.
    pub(super) fn doubt(&self, unsure: bool) {
        self.unsure.store(unsure, Ordering::Relaxed);
    }

    /// Returns true if VMAPI does not hear from the nodes.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Relaxed)
    }

    /// Whatever failed of NAPI and VMAPI works.
    pub(super) fn calm(&self) {
        self.napi.faults().clear();
        self.vmapi.faults().clear();
        self.doubt(false);
        let mut peers = self.vmapi.peers();
        (peers.workflow, peers.storage) = (true, true);
    }
}
