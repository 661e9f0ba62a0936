// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state machine: which action is taken when, and what its next step is.
//!
//! An operation is done in rounds, each of which can be the last one that a service lives to do:
//!
//! 1. store the record with its revision raised (compare and swap: a service that lost its lease ends here),
//! 2. watch both nodes, VMAPI and NAPI with that revision; a node that receives it refuses older orders,
//! 3. [`next`] returns what follows: a note for the intent, which is stored, or one order, or the end.
//!
//! Nothing is remembered between rounds but the record, so that any service can do the next one.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod admit;

mod refusal;

mod action;

mod rest;

mod outcome;

mod decide;

mod next;

mod fence;

mod facts;

pub use action::{Action, Call};
pub use admit::{Admitted, admit};
pub use facts::{Copy, Facts, Node, Protection, Report, SettingsMatch, Snapshot, both};
pub use fence::{MayBoot, MayDelete, MayMove, MayShow, Unsafe};
pub use next::{Ending, Next, Note, Reason, Step, Wait};
pub use outcome::{After, follow, give_up, may_be_over, note, queue, rescue, settle, stall, start};
pub use refusal::Refusal;
pub use rest::{next, rest};
