// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The places of the node that hang: zonepaths, or files outside any zone, whose file system does not
//! answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hung places of one pool at most: beyond that the pool itself counts as hung.
pub(super) const HUNG_PER_POOL: usize = 32;
/// Hung places at most, a part of the runtime's 512 blocking threads.
const HUNG: usize = 128;

/// The places that hang, with the number of threads that are stuck in each. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Hung(Arc<Mutex<HashMap<Arc<str>, usize>>>);

impl Hung {
    /// Returns true if work on this place would hang.
    pub(super) fn has(&self, place: &str) -> bool {
        let hung = self.lock();
        let of_pool = || hung.keys().filter(|other| pool(other) == pool(place)).count();
        hung.contains_key(place) || hung.len() >= HUNG || of_pool() >= HUNG_PER_POOL
    }

    pub(super) fn enter(&self, place: &Arc<str>) {
        let mut hung = self.lock();
        let threads = hung.entry(Arc::clone(place)).or_default();
        if *threads == 0 {
            tracing::warn!(
                place = &**place,
                "a file system does not answer; it is not read until it does"
            );
        }
        *threads += 1;
    }

    pub(super) fn leave(&self, place: &Arc<str>) {
        let mut hung = self.lock();
        let Some(threads) = hung.get_mut(place) else { return };
        *threads -= 1;
        if *threads == 0 {
            hung.remove(place);
            tracing::info!(place = &**place, "a file system answers again; it is read");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Each change is one step, so a panic leaves a whole map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pool(place: &str) -> Option<&str> {
    place.trim_start_matches('/').split('/').next()
}
