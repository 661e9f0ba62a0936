// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What one sync has to do on both nodes: which datasets, which snapshots, which streams.
//!
//! The plan is made again after each of its steps from what both sides then show; an empty one is the end.
//! Snapshots are compared by GUID, never by name.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod rehearse;

mod plan;

mod shape;

mod act;

mod side;

mod datasets;

pub use act::{Act, Base, Capabilities, Refusal};
pub use datasets::{Disks, Mode, Sent, Vm, is_below, sent};
pub use plan::plan;
pub use rehearse::rehearse;
pub use shape::is_deep;
pub use side::{Notes, Row, Side, Token, snapshot_name};
