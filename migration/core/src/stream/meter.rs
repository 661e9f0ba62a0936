// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has passed.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a dataset that have passed so far, for progress.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    /// The bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
