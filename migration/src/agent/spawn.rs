// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real programs: a fixed environment, no shell, and none outlives the call that started it.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::commands::{Commands, Ending, Output, Program, Receiving, Sending};

/// The most that a program may print, and the most of its stderr that is kept.
const STDOUT: u64 = 64 << 20;
const STDERR: u64 = 16 << 10;
const SEARCH_PATH: &str = "/usr/bin:/usr/sbin:/bin:/sbin:/opt/smartdc/agents/bin";

/// The paths of the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Paths {
    pub zfs: PathBuf,
    pub zpool: PathBuf,
    pub vmadm: PathBuf,
    pub net_agent: PathBuf,
    pub zonecfg: PathBuf,
}

impl Paths {
    fn of(&self, program: Program) -> &PathBuf {
        match program {
            Program::Zfs => &self.zfs,
            Program::Zpool => &self.zpool,
            Program::Vmadm => &self.vmadm,
            Program::NetAgent => &self.net_agent,
            Program::Zonecfg => &self.zonecfg,
        }
    }
}

/// The programs at these paths.
#[derive(Clone, Debug)]
pub struct Spawned(pub Paths);

impl Spawned {
    fn start(
        &self,
        program: Program,
        args: &[String],
        (stdin, stdout): (Stdio, Stdio),
    ) -> io::Result<Child> {
        let path = self.0.of(program);
        #[allow(clippy::disallowed_methods)] // the one place of this crate that spawns
        let started = Command::new(path)
            .args(args)
            .env_clear()
            .env("LANG", "C")
            .env("LC_ALL", "C")
            .env("PATH", SEARCH_PATH)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        started
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

/// The error of a pipe that was asked for.
fn no_pipe() -> io::Error {
    io::Error::other("the program has no pipe")
}

fn ending(mut child: Child) -> io::Result<Ending> {
    let stderr = child.stderr.take().ok_or_else(no_pipe)?;
    let status = async move { child.wait().await.map_or(-1, code) };
    Ok(Ending::new(Box::new(stderr), Box::pin(status)))
}

impl Commands for Spawned {
    fn run(
        &self,
        program: Program,
        args: Vec<String>,
        input: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, io::Result<Output>> {
        Box::pin(async move {
            let began = tokio::time::Instant::now();
            let mut child = self.start(program, &args, (Stdio::piped(), Stdio::piped()))?;
            let mut stdin = child.stdin.take().ok_or_else(no_pipe)?;
            let stdout = child.stdout.take().ok_or_else(no_pipe)?;
            let stderr = child.stderr.take().ok_or_else(no_pipe)?;
            let work = async {
                let (mut printed, mut said) = (Vec::new(), Vec::new());
                let feed = async {
                    // A program that needs no input closes it.
                    let _ = stdin.write_all(&input).await;
                    drop(stdin);
                    Ok(0)
                };
                let (mut out, mut err) = (stdout.take(STDOUT), stderr.take(STDERR));
                tokio::try_join!(feed, out.read_to_end(&mut printed), err.read_to_end(&mut said))?;
                let mut rest = err.into_inner();
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
                if printed.len() as u64 == STDOUT {
                    return Err(io::Error::other("it printed too much"));
                }
                let status = child.wait().await?;
                Ok(Output { status: code(status), stdout: printed, stderr: said })
            };
            let ended = tokio::time::timeout(deadline, work).await;
            let ms = began.elapsed().as_millis();
            // Without the input, which may be secret.
            tracing::debug!(program = program.name(), args = args.join(" "), %ms, "command");
            ended.unwrap_or_else(|_| {
                let why = format!("{} took longer than {deadline:?}", program.name());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            })
        })
    }

    fn send(&self, args: Vec<String>) -> io::Result<Sending> {
        let mut child = self.start(Program::Zfs, &args, (Stdio::null(), Stdio::piped()))?;
        let stdout = child.stdout.take().ok_or_else(no_pipe)?;
        Ok(Sending { stdout: Box::new(stdout), ending: ending(child)? })
    }

    fn receive(&self, args: Vec<String>) -> io::Result<Receiving> {
        let mut child = self.start(Program::Zfs, &args, (Stdio::piped(), Stdio::null()))?;
        let stdin = child.stdin.take().ok_or_else(no_pipe)?;
        Ok(Receiving { stdin: Box::new(stdin), ending: ending(child)? })
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
