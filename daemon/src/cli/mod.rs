// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the command lines of all programs here have in common: where they print ([`screen`]), how
//! lists look ([`table`]), what is shown while something takes long ([`progress`]), and what each
//! program's argument parser is told in the same words ([`command_line!`](crate::command_line)).
//!
//! Nothing here parses arguments or knows what is listed.

mod grammar;
pub mod progress;
pub mod screen;
pub mod table;

pub use grammar::{misuse, valid_config};
pub use progress::Progress;
pub use screen::{Screen, Tone};
pub use table::{Cell, Layout, Table, UnknownColumn, facts};
