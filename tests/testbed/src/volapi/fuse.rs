// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What goes wrong, and at which step: each call of the service, to its storage or to another service, is a step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdc_clients::http::Request;
use store::{Call, Fault, Faults};

use crate::faults::{Moment, Plan, Planned};

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

/// Counts steps and blows.
#[derive(Debug, Default)]
pub struct Fuse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    plan: Plan<usize, Blow>,
    /// What it is set to.
    blow: Option<Blow>,
    /// The steps so far that count for it.
    steps: usize,
    late: Vec<Request>,
}

impl Fuse {
    /// One that never blows.
    pub fn none() -> Arc<Fuse> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blows at the step with this number, from 0.
    pub fn set(&self, blow: Blow, step: usize) {
        let planned = Planned { at: step, moment: Moment::Before, fault: blow };
        let mut state = self.state();
        (state.plan, state.blow, state.steps) = (Plan::new(vec![planned]), Some(blow), 0);
    }

    /// Takes the fuse out; returns true if it had blown.
    pub fn clear(&self) -> bool {
        let mut state = self.state();
        state.blow = None;
        std::mem::take(&mut state.plan).happened() > 0
    }

    /// Keeps a request that a service takes up late.
    pub fn delay(&self, request: Request) {
        self.state().late.push(request);
    }

    /// Returns the requests that services have yet to take up.
    pub fn take_late(&self) -> Vec<Request> {
        std::mem::take(&mut self.state().late)
    }

    /// Returns what happens to the next call of this kind.
    pub fn next(&self, callee: Callee) -> Option<Blow> {
        let is_storage = callee == Callee::Storage;
        let mut state = self.state();
        let blow = state.blow?;
        if state.plan.is_over() {
            // It has blown. A killed process does nothing more, and what went away stays away.
            return match blow {
                Blow::Killed | Blow::KilledLate => Some(Blow::Killed),
                Blow::StorageAway | Blow::StorageLost if is_storage => Some(Blow::StorageAway),
                Blow::VmapiAway | Blow::VmapiLost if callee == Callee::Vmapi => {
                    Some(Blow::VmapiAway)
                }
                _ => None,
            };
        }
        let counts = match blow {
            Blow::Killed => true,
            Blow::StorageAway | Blow::StorageLost => is_storage,
            Blow::KilledLate | Blow::PeerAway | Blow::PeerLost => !is_storage,
            Blow::VmapiAway | Blow::VmapiLost => callee == Callee::Vmapi,
        };
        if !counts {
            return None;
        }
        let step = state.steps;
        state.steps += 1;
        state.plan.meet(&step, Moment::Before).pop()
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
