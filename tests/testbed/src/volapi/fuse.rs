// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What goes wrong, and at which step: each call of the service, to its storage or to another service, is a step.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdc_clients::http::Request;
use store::{Call, Fault as StoreFault, Faults};

use crate::faults::{Fault, Moment, Plan, Planned};

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Volapi,
    Storage,
    Vmapi,
    /// Another service.
    Peer,
}

/// What goes wrong with a call, before it is done or after.
pub type Blow = (Moment, Fault<Who>);

/// The process is killed before the call.
pub const KILLED: Blow = (Moment::Before, Fault::Dies(Who::Volapi));
/// The process is killed during a call to another service, which takes it up after the restart.
pub const KILLED_LATE: Blow = (Moment::Before, Fault::Late);
/// Another service cannot be reached, this once.
pub const PEER_AWAY: Blow = (Moment::Before, Fault::Loses);
/// The storage is away from here on.
pub const STORAGE_AWAY: Blow = (Moment::Before, Fault::Away(Who::Storage));

/// All of them.
pub const ALL: [Blow; 8] = [
    KILLED,
    KILLED_LATE,
    STORAGE_AWAY,
    (Moment::After, Fault::Away(Who::Storage)),
    PEER_AWAY,
    (Moment::After, Fault::Loses),
    (Moment::Before, Fault::Away(Who::Vmapi)),
    (Moment::After, Fault::Away(Who::Vmapi)),
];

/// Counts steps and blows.
#[derive(Debug, Default)]
pub struct Fuse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    plan: Plan<usize, Fault<Who>>,
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
        let planned = Planned { at: step, moment: blow.0, fault: blow.1 };
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

    /// Returns what happens to the next call of this one.
    pub fn next(&self, callee: Who) -> Option<Blow> {
        let mut state = self.state();
        let (moment, fault) = state.blow?;
        if state.plan.is_over() {
            // It has blown. A killed process does nothing more, and what went away stays away.
            return match fault {
                Fault::Dies(_) | Fault::Late => Some(KILLED),
                Fault::Away(who) if who == callee => Some((Moment::Before, fault)),
                _ => None,
            };
        }
        let counts = match fault {
            Fault::Dies(_) => true,
            Fault::Away(who) => who == callee,
            _ => callee != Who::Storage,
        };
        if !counts {
            return None;
        }
        let step = state.steps;
        state.steps += 1;
        Some((moment, state.plan.meet(&step, moment).pop()?))
    }
}

impl Faults for Fuse {
    fn next(&self, call: Call) -> StoreFault {
        match Fuse::next(self, Who::Storage) {
            None => StoreFault::None,
            Some((Moment::After, Fault::Away(_))) if call == Call::Commit => StoreFault::After,
            Some((_, Fault::Away(_))) => StoreFault::Before,
            Some(_) => StoreFault::Never,
        }
    }
}
