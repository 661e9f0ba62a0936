// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs send` and `zfs receive`: the same streams for processes and in process.

mod arriving; // the snapshot that is being received
pub mod fault; // streams that fail on purpose
mod partial; // what is kept of an interrupted receive
pub mod receive; // `zfs receive`
pub mod send; // `zfs send`

pub use partial::token;

#[cfg(test)]
mod tests;
