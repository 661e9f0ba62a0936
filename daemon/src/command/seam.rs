// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The seam between what our programs decide and the node's programs.
//!
//! A simulated node stands behind this trait as well as a real one, so whatever decides about a node can be run with
//! every fault and without root. Nothing else of a program knows which of the two it is on.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::error::{self, CommandError};
use super::lines::LineSink;
use super::output::Output;
use super::program::Program;

/// Bytes of stderr that are kept.
pub(super) const STDERR_KEPT: u64 = 16 * 1024;

/// A run of a program to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub program: Program,
    pub args: Vec<String>,
    /// What it reads from its stdin; it may be secret.
    pub input: Vec<u8>,
    /// After this time it is killed.
    pub deadline: Duration,
}

impl Call {
    /// A run without input.
    pub fn new(program: Program, args: Vec<String>, deadline: Duration) -> Self {
        Call { program, args, input: Vec::new(), deadline }
    }

    /// The same with this on its stdin.
    #[must_use]
    pub fn with_input(self, input: Vec<u8>) -> Self {
        Call { input, ..self }
    }
}

/// A run of a program that goes on until it ends or is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub program: Program,
    pub args: Vec<String>,
    pub pipes: Pipes,
}

impl Launch {
    pub fn new(program: Program, args: Vec<String>, pipes: Pipes) -> Self {
        Launch { program, args, pipes }
    }
}

/// A command that runs to its end.
pub type Run<'a> = BoxFuture<'a, Result<Output, CommandError>>;

/// The seam. Doubles of a node's programs implement [`Commands::run`] and, where they can be streamed,
/// [`Commands::start`]; decorators say what they decorate.
pub trait Commands: Send + Sync {
    /// Runs a command to its end. An error means that nothing of it runs on.
    fn run(&self, call: Call) -> Run<'_>;

    /// Runs a command to its end and calls `each` with each line, without its newline. The stdout of
    /// the [`Output`] is what follows the last newline: not empty if the listing was truncated. The
    /// lines are valid only if the exit status is 0.
    fn lines<'a>(&'a self, call: Call, each: LineSink<'a>) -> Run<'a> {
        Box::pin(async move {
            let mut output = self.run(call).await?;
            let whole =
                output.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = output.stdout.split_off(whole);
            let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
            lines.map(|line| line.strip_suffix(b"\n").unwrap_or(line)).for_each(each);
            Ok(Output { stdout: rest, ..output })
        })
    }

    /// Starts a command that runs until it ends or is dropped.
    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        let none = Err(CommandError::NotHere(launch.program));
        self.inner().map_or(none, |inner| inner.start(launch))
    }

    /// Returns the commands that a decorator changes the runs of: they are started as they are.
    fn inner(&self) -> Option<&dyn Commands> {
        None
    }
}

/// Which pipes a running command has besides its stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipes {
    /// It reads a stream.
    In,
    Out,
    /// It reads requests and prints.
    Both,
}

/// The end of a pipe from which output is read.
pub type Pipe = Box<dyn AsyncRead + Send + Unpin>;

/// The end of a pipe to which input is written.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// A running command; dropping it, or the future of its end, kills its whole process group.
pub struct Running {
    pub stdin: Input,
    pub stdout: Pipe,
    pub stderr: Pipe,
    end: BoxFuture<'static, i32>,
}

impl Running {
    /// A command that reads nothing. `end` resolves to the exit status, and its drop stops the command.
    pub fn new(stdout: Pipe, stderr: Pipe, end: BoxFuture<'static, i32>) -> Self {
        Running { stdin: Box::new(tokio::io::sink()), stdout, stderr, end }
    }

    /// The same with this as its stdin.
    #[must_use]
    pub fn with_stdin(self, stdin: Input) -> Self {
        Running { stdin, ..self }
    }

    /// Waits for the end of the command and returns its exit status.
    pub async fn wait(&mut self) -> i32 {
        (&mut self.end).await
    }

    /// Returns its stdin, its stdout, and how it ends: what it complains of, where its status is not 0.
    pub fn split(self) -> (Input, Pipe, impl Future<Output = Result<(), String>> + Send + 'static) {
        let Running { stdin, stdout, stderr, end } = self;
        let ended = async move {
            let stderr = complaints(stderr).await.map_err(|error| error.to_string())?;
            let output = Output { status: end.await, stdout: Vec::new(), stderr };
            if output.status == 0 { Ok(()) } else { Err(error::exit(&output)) }
        };
        (stdin, stdout, ended)
    }
}

/// Reads a stderr to its end and returns its beginning.
pub(super) async fn complaints(stderr: Pipe) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut kept = stderr.take(STDERR_KEPT);
    kept.read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut kept.into_inner(), &mut tokio::io::sink()).await?;
    Ok(bytes)
}
