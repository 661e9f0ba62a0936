// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The one writer: an object, its sequence number and its event become visible in one step.
//!
//! Readers hold an immutable snapshot. Each VM object is serialised once, when it changes. Nothing here
//! reads the node.

mod writer;

mod published;

mod stored;

pub mod note;

pub use published::{Published, Snapshot};
pub use stored::{StoredVm, stored};
pub use writer::{Outcome, Store};
