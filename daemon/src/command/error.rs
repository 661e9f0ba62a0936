// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a command did not do what it was run for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::quoted;

use super::output::Output;
use super::program::Program;

/// Why a command has no output, or a useless one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("cannot start {}: {error}", quoted(&path.to_string_lossy()))]
    Spawn {
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: Arc<std::io::Error>,
    },
    /// These commands have no such program that can be started and streamed.
    #[error("cannot follow the output of {0} on this platform")]
    NotHere(Program),
    /// It was killed because it took too long.
    #[error("{program} still ran after {} ms and was killed", after.as_millis())]
    Deadline {
        program: Program,
        /// The time it had.
        after: Duration,
    },
    /// It was killed because it printed too much.
    #[error("{program} printed more than {cap} bytes and was killed")]
    TooMuch {
        program: Program,
        /// The most that is accepted.
        cap: u64,
    },
    /// Its output could not be read.
    #[error("cannot read from {program}: {error}")]
    Io {
        program: Program,
        /// The error of the system.
        #[source]
        error: Arc<std::io::Error>,
    },
    /// It ended, and its status is not 0.
    #[error("{command}: {}", exit(output))]
    Exit {
        /// The program and its subcommand.
        command: String,
        /// How it ended.
        output: Output,
    },
}

/// What a command that failed complains of; its status where it does not.
pub(super) fn exit(output: &Output) -> String {
    match output.complaint() {
        text if text.is_empty() => format!("it ended with status {}", output.status),
        text => text,
    }
}
