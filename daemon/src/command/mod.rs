// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The one way to run a program: the seam between what our programs decide and the node's programs, and
//! the real ones behind it. Nothing here knows what the programs print.
//!
//! A program that is run has an end: at its deadline its whole process group is killed, and the error is
//! returned when no process of the group is left. "It was not done" then means that it will not be done
//! later either.

mod spawned; // the real programs

mod group; // the process group of a program

mod seam; // what is asked of a program, and the trait that asks it

mod lines; // the lines that a program prints

mod error; // why a program did not do it

mod output; // what a finished program left

mod program; // the programs of a node, and where they are

pub use error::CommandError;
pub use lines::LineSink;
pub use output::Output;
pub use program::{Paths, Program};
pub use seam::{Call, Commands, Input, Launch, Pipe, Pipes, Run, Running};
pub use spawned::Spawned;
