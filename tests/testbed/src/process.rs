// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Child processes; no other module of the testbed starts any. Their output is read line by line,
//! they are asked to stop before they are killed, and they end with the testbed.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child as Inner, Command};
use tokio::sync::mpsc;

/// How many lines of a child may wait to be read before it has to wait itself.
const LINES: usize = 1024;

/// A running child.
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: Inner,
    lines: mpsc::Receiver<String>,
}

/// What a program that ran to its end said.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status, `None` when a signal ended it.
    pub code: Option<i32>,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
}

#[allow(clippy::disallowed_methods)] // The one place of the testbed where children are made.
fn command(program: &Path) -> Command {
    Command::new(program)
}

/// Runs a program to its end, at most `deadline`; then it is killed and this is an error.
pub async fn run<S: AsRef<OsStr>>(
    program: &Path,
    args: &[S],
    deadline: Duration,
) -> io::Result<Finished> {
    let mut command = command(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(deadline, command.output()).await.map_err(|_| {
        let text = format!("{} did not end within {deadline:?}", program.display());
        io::Error::new(io::ErrorKind::TimedOut, text)
    })??;
    Ok(Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Child {
    /// Starts a program; `name` is for messages. Its stdout and stderr come as [`Child::line`]s.
    pub fn spawn<S: AsRef<OsStr>>(name: &str, program: &Path, args: &[S]) -> io::Result<Self> {
        let mut inner = command(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (sender, lines) = mpsc::channel(LINES);
        if let Some(stdout) = inner.stdout.take() {
            tokio::spawn(forward(stdout, sender.clone()));
        }
        if let Some(stderr) = inner.stderr.take() {
            tokio::spawn(forward(stderr, sender));
        }
        Ok(Self { name: name.to_owned(), inner, lines })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.inner.id()
    }

    /// The next line it printed; `None` when it has closed its output. Cancel-safe.
    pub async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// The next line of its log with this message; an error with its last words when it ends.
    pub async fn said(&mut self, msg: &str) -> io::Result<Value> {
        let mut last = String::from("nothing");
        while let Some(line) = self.line().await {
            match serde_json::from_str::<Value>(&line) {
                Ok(entry) if entry["msg"] == msg => return Ok(entry),
                _ => last = line,
            }
        }
        Err(io::Error::other(format!("{} ended, not saying {msg:?} but {last}", self.name)))
    }

    /// Lets it print what it likes from now on: nobody reads it.
    pub fn ignore(&mut self) {
        let mut lines = self.take_lines();
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
    }

    /// Takes the lines away, for a task that reads them for as long as the child lives.
    pub fn take_lines(&mut self) -> mpsc::Receiver<String> {
        let (_closed, empty) = mpsc::channel(1);
        std::mem::replace(&mut self.lines, empty)
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        let pid = self.inner.id().and_then(|id| Pid::from_raw(id as i32));
        if let Some(pid) = pid {
            // It may have ended just now: then there is nobody left to tell.
            let _gone = kill_process(pid, signal);
        }
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.inner.wait().await
    }

    /// Asks it to stop, waits `grace`, then kills it. Always reaped.
    pub async fn stop(mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        // One that is stopped would not hear it.
        self.signal(Signal::CONT);
        if let Ok(status) = tokio::time::timeout(grace, self.inner.wait()).await {
            return status;
        }
        self.inner.kill().await?;
        self.inner.wait().await
    }
}

async fn forward(stream: impl AsyncRead + Unpin, sender: mpsc::Sender<String>) {
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    while let Ok(count) = reader.read_until(b'\n', &mut bytes).await {
        if count == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        // A reader that is gone must not stop the child: keep draining.
        let _unread = sender.send(line).await;
    }
}

/// Ties this process to the one that started it: when that one dies, so does this. Children of the
/// lab call it first of all, so that even a killed lab leaves nothing behind. Linux only; elsewhere
/// a killed lab leaves its children to be ended by hand.
pub fn die_with_parent() {
    #[cfg(target_os = "linux")]
    let _unsupported = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
}

/// Kills a process of the testbed. It may have ended just now.
pub fn kill(pid: u32) {
    let _gone = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::KILL));
}

/// As many open files as this process may have; its children inherit that.
pub fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, the old limit is what counts.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
