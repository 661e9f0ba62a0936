// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What people and tools see while a migration runs: marks in the history, bytes of a stream, the events
//! of a watch.

// Blank lines keep the modules in layer order.

mod watch;

mod meter;

mod marks;

pub use marks::{advance, mark};
pub use meter::{Bytes, Meter};
pub use watch::{Latest, Watch};
