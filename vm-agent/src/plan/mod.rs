// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What follows from what the node says and what VMAPI says. Pure.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod start;

mod judge;

mod crowd;

mod compare;

mod record;

mod reason;

pub use crowd::{Blocked, Crowd, STRANGERS};
pub use judge::{Decision, Judge, LASTS, Reading, named, passing};
pub use reason::Reason;
pub use record::Record;
pub use start::Start;
