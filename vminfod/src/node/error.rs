// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a source could not be read: always the source, its file if it has one, and what was expected.

use std::path::PathBuf;

use daemon::command::{CommandError, Output};
use vm_model::origin::{Origin, ParseError};

use super::root::ReadError;

/// A reading that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{}: {fault}", origin.name(), path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default())]
pub struct LoadError {
    pub origin: Origin,
    /// The file, if the source is one.
    pub path: Option<PathBuf>,
    /// What it failed on.
    #[source]
    pub fault: Fault,
}

/// Why a reading failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// The file could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The file has to exist and does not.
    #[error("no such file")]
    Absent,
    /// The command has no output.
    #[error(transparent)]
    Command(CommandError),
    /// The command failed.
    #[error("exit status {status}: {complaint}")]
    Exit {
        /// Its exit status.
        status: i32,
        /// What it wrote to standard error.
        complaint: String,
    },
    /// The content is not as expected.
    #[error(transparent)]
    Parse(vm_model::origin::Fault),
}

impl LoadError {
    /// A fault of a source.
    pub fn new(origin: Origin, fault: Fault) -> Self {
        LoadError { origin, path: None, fault }
    }

    /// A command that failed.
    pub(super) fn exit(origin: Origin, output: &Output) -> Self {
        let fault = Fault::Exit { status: output.status, complaint: output.complaint() };
        LoadError::new(origin, fault)
    }

    /// A source whose content is wrong as a whole.
    pub(super) fn content(origin: Origin, what: impl Into<String>) -> Self {
        ParseError::content(origin, what).into()
    }

    /// The same fault, in this file.
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The source's name.
    pub fn source_name(&self) -> &'static str {
        self.origin.name()
    }

    /// Returns true if the file it needs does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.fault, Fault::Absent)
    }
}

impl From<ParseError> for LoadError {
    fn from(error: ParseError) -> Self {
        LoadError::new(error.origin, Fault::Parse(error.fault))
    }
}
