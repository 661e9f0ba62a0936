// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Work on many things, two at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does the work on each, two at a time. Returns the results in order.
pub(crate) fn in_pairs<T: Sync, R: Send>(each: &[T], work: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = each.get(at) else { return };
                    let result = work(one);
                    done.lock().expect("invariant: no thread panics with it").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("invariant: no thread panics with it");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Does the work on each, two at a time. Returns how many did not hold.
pub(crate) fn failed_in_pairs<T: Sync>(each: &[T], holds: &(dyn Fn(&T) -> bool + Sync)) -> u64 {
    in_pairs(each, holds).into_iter().map(|held| u64::from(!held)).sum()
}
