// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sender's end of a sync.

// Blank lines keep the modules in layer order.

mod rehearse;

mod send;

mod streams;

mod talk;

pub use rehearse::rehearse;
pub use send::{send, send_image, sent};
