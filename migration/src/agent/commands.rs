// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The seam between the agent and the node's programs. Nothing here knows what they print.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

/// Bytes of a stream's stderr that are kept.
const STDERR: u64 = 5000;

/// A program of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// zfs(8)
    Zfs,
    /// zpool(8): only `get`
    Zpool,
    /// vmadm(8): `update`, `start`, `stop`, `delete`; the payload of `update` is on its stdin
    Vmadm,
    /// net-agent's `hold`, `release` and `holds -j`
    NetAgent,
    /// zonecfg(8): before the zones boot, and when a VM was created
    Zonecfg,
}

impl Program {
    /// The name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Program::Zfs => "zfs",
            Program::Zpool => "zpool",
            Program::Vmadm => "vmadm",
            Program::NetAgent => "net-agent",
            Program::Zonecfg => "zonecfg",
        }
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its status; 128 + signal where it was killed.
    pub status: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// The beginning of its stderr.
    pub stderr: Vec<u8>,
}

/// The output of a running program.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// The input of a running program.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The end of a running `zfs send` or `zfs receive`; its drop kills the program.
pub struct Ending {
    stderr: Reader,
    status: BoxFuture<'static, i32>,
}

impl Ending {
    /// `status` resolves to the exit status; its drop kills the program.
    pub fn new(stderr: Reader, status: BoxFuture<'static, i32>) -> Ending {
        Ending { stderr, status }
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// What it wrote to stderr, where its status is not 0.
    pub async fn wait(mut self) -> io::Result<()> {
        let mut text = Vec::new();
        (&mut self.stderr).take(STDERR).read_to_end(&mut text).await?;
        tokio::io::copy(&mut self.stderr, &mut tokio::io::sink()).await?;
        match self.status.await {
            0 => Ok(()),
            status => {
                let text = String::from_utf8_lossy(&text);
                let text = text.trim().replace('\n', "; ");
                Err(io::Error::other(match text.is_empty() {
                    true => format!("it ended with status {status}"),
                    false => text,
                }))
            }
        }
    }
}

/// A running `zfs send`.
pub struct Sending {
    /// The stream.
    pub stdout: Reader,
    /// Its end.
    pub ending: Ending,
}

/// A running `zfs receive`.
pub struct Receiving {
    /// Where the stream goes.
    pub stdin: Writer,
    /// Its end.
    pub ending: Ending,
}

/// The programs of a node.
pub trait Commands: Send + Sync {
    /// Runs a program to its end, with `input` on its stdin. It is killed after `deadline`.
    fn run(
        &self,
        program: Program,
        args: Vec<String>,
        input: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, io::Result<Output>>;

    /// Starts `zfs` with these arguments, which are a `send`.
    ///
    /// # Errors
    /// If it cannot be started.
    fn send(&self, args: Vec<String>) -> io::Result<Sending>;

    /// Starts `zfs` with these arguments, which are a `receive`.
    ///
    /// # Errors
    /// If it cannot be started.
    fn receive(&self, args: Vec<String>) -> io::Result<Receiving>;
}
