// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Parts → VM object: a pure function.
//!
//! The fields have the order in which they are first set. A later step that sets a field again
//! replaces its value in the same place.

pub mod origin;

mod zone;

mod fields;

mod disks;

mod nics;

mod rules;

#[cfg(test)]
mod tests;

pub use zone::{compose, outline};
