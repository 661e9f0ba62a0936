// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Work on many things, several at a time.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A run on a clock of its own often waits for a thread that reads a file: two for each processor keep it busy.
const EACH: usize = 2;

/// Does the work on each, several at a time. Returns the results in order.
pub(crate) fn in_parallel<T: Sync, R: Send>(each: &[T], work: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..processors * EACH {
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

/// Does the work on each, several at a time. Returns how many did not hold.
pub(crate) fn failed_in_parallel<T: Sync>(each: &[T], holds: &(dyn Fn(&T) -> bool + Sync)) -> u64 {
    in_parallel(each, holds).into_iter().map(|held| u64::from(!held)).sum()
}
