// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The result of a finished command.

/// The result of a finished command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 + signal for a command that was killed.
    pub status: i32,
    /// Everything it printed.
    pub stdout: Vec<u8>,
    /// The beginning of its stderr.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns stderr as one line.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().replace('\n', "; ")
    }
}
