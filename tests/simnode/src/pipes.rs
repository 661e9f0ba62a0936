// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs send` and `zfs receive` without processes: the commands of `streams` between pipes, one task
//! each, which ends with its [`Running`].

use daemon::command::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use crate::exec::PIECE;
use crate::getopt::Failed;
use crate::node::Node;
use crate::streams;
use crate::streams::receive::Flow;
use crate::streams::send::Then;

/// The status of a command that was killed.
const KILLED: i32 = 137;

/// A task that ends when it is dropped.
struct Task(JoinHandle<i32>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn followed(stdout: DuplexStream, stderr: DuplexStream, task: JoinHandle<i32>) -> Running {
    let mut task = Task(task);
    let end = async move { (&mut task.0).await.unwrap_or(KILLED) };
    Running::new(Box::new(stdout), Box::new(stderr), Box::pin(end))
}

/// Prints how a command ended; returns its status.
async fn ended(result: Result<(), Failed>, stderr: &mut DuplexStream) -> i32 {
    let Err(Failed(status, text)) = result else { return 0 };
    // The reader may be gone.
    let _ = stderr.write_all(format!("{text}\n").as_bytes()).await;
    status.into()
}

/// Starts `zfs` with these arguments, which are a `send`.
pub fn send(node: &Node, args: Vec<String>) -> Running {
    let (near, mut out) = duplex(PIECE);
    let (errors, mut stderr) = duplex(PIECE);
    let node = node.clone();
    followed(
        near,
        errors,
        tokio::spawn(async move {
            let result = sent(&node, &args, &mut out).await;
            drop(out);
            ended(result, &mut stderr).await
        }),
    )
}

async fn sent(node: &Node, args: &[String], out: &mut DuplexStream) -> Result<(), Failed> {
    let rest = args.get(1..).unwrap_or_default();
    let stream = streams::send::send(node, rest)?;
    if let Err(error) = out.write_all(&stream.bytes).await {
        return Err(Failed(1, format!("warning: cannot send: {error}")));
    }
    match stream.then {
        Then::Ends(0, _) => Ok(()),
        Then::Ends(status, text) => Err(Failed(status, text)),
        Then::Hangs => std::future::pending().await,
    }
}

/// Starts `zfs` with these arguments, which are a `receive`.
pub fn receive(node: &Node, args: Vec<String>) -> Running {
    let (input, mut stdin) = duplex(PIECE);
    let (near, out) = duplex(1);
    let (errors, mut stderr) = duplex(PIECE);
    let node = node.clone();
    let task = tokio::spawn(async move {
        let _stdout = out;
        let result = received(&node, &args, &mut stdin).await;
        drop(stdin);
        ended(result, &mut stderr).await
    });
    followed(near, errors, task).with_stdin(Box::new(input))
}

async fn received(node: &Node, args: &[String], stdin: &mut DuplexStream) -> Result<(), Failed> {
    let rest = args.get(1..).unwrap_or_default();
    let Some(mut receiver) = streams::receive::receive(node, rest)? else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    loop {
        match stdin.read(&mut piece).await {
            Ok(0) | Err(_) => return receiver.finish(),
            Ok(len) => match receiver.push(piece.get(..len).unwrap_or_default())? {
                Flow::Reads => {}
                Flow::Hangs => std::future::pending().await,
            },
        }
    }
}
