// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform vminfod-http`.

use std::path::Path;
use std::process::ExitCode;

/// Compares with the recording at `path`.
pub fn run(_path: &Path, _flags: &[String]) -> ExitCode {
    eprintln!("testbed conform: vminfod-http is not built yet");
    ExitCode::from(super::NOT_BUILT)
}
