// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The only code that spawns children: each has its own process group, a fixed environment, no stdin
//! and no shell, and does not outlive the call that started it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::lines;
use super::seam::{CommandError, Commands, Follow, Input, LineSink, Output, Pipe, Run, Tool};

/// The most that one command may print.
const STDOUT_CAP: u64 = 256 * 1024 * 1024;
/// Bytes of stderr that are kept.
const STDERR_KEPT: u64 = 16 * 1024;
const SEARCH_PATH: &str = "/usr/bin:/usr/sbin:/bin:/sbin";

/// The paths of the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPaths {
    /// zoneadm(8)
    pub zoneadm: PathBuf,
    /// zfs(8)
    pub zfs: PathBuf,
    /// The program behind [`Tool::Kstat`].
    pub kstat: PathBuf,
    /// The program behind [`Tool::Sysevent`].
    pub sysevent: PathBuf,
    /// The program behind [`Tool::Fswatcher`].
    pub fswatcher: PathBuf,
}

impl Default for CommandPaths {
    fn default() -> Self {
        CommandPaths {
            zoneadm: "/usr/sbin/zoneadm".into(),
            zfs: "/usr/sbin/zfs".into(),
            kstat: "/usr/vm/sbin/zone-kstats".into(),
            sysevent: "/usr/sbin/sysevent".into(),
            fswatcher: "/usr/vm/sbin/fswatcher".into(),
        }
    }
}

/// Real processes.
#[derive(Debug, Clone)]
pub struct RealCommands {
    paths: CommandPaths,
    stdout_cap: u64,
}

impl RealCommands {
    /// Commands at these paths.
    pub fn new(paths: CommandPaths) -> Self {
        RealCommands { paths, stdout_cap: STDOUT_CAP }
    }

    fn path(&self, tool: Tool) -> &Path {
        match tool {
            Tool::Zoneadm => &self.paths.zoneadm,
            Tool::Zfs => &self.paths.zfs,
            Tool::Kstat => &self.paths.kstat,
            Tool::Sysevent => &self.paths.sysevent,
            Tool::Fswatcher => &self.paths.fswatcher,
        }
    }

    /// Logs the command line without the output, which may be long and secret.
    fn log(
        &self,
        tool: Tool,
        args: &[String],
        began: Instant,
        result: &Result<Output, CommandError>,
    ) {
        let (path, ms) = (self.path(tool).display(), began.elapsed().as_millis() as u64);
        let command = format_args!("{path} {}", args.join(" "));
        match result {
            Ok(output) => tracing::debug!(%command, status = output.status, ms, "command ended"),
            Err(error) => tracing::debug!(%command, %error, ms, "command failed"),
        }
    }

    fn start(&self, tool: Tool, args: &[String]) -> Result<(Group, Pipe, Pipe), CommandError> {
        let mut group = spawn(self.path(tool), args.iter().map(String::as_str), Stdio::null())?;
        let (out, err) = group.pipes();
        Ok((group, out, err))
    }
}

fn spawn<'a>(
    path: &Path,
    args: impl Iterator<Item = &'a str>,
    stdin: Stdio,
) -> Result<Group, CommandError> {
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    let child = Command::new(path)
        .args(args)
        .env_clear()
        .env("LANG", "C")
        .env("LC_ALL", "C")
        .env("PATH", SEARCH_PATH)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| CommandError::Spawn { path: path.to_path_buf(), error: Arc::new(e) })?;
    Ok(Group { child })
}

impl Commands for RealCommands {
    fn run(&self, tool: Tool, args: Vec<String>, deadline: Duration) -> Run<'_> {
        Box::pin(async move {
            let began = Instant::now();
            let (group, stdout, stderr) = self.start(tool, &args)?;
            let cap = self.stdout_cap;
            let printed = async move {
                let mut bytes = Vec::new();
                let read = stdout.take(cap.saturating_add(1)).read_to_end(&mut bytes).await;
                read.map_err(|e| CommandError::Io { tool, error: Arc::new(e) })?;
                if bytes.len() as u64 > cap {
                    return Err(CommandError::TooMuch { tool, cap });
                }
                Ok(bytes)
            };
            let result = within(tool, deadline, group, printed, stderr).await;
            self.log(tool, &args, began, &result);
            result
        })
    }

    fn lines<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
        each: LineSink<'a>,
    ) -> Run<'a> {
        Box::pin(async move {
            let began = Instant::now();
            let (group, stdout, stderr) = self.start(tool, &args)?;
            let printed = lines::split(tool, stdout, self.stdout_cap, each);
            let result = within(tool, deadline, group, printed, stderr).await;
            self.log(tool, &args, began, &result);
            result
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        let (mut group, stdout, stderr) = self.start(tool, &args)?;
        Ok(Follow::new(stdout, stderr, Box::pin(async move { group.status().await })))
    }

    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        let args = args.iter().map(String::as_str);
        let mut group = spawn(self.path(tool), args, Stdio::piped())?;
        let (out, err) = group.pipes();
        let input = group.child.stdin.take().expect("invariant: the pipe was asked for");
        let end = Box::pin(async move { group.status().await });
        Ok((Follow::new(out, err, end), Box::new(input)))
    }
}

/// Waits for the end of a command; kills it at the deadline or when its output is invalid.
async fn within(
    tool: Tool,
    deadline: Duration,
    mut group: Group,
    printed: impl Future<Output = Result<Vec<u8>, CommandError>>,
    stderr: Pipe,
) -> Result<Output, CommandError> {
    let work = finish(tool, &mut group, printed, stderr);
    let result = tokio::time::timeout(deadline, work).await;
    if !matches!(result, Ok(Ok(_))) {
        group.end().await;
    }
    result.unwrap_or(Err(CommandError::Deadline { tool, after: deadline }))
}

/// Reads both pipes to their end, then reaps: until then the process group id cannot be reused, and the
/// group can be killed.
async fn finish(
    tool: Tool,
    group: &mut Group,
    printed: impl Future<Output = Result<Vec<u8>, CommandError>>,
    stderr: Pipe,
) -> Result<Output, CommandError> {
    let complaints = async {
        let mut bytes = Vec::new();
        let mut kept = stderr.take(STDERR_KEPT);
        let read = kept.read_to_end(&mut bytes).await.map(|_| ());
        let mut rest = kept.into_inner();
        let drained = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
        match read.and(drained.map(|_| ())) {
            Ok(()) => Ok(bytes),
            Err(e) => Err(CommandError::Io { tool, error: Arc::new(e) }),
        }
    };
    let (stdout, stderr) = tokio::try_join!(printed, complaints)?;
    Ok(Output { status: group.status().await, stdout, stderr })
}

/// A child that leads a process group of its own.
struct Group {
    child: Child,
}

impl Group {
    fn pipes(&mut self) -> (Pipe, Pipe) {
        let pipes = self.child.stdout.take().zip(self.child.stderr.take());
        let (out, err) = pipes.expect("invariant: both pipes were asked for");
        (Box::new(out), Box::new(err))
    }

    async fn status(&mut self) -> i32 {
        self.child.wait().await.map_or(-1, code)
    }

    /// Kills and reaps.
    async fn end(&mut self) {
        self.kill();
        self.status().await;
    }

    fn kill(&self) {
        // No id means that the leader was reaped: another group may have the id by now.
        let leader = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(leader) = leader {
            // It fails only if no process is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(-1)
}

#[cfg(test)]
mod tests;
