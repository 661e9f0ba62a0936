// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real programs, and the only code that spawns children: each has its own process group, a fixed
//! environment and no shell, and does not outlive the call that started it.

use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, empty, sink};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::error::CommandError;
use super::group::Group;
use super::lines::{self, LineSink};
use super::output::Output;
use super::program::{Paths, Program};
use super::seam::{Call, Commands, Input, Launch, Pipe, Pipes, Run, Running, complaints};

/// The most that one command may print.
const STDOUT_CAP: u64 = 256 * 1024 * 1024;
const SEARCH_PATH: &str = "/usr/bin:/usr/sbin:/bin:/sbin:/opt/smartdc/agents/bin";

/// Real processes.
#[derive(Debug, Clone)]
pub struct Spawned {
    paths: Paths,
    stdout_cap: u64,
}

impl Spawned {
    /// Programs at these paths.
    pub fn new(paths: Paths) -> Self {
        Spawned { paths, stdout_cap: STDOUT_CAP }
    }

    fn spawn(
        &self,
        program: Program,
        args: &[String],
        pipes: Pipes,
    ) -> Result<(Group, Input, Pipe, Pipe), CommandError> {
        let path = self.paths.of(program);
        let pipe = |is_piped| if is_piped { Stdio::piped() } else { Stdio::null() };
        #[allow(clippy::disallowed_methods)] // the one place that spawns
        let child = Command::new(path)
            .args(args)
            .env_clear()
            .env("LANG", "C")
            .env("LC_ALL", "C")
            .env("PATH", SEARCH_PATH)
            .stdin(pipe(pipes != Pipes::Out))
            .stdout(pipe(pipes != Pipes::In))
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let failed = |error| CommandError::Spawn { path: path.to_owned(), error: Arc::new(error) };
        let mut group = Group { child: child.map_err(failed)? };
        let child = &mut group.child;
        let stdin = child.stdin.take().map_or_else(|| Box::new(sink()) as Input, |it| Box::new(it));
        let stdout =
            child.stdout.take().map_or_else(|| Box::new(empty()) as Pipe, |it| Box::new(it));
        let stderr =
            child.stderr.take().map_or_else(|| Box::new(empty()) as Pipe, |it| Box::new(it));
        Ok((group, stdin, stdout, stderr))
    }

    /// Runs a command to its end, its stdout read by `printed`; kills it at the deadline or when its output
    /// is invalid.
    async fn complete<F>(
        &self,
        call: &Call,
        printed: impl FnOnce(Pipe) -> F,
    ) -> Result<Output, CommandError>
    where
        F: Future<Output = Result<Vec<u8>, CommandError>>,
    {
        let Call { program, args, input, deadline } = call;
        let (began, program, after) = (Instant::now(), *program, *deadline);
        let pipes = if input.is_empty() { Pipes::Out } else { Pipes::Both };
        let (mut group, stdin, stdout, stderr) = self.spawn(program, args, pipes)?;
        let work = finish(&mut group, (stdin, input), printed(stdout), async {
            let said = complaints(stderr).await;
            said.map_err(|e| CommandError::Io { program, error: Arc::new(e) })
        });
        let result = timeout(after, work).await;
        if !matches!(result, Ok(Ok(_))) {
            group.end().await;
        }
        let result = result.unwrap_or(Err(CommandError::Deadline { program, after }));
        // Without the input and the output, which may be long and secret.
        let (path, ms) = (self.paths.of(program).display(), began.elapsed().as_millis() as u64);
        let command = format_args!("{path} {}", args.join(" "));
        match &result {
            Ok(output) => tracing::debug!(%command, status = output.status, ms, "command ended"),
            Err(error) => tracing::debug!(%command, %error, ms, "command failed"),
        }
        result
    }
}

/// Feeds it and reads both pipes to their end, then reaps: until then the process group id cannot be reused,
/// and the group can be killed.
async fn finish(
    group: &mut Group,
    (mut stdin, input): (Input, &[u8]),
    printed: impl Future<Output = Result<Vec<u8>, CommandError>>,
    complaints: impl Future<Output = Result<Vec<u8>, CommandError>>,
) -> Result<Output, CommandError> {
    let feed = async move {
        // A program that needs no input closes it.
        let _ = stdin.write_all(input).await;
        Ok(())
    };
    let (stdout, stderr, ()) = tokio::try_join!(printed, complaints, feed)?;
    Ok(Output { status: group.status().await, stdout, stderr })
}

async fn whole(program: Program, stdout: Pipe, cap: u64) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let read = stdout.take(cap.saturating_add(1)).read_to_end(&mut bytes).await;
    read.map_err(|e| CommandError::Io { program, error: Arc::new(e) })?;
    if bytes.len() as u64 > cap {
        return Err(CommandError::TooMuch { program, cap });
    }
    Ok(bytes)
}

impl Commands for Spawned {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            self.complete(&call, |stdout| whole(call.program, stdout, self.stdout_cap)).await
        })
    }

    fn lines<'a>(&'a self, call: Call, each: LineSink<'a>) -> Run<'a> {
        Box::pin(async move {
            let (program, cap) = (call.program, self.stdout_cap);
            self.complete(&call, |stdout| lines::split(program, stdout, cap, each)).await
        })
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        let (mut group, stdin, stdout, stderr) =
            self.spawn(launch.program, &launch.args, launch.pipes)?;
        let end = Box::pin(async move { group.status().await });
        Ok(Running::new(stdout, stderr, end).with_stdin(stdin))
    }
}

#[cfg(test)]
mod tests;
