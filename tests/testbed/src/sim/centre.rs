// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all nodes of one world share.

use super::bugs::Bug;
use super::truth::Truth;
use mocks::napi::{Era, Options, Store};
use mocks::vmapi;

/// NAPI, VMAPI, the truth, and how chance falls.
#[derive(Clone)]
pub struct Centre {
    /// NAPI.
    pub napi: Store,
    /// VMAPI.
    pub vmapi: vmapi::Store,
    /// What is really so.
    pub truth: Truth,
    /// The seed of this world.
    pub seed: u64,
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// Do nodes show less than they have, and do uuids come in capitals?
    pub lies: bool,
}

impl Centre {
    /// A data centre without records, whose NAPI is of this age.
    pub fn new(era: Era, seed: u64, bug: Option<Bug>, truth: &Truth) -> Self {
        let napi = Store::new(Options { seed, ..Options::era(era) });
        Self { napi, vmapi: vmapi::Store::default(), truth: truth.clone(), seed, bug, lies: false }
    }
}
