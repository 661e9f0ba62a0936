// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules: what the node says × what NAPI says → what to do, with the evidence. Pure: no clock,
//! no I/O, no randomness. `compare` proposes; [`crate::apply`] reads each record again and asks the
//! same guards before a request.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tables;

mod compare;

mod decision;

pub(crate) mod reap;

pub(crate) mod own_nic;

pub(crate) mod upkeep;

pub(crate) mod candidate;

mod evidence;

mod reason;

mod guard;

mod wish;

mod verdict;

pub(crate) use compare::{Inputs, compare};
pub use decision::{Action, Decision, Plan};
pub use evidence::Evidence;
pub use guard::Guard;
pub use reason::{Reason, Refusal};
pub(crate) use upkeep::Upkeep;
pub use verdict::Verdict;
pub use wish::Wish;
