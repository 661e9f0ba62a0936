// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The failures of vminfod's own commands, and their exit status.

use std::io;
use std::process::ExitCode;

use daemon::cli::UnknownColumn;
use daemon::{ConfigError, exit};

use super::stream::StreamEnd;
use super::supply::SupplyError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The daemon or the node could not be read.
    #[error(transparent)]
    Supply(#[from] SupplyError),
    /// The stream of events ended.
    #[error(transparent)]
    Stream(#[from] StreamEnd),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// An unknown column.
    #[error(transparent)]
    Column(#[from] UnknownColumn),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// Stdout or a file cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl Problem {
    /// Prints it as one line and returns the exit status. A closed stdout is not a failure.
    pub fn report(&self, program: &str) -> ExitCode {
        match self {
            Problem::Write(error) | Problem::Stream(StreamEnd::Write(error))
                if error.kind() == io::ErrorKind::BrokenPipe =>
            {
                ExitCode::SUCCESS
            }
            Problem::Supply(SupplyError::Refused(url))
            | Problem::Stream(StreamEnd::Supply(SupplyError::Refused(url))) => {
                eprintln!("{program}: vminfod is not running: nothing answers on {url}");
                ExitCode::from(exit::FAILED)
            }
            Problem::Config(_) | Problem::Usage(_) | Problem::Column(_) => {
                exit::report(program, self, exit::USAGE)
            }
            _ => exit::report(program, self, exit::FAILED),
        }
    }
}
