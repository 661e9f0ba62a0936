// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's commands without processes: the rules of the executables behind the
//! [`Commands`] trait. They do not fail by themselves; see [`crate::decorators`].

use std::sync::Arc;

use daemon::command::{Call, CommandError, Commands, Launch, Output, Pipes, Program, Run, Running};
use tokio::io::AsyncReadExt as _;

use crate::exec;
use crate::feeds::Feeds;
use crate::fswatcher::Told;
use crate::node::Node;
use crate::pipes;
use crate::tap::{Stream, Tap};

/// The commands of one node.
#[derive(Clone)]
pub struct InProcess {
    node: Node,
    feeds: Feeds,
    files: Told,
}

impl InProcess {
    /// The commands of `node`. Its events come from [`InProcess::feed`] or [`InProcess::feed_from`].
    pub fn new(node: &Node) -> Self {
        Self { node: node.clone(), feeds: Feeds::default(), files: Told::default() }
    }

    /// Feeds the followers from a tap. Does not end.
    pub async fn feed_from(self, tap: Tap) {
        loop {
            for event in tap.take() {
                self.feed(event.stream, &event.line).await;
            }
            tap.news().await;
        }
    }

    /// Prints one line to the follower of a stream, if there is one. Waits while its pipe is full.
    pub async fn feed(&self, stream: Stream, line: &str) {
        self.feeds.feed(stream, &format!("{line}\n")).await;
    }

    /// Ends the follower of a stream, as if its process had died.
    pub fn cut(&self, stream: Stream) {
        self.feeds.cut(stream);
    }

    /// The file watcher, which reports the changes that it is told.
    pub fn files(&self) -> &Told {
        &self.files
    }

    /// Runs a command and returns its output.
    pub fn answer(&self, program: Program, args: &[String]) -> Output {
        exec::answer(&self.node, program.name(), args)
    }
}

impl Commands for InProcess {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let Call { program, args, .. } = call;
            // A dry run, and what drops a partial stream, are streams without bytes.
            let mut running = match args.first().map(String::as_str) {
                Some("send") if program == Program::Zfs => pipes::send(&self.node, args),
                Some("receive") if program == Program::Zfs => pipes::receive(&self.node, args),
                _ => return Ok(self.answer(program, &args)),
            };
            running.stdin = Box::new(tokio::io::sink());
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let failed = |error| CommandError::Io { program, error: Arc::new(error) };
            running.stdout.read_to_end(&mut stdout).await.map_err(failed)?;
            running.stderr.read_to_end(&mut stderr).await.map_err(failed)?;
            Ok(Output { status: running.wait().await, stdout, stderr })
        })
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        let args = launch.args;
        match (launch.program, launch.pipes) {
            (Program::Zfs, Pipes::Out) => Ok(pipes::send(&self.node, args)),
            (Program::Zfs, _) => Ok(pipes::receive(&self.node, args)),
            (_, Pipes::Out) => Ok(self.feeds.follow(&args)),
            _ => Ok(self.files.converse()),
        }
    }
}
