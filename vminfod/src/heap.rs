// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Gives memory that was freed back to the system after work on the whole node.
//!
//! Such work leaves tens of megabytes of small pieces that were freed between others that stay. The
//! GNU allocator keeps them for ever unless it is told; others (libumem, libc of illumos) know no
//! such call, and there this does nothing. Must never do anything in a process that is not
//! vminfod's own, like one that simulates many.

use std::sync::atomic::{AtomicBool, Ordering};

/// This process is a daemon and nothing else.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Lets [`give_back`] do what it says: for the program, not for whoever runs a daemon inside of
/// something else.
pub fn is_ours() {
    IS_OURS.store(true, Ordering::Relaxed);
}

/// Gives back what is free, in a thread that may take its time. A thread that allocates meanwhile
/// waits for its own part of the heap, a millisecond or two.
pub(crate) fn give_back() {
    if IS_OURS.load(Ordering::Relaxed) {
        drop(tokio::task::spawn_blocking(trim));
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // The libc crate has the same declaration, only that calling it is unsafe there; the function
    // takes a number, may be called by any thread at any time, and touches nothing that is in use.
    #[allow(unsafe_code)]
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    let began = tokio::time::Instant::now();
    let gave = malloc_trim(0) != 0;
    tracing::debug!(gave, us = began.elapsed().as_micros() as u64, "free memory given back");
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays() {
        let kept: Vec<Vec<u8>> = (0..1000_usize).map(|n| vec![n as u8; n]).collect();
        drop((0..1000).map(|n| vec![0_u8; n]).collect::<Vec<_>>());
        trim();
        assert!(kept.iter().enumerate().all(|(n, own)| *own == vec![n as u8; n]));
    }
}
