// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's commands without processes: the rules of the executables behind vminfod's
//! [`Commands`] trait. They do not fail by themselves; see [`crate::decorators`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Tool};

use crate::exec;
use crate::fswatcher::Told;
use crate::node::Node;
use crate::tap::{Stream, Tap};

/// Capacity of a follower's pipe, in bytes.
const UNREAD: usize = 1 << 20;

/// The commands of one node.
#[derive(Clone)]
pub struct InProcess {
    node: Node,
    feeds: Arc<Mutex<HashMap<&'static str, DuplexStream>>>,
    files: Told,
}

impl InProcess {
    /// The commands of `node`. Its events come from [`InProcess::feed`] or [`InProcess::feed_from`].
    pub fn new(node: &Node) -> Self {
        Self { node: node.clone(), feeds: Arc::default(), files: Told::default() }
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
        let key = key(stream);
        let Some(mut pipe) = self.feeds().remove(key) else { return };
        let written = pipe.write_all(format!("{line}\n").as_bytes()).await;
        if written.is_ok() {
            // A follower that started meanwhile has its own pipe.
            self.feeds().entry(key).or_insert(pipe);
        }
    }

    /// Ends the follower of a stream, as if its process had died.
    pub fn cut(&self, stream: Stream) {
        self.feeds().remove(key(stream));
    }

    /// The file watcher, which reports the changes that it is told.
    pub fn files(&self) -> &Told {
        &self.files
    }

    /// Runs a command and returns its output.
    pub fn answer(&self, tool: Tool, args: &[String]) -> Output {
        let (status, stdout, stderr) = exec::answer(&self.node, tool.name(), args);
        Output {
            status: i32::from(status),
            stdout: stdout.into_bytes(),
            stderr: stderr.into_bytes(),
        }
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<&'static str, DuplexStream>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(stream: Stream) -> &'static str {
    match stream {
        Stream::Zones => "zones",
        Stream::Zfs => "zfs",
        Stream::Silent => "silent",
    }
}

impl Commands for InProcess {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        _deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let me = self.clone();
            let answered = tokio::task::spawn_blocking(move || me.answer(tool, &args)).await;
            Ok(answered.unwrap_or_else(|_| Output {
                status: 1,
                stdout: Vec::new(),
                stderr: b"the command panicked".to_vec(),
            }))
        })
    }

    fn follow(&self, _tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        let (near, far) = duplex(UNREAD);
        let (errors, _) = duplex(1);
        let stream = if args.iter().any(|arg| arg == "-c") { Stream::Zones } else { Stream::Zfs };
        self.feeds().insert(key(stream), far);
        let ready = AsyncReadExt::chain(&b"{\"date\":\"d\",\"type\":\"ready\"}\n"[..], near);
        Ok(Follow::new(Box::new(ready), Box::new(errors), Box::pin(std::future::pending())))
    }

    fn converse(&self, _tool: Tool, _args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        Ok(self.files.converse())
    }
}
