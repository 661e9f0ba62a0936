// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the command lines of all programs here have in common: where they print ([`screen`]), how
//! lists look ([`table`]), what is shown while something takes long ([`progress`]), and what each
//! program's grammar has in common with the others' ([`ListArgs`], [`parse`], [`completions`], [`man`]).
//!
//! Nothing here knows what the commands are, or what is listed.

mod grammar;
pub mod progress;
pub mod screen;
pub mod table;

pub use clap_complete::Shell;
pub use grammar::{ListArgs, completions, man, misuse, parse, valid_config};
pub use progress::Progress;
pub use screen::{Screen, Tone};
pub use table::{Cell, Layout, Table, UnknownColumn, facts};
