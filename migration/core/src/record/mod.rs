// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The migration record: bucket `vmapi_vm_migrations`, version 2, with the fields of RFD 34 that the
//! deployed service lacks.
//!
//! A record that was read is written back with its fields in the order in which they came, and with
//! those that are not known here.

// Blank lines keep the modules in layer order.

#[cfg(test)]
mod tests;

mod lookup;

mod forms;

mod fields;

mod shape;

mod invalid;

mod states;

pub use fields::{Entry, EntryFields, Record, RecordFields, ReservedNic};
pub use invalid::{Fault, Invalid};
pub use lookup::{Filter, has_made_target, is_of_vm, is_on, is_over, newest, node_of};
pub use states::{Phase, State};
