// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! (being written)

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `testbed fuzz`; the arguments start after that word.
pub fn run(_args: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}
