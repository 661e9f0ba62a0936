// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the allocator does with memory that was freed: gives it back to the system.
//!
//! Work on the whole node leaves tens of megabytes of small pieces that were freed between others
//! that stay, in a part of the heap of each thread that had a hand in it. The GNU allocator keeps
//! them for ever unless it is told; others (libumem, libc of illumos) know no such calls, and there
//! this does nothing. Must never do anything in a process that is not vminfod's own, like one that
//! simulates many.

use std::sync::atomic::{AtomicBool, Ordering};

/// This process is a daemon and nothing else.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Settles how this process keeps its memory: for the program, before it has other threads, not for
/// whoever runs a daemon inside of something else.
pub(crate) fn is_ours() {
    IS_OURS.store(true, Ordering::Relaxed);
    settle();
}

/// Gives back what is free, in a thread that may take its time. A thread that allocates meanwhile
/// waits for its own part of the heap, a millisecond or two.
pub(crate) fn give_back() {
    if IS_OURS.load(Ordering::Relaxed) {
        drop(tokio::task::spawn_blocking(trim));
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod gnu {
    use std::ffi::c_int;

    // The libc crate has the same declarations, only that calling them is unsafe there. Both
    // functions take numbers, may be called by any thread at any time (mallopt(3), malloc_trim(3)),
    // and touch nothing that is in use.
    #[allow(unsafe_code)]
    unsafe extern "C" {
        pub(super) safe fn mallopt(param: c_int, value: c_int) -> c_int;
        pub(super) safe fn malloc_trim(pad: usize) -> c_int;
    }

    /// How much may be free at the end of the heap.
    pub(super) const M_TRIM_THRESHOLD: c_int = -1;
    /// What is added to the heap beyond what is needed, and left to it when free memory goes back.
    pub(super) const M_TOP_PAD: c_int = -2;
    /// From which size on a piece is mapped by itself, and unmapped when it is freed.
    pub(super) const M_MMAP_THRESHOLD: c_int = -3;
    /// How many parts the heap may have.
    pub(super) const M_ARENA_MAX: c_int = -8;
}

/// How many parts the heap may have: what threads that share one wait for each other is a quarter of
/// a start, and what each more keeps is little since what is free is given back.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PARTS: std::ffi::c_int = 8;

/// The usual value of all three thresholds. Given once they are fixed; else they grow with the
/// largest piece freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const USUAL: std::ffi::c_int = 128 * 1024;

/// With how much room each part begins: it takes nothing until it is used. A part grows by a page at
/// a time otherwise, each by a call of the system that keeps all threads from theirs.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ROOM: std::ffi::c_int = 16 * 1024 * 1024;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn settle() {
    for (param, value) in [
        (gnu::M_ARENA_MAX, PARTS),
        (gnu::M_MMAP_THRESHOLD, USUAL),
        (gnu::M_TRIM_THRESHOLD, USUAL),
        (gnu::M_TOP_PAD, ROOM),
    ] {
        // What is refused stays as it was, which costs memory and nothing else.
        let _taken = gnu::mallopt(param, value);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    let began = tokio::time::Instant::now();
    // From now on free room at the end of a part goes back, too.
    let _taken = gnu::mallopt(gnu::M_TOP_PAD, USUAL);
    let gave = gnu::malloc_trim(0) != 0;
    tracing::debug!(gave, us = began.elapsed().as_micros() as u64, "free memory given back");
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn settle() {}

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
