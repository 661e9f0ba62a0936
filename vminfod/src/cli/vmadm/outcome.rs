// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a command prints and exits with.

use super::usage;
use crate::cli::supply::SupplyError;

/// The output of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// All bytes of stdout.
    pub stdout: String,
    /// All bytes of stderr.
    pub stderr: String,
    /// The exit status.
    pub code: u8,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It failed: one line, exit 1.
    Failed(String),
    /// Wrong arguments: an optional line, the usage text, exit 2.
    Usage(Option<String>),
}

impl Failure {
    /// A failure with this text.
    pub fn failed(text: impl Into<String>) -> Failure {
        Failure::Failed(text.into())
    }
}

impl From<SupplyError> for Failure {
    fn from(error: SupplyError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl Printed {
    /// The output for a result; the usage text names `program`.
    pub fn of(result: Result<String, Failure>, program: &str) -> Printed {
        match result {
            Ok(stdout) => Printed { stdout, ..Printed::default() },
            Err(Failure::Failed(text)) => Printed::failed(text + "\n", 1),
            Err(Failure::Usage(text)) => {
                let text = text.map(|text| text + "\n").unwrap_or_default();
                Printed::failed(text + &usage::vmadm(program), 2)
            }
        }
    }

    /// Nothing but this on stderr.
    pub fn failed(stderr: String, code: u8) -> Printed {
        Printed { stderr, code, ..Printed::default() }
    }
}
