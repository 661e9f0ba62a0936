// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The seam between the readers and the node's programs, real or not: which programs there are, what
//! a run of one returns, and why it may return nothing.
//!
//! Nothing here knows what the programs print.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A program of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    /// zoneadm(8)
    Zoneadm,
    /// zfs(8)
    Zfs,
    /// Prints the zone_misc kstats as JSON.
    Kstat,
    /// Prints sysevents as JSON lines.
    Sysevent,
    /// Watches the files that it is asked to, and prints their changes as JSON lines.
    Fswatcher,
}

impl Tool {
    /// The name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Zoneadm => "zoneadm",
            Tool::Zfs => "zfs",
            Tool::Kstat => "kstat",
            Tool::Sysevent => "sysevent",
            Tool::Fswatcher => "fswatcher",
        }
    }
}

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

/// Why a command has no output.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("cannot start {path:?}: {error}", path = path.display())]
    Spawn {
        /// The program.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: Arc<std::io::Error>,
    },
    /// These commands have no program that can be followed.
    #[error("{} cannot be followed here", _0.name())]
    NotHere(Tool),
    /// It was killed because it took too long.
    #[error("{} still ran after {} ms and was killed", tool.name(), after.as_millis())]
    Deadline {
        /// The program.
        tool: Tool,
        /// The time it had.
        after: Duration,
    },
    /// It was killed because it printed too much.
    #[error("{} printed more than {cap} bytes and was killed", tool.name())]
    TooMuch {
        /// The program.
        tool: Tool,
        /// The most that is accepted.
        cap: u64,
    },
    /// Its output could not be read.
    #[error("cannot read from {}: {error}", tool.name())]
    Io {
        /// The program.
        tool: Tool,
        /// The error of the system.
        #[source]
        error: Arc<std::io::Error>,
    },
}

/// A command that runs to its end.
pub type Run<'a> = BoxFuture<'a, Result<Output, CommandError>>;

/// Takes the lines of a command.
pub type LineSink<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// The seam between the loader and the node's programs.
pub trait Commands: Send + Sync {
    /// Runs a command to its end.
    fn run(&self, tool: Tool, args: Vec<String>, deadline: Duration) -> Run<'_>;

    /// Runs a command to its end and calls `each` with each line, without its newline. The stdout of
    /// the [`Output`] is what follows the last newline: not empty if the listing was truncated. The
    /// lines are valid only if the exit status is 0.
    fn lines<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
        each: LineSink<'a>,
    ) -> Run<'a> {
        Box::pin(async move {
            let mut output = self.run(tool, args, deadline).await?;
            let whole =
                output.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = output.stdout.split_off(whole);
            let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
            lines.map(|line| line.strip_suffix(b"\n").unwrap_or(line)).for_each(each);
            Ok(Output { stdout: rest, ..output })
        })
    }

    /// Starts a command that runs until it is dropped.
    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.inner().map_or(Err(CommandError::NotHere(tool)), |inner| inner.follow(tool, args))
    }

    /// Starts a command that also reads requests; it runs until one of the ends is dropped.
    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        self.inner().map_or(Err(CommandError::NotHere(tool)), |inner| inner.converse(tool, args))
    }

    /// Returns the commands that a decorator changes the runs of: they are followed as they are.
    fn inner(&self) -> Option<&dyn Commands> {
        None
    }
}

/// The output of a running command.
pub type Pipe = Box<dyn AsyncRead + Send + Unpin>;

/// The end to which requests are written.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// A running command; dropping it kills its whole process group.
pub struct Follow {
    /// Its stdout.
    pub stdout: Pipe,
    /// Its stderr.
    pub stderr: Pipe,
    end: BoxFuture<'static, i32>,
}

impl Follow {
    /// For commands that are not processes: `end` resolves to the exit status, and its drop stops them.
    pub fn new(stdout: Pipe, stderr: Pipe, end: BoxFuture<'static, i32>) -> Self {
        Follow { stdout, stderr, end }
    }

    /// Waits for the end of the command and returns its exit status.
    pub async fn wait(&mut self) -> i32 {
        (&mut self.end).await
    }
}
