// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the node: its files below one root, its programs behind one trait. Reading decides nothing:
//! it does not retry and keeps no state.

pub mod load;

pub mod read;

mod ctx;

mod error;

pub mod blocking;

pub mod root;

mod hung;

#[cfg(test)]
pub(crate) mod scripted;

pub use ctx::{Ctx, Deadlines};
pub use error::{Fault, LoadError};
