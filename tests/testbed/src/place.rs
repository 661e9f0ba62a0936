// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where simulated nodes keep their files.

use std::io;
use std::path::Path;

/// Returns a new directory, in memory where the system has such a place: nothing then waits for a
/// disk, and thousands of runs each have their own.
pub fn place() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir())
}
