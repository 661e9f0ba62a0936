// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of the node: a trait, and the real ones behind it.

mod real;

mod lines;

mod seam;

pub use real::{CommandPaths, RealCommands};
pub use seam::{CommandError, Commands, Follow, Input, LineSink, Output, Pipe, Run, Tool};
