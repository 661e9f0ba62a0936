// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed storm`, `testbed chaos` and `testbed soak`: a node that changes all the time, and three questions about it.

// Blank lines keep the modules in layer order.

pub mod chaos; // anything at once, and then one truth, with processes or in simulated time

pub mod soak; // what grows over time

pub mod storm; // thousands of changes while listeners come and go

mod hands; // who changes the node

mod listen; // who listens to it

use std::ffi::OsString;
use std::process::ExitCode;

/// What is asked of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Does every listener see each change once and in order?
    Storm,
    /// Does an old daemon show what a fresh one shows, whatever happened?
    Chaos,
    /// Does anything grow in the daemons?
    Soak,
}

/// Runs the command of a question with these arguments.
pub fn run(question: Question, args: &[OsString]) -> ExitCode {
    match question {
        Question::Storm => storm::run(args),
        Question::Chaos => chaos::run(args),
        Question::Soak => soak::run(args),
    }
}
