// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's commands without processes: the rules of the executables behind vminfod's
//! [`Commands`] trait. They do not fail by themselves; see [`crate::decorators`].

use std::time::Duration;

use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Run, Tool};

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

    /// Runs `zonecfg`, which vminfod does not know.
    pub fn zonecfg(&self, args: &[String]) -> Output {
        exec::answer(&self.node, "zonecfg", args)
    }

    /// Runs a command and returns its output.
    pub fn answer(&self, tool: Tool, args: &[String]) -> Output {
        exec::answer(&self.node, tool.name(), args)
    }
}

impl Commands for InProcess {
    fn run(&self, tool: Tool, args: Vec<String>, _deadline: Duration) -> Run<'_> {
        Box::pin(async move { Ok(self.answer(tool, &args)) })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        match tool {
            Tool::Zfs => Ok(pipes::send(&self.node, args)),
            _ => Ok(self.feeds.follow(&args)),
        }
    }

    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        match tool {
            Tool::Zfs => Ok(pipes::receive(&self.node, args)),
            _ => Ok(self.files.converse()),
        }
    }
}
