// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mass-delete brake (G10): how it is measured, what it blocks, and what the operator has
//! approved against it.

// Blank lines keep the modules in layer order.

mod ledger;

mod scale;

pub use daemon::brake::Reference;
pub use ledger::{Brake, BrakeOf, Deletes};
#[cfg(test)]
pub use scale::Recent;
pub use scale::{Clearance, Scale, Tripped};
