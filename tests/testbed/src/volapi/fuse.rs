// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What goes wrong, and at which step: each call of the service, to its storage or to another service, is a step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sdc_clients::http::Request;
use store::{Call, Fault, Faults};

/// What the service calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    Storage,
    /// VMAPI.
    Vmapi,
    Other,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process is killed before the call.
    Killed,
    /// The process is killed during a call to another service, which takes it up after the restart.
    KilledLate,
    /// The storage is away from here on.
    StorageAway,
    /// The storage does it and goes away before it answers.
    StorageLost,
    /// Another service cannot be reached, this once.
    PeerAway,
    /// Another service does it, and its answer is lost.
    PeerLost,
    /// VMAPI is away from here on.
    VmapiAway,
    /// VMAPI does it and goes away before it answers.
    VmapiLost,
}

impl Blow {
    /// All of them.
    pub const ALL: [Blow; 8] = [
        Blow::Killed,
        Blow::KilledLate,
        Blow::StorageAway,
        Blow::StorageLost,
        Blow::PeerAway,
        Blow::PeerLost,
        Blow::VmapiAway,
        Blow::VmapiLost,
    ];

    /// Returns at how many steps of a piece of work it can come at the least, given this for all but VMAPI's.
    pub fn least(self, others: usize) -> usize {
        if matches!(self, Blow::VmapiAway | Blow::VmapiLost) { 1 } else { others }
    }

    /// Returns true if the process ends by it.
    pub fn kills(self) -> bool {
        matches!(self, Blow::Killed | Blow::KilledLate)
    }
}

/// Counts steps down and blows.
#[derive(Debug, Default)]
pub struct Fuse {
    blow: Mutex<Option<Blow>>,
    left: AtomicUsize,
    late: Mutex<Vec<Request>>,
}

impl Fuse {
    /// One that never blows.
    pub fn none() -> Arc<Fuse> {
        Arc::default()
    }

    /// Blows at the step with this number, from 0.
    pub fn set(&self, blow: Blow, step: usize) {
        self.left.store(step, Ordering::Relaxed);
        *self.blow.lock().unwrap_or_else(PoisonError::into_inner) = Some(blow);
    }

    /// Takes the fuse out; returns true if it had blown.
    pub fn clear(&self) -> bool {
        self.blow.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.left.swap(0, Ordering::Relaxed) == usize::MAX
    }

    /// Keeps a request that a service takes up late.
    pub fn delay(&self, request: Request) {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    /// Returns the requests that services have yet to take up.
    pub fn take_late(&self) -> Vec<Request> {
        std::mem::take(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns what happens to the next call of this kind.
    pub fn next(&self, callee: Callee) -> Option<Blow> {
        let is_storage = callee == Callee::Storage;
        let blow = (*self.blow.lock().unwrap_or_else(PoisonError::into_inner))?;
        let counts = match blow {
            Blow::Killed => true,
            Blow::StorageAway | Blow::StorageLost => is_storage,
            Blow::KilledLate | Blow::PeerAway | Blow::PeerLost => !is_storage,
            Blow::VmapiAway | Blow::VmapiLost => callee == Callee::Vmapi,
        };
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            // It has blown. A killed process does nothing more, and what went away stays away.
            let lasts = match blow {
                Blow::Killed | Blow::KilledLate => Some(Blow::Killed),
                Blow::StorageAway | Blow::StorageLost if is_storage => Some(Blow::StorageAway),
                Blow::VmapiAway | Blow::VmapiLost if callee == Callee::Vmapi => {
                    Some(Blow::VmapiAway)
                }
                _ => None,
            };
            return lasts;
        }
        if !counts {
            return None;
        }
        if left == 0 {
            self.left.store(usize::MAX, Ordering::Relaxed);
            return Some(blow);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        None
    }
}

impl Faults for Fuse {
    fn next(&self, call: Call) -> Fault {
        match Fuse::next(self, Callee::Storage) {
            None => Fault::None,
            Some(Blow::StorageAway) => Fault::Before,
            Some(Blow::StorageLost) if call == Call::Commit => Fault::After,
            Some(Blow::StorageLost) => Fault::Before,
            Some(_) => Fault::Never,
        }
    }
}
