// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with these arguments.
pub fn run(_args: impl Iterator<Item = OsString>) -> ExitCode {
    eprintln!("kvmd: not built yet");
    ExitCode::from(daemon::exit::FAILED)
}
