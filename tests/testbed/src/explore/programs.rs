// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of a node as its migration-agent runs them: simnode's rules in process, and the hold file of the
//! node's net-agent; `zfs` may be the real one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use migration::agent::commands::{Commands, Ending, Output, Program, Receiving, Sending};
use net_agent::holds::HoldsFile;
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::{Node, Verbs, Wait};
use tokio::io::AsyncReadExt as _;
use vminfod::node::commands::{Commands as _, Follow, Tool};

use super::bugs::Bug;
use super::disk::Disk;
use super::points::Seat;
use crate::moving::judge::Judge;

/// The programs of one life of an agent.
#[derive(Clone)]
pub struct Programs {
    /// The node.
    pub node: Node,
    /// Where its net-agent keeps its holds.
    pub holds: PathBuf,
    /// The agent.
    pub seat: Seat,
    /// Who looks at what is done.
    pub judge: Arc<Judge>,
    /// Where its datasets are, unless they are simulated.
    pub disk: Option<Arc<Disk>>,
    /// A deliberate bug.
    pub bug: Option<Bug>,
}

fn output(status: i32, stdout: String, stderr: String) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

fn is_reading(program: Program, args: &[String]) -> bool {
    let verb = args.first().map_or("", String::as_str);
    let is_dry = verb == "send" && args.iter().any(|arg| arg == "-n");
    program == Program::Zpool
        || is_dry
        || ["get", "list", "holds"].contains(&verb)
        || args.iter().any(|arg| arg.starts_with("info "))
}

impl Programs {
    async fn answer(
        &self,
        program: Program,
        args: Vec<String>,
        input: Vec<u8>,
        deadline: Duration,
    ) -> io::Result<Output> {
        if let (Program::Zfs | Program::Zpool, Some(disk)) = (program, &self.disk) {
            return disk.commands.run(program, args, input, deadline).await;
        }
        match program {
            Program::Zfs => self.zfs(args).await,
            Program::Zpool => {
                let property = args.get(1).cloned().unwrap_or_default();
                let on = if property.contains("encryption") { "disabled" } else { "active" };
                let text = format!("NAME PROPERTY VALUE SOURCE\nzones {property} {on} local\n");
                Ok(output(0, text, String::new()))
            }
            Program::Vmadm => self.vmadm(&args, &input).await,
            Program::NetAgent => self.net_agent(&args),
            Program::Zonecfg => {
                let ran = InProcess::new(&self.node).zonecfg(&args);
                Ok(Output { status: ran.status, stdout: ran.stdout, stderr: ran.stderr })
            }
        }
    }

    async fn zfs(&self, args: Vec<String>) -> io::Result<Output> {
        let commands = InProcess::new(&self.node);
        // A dry run, and what drops a partial stream, are streams without bytes.
        let follow = match args.first().map_or("", String::as_str) {
            "send" => Some(commands.follow(Tool::Zfs, args.clone())),
            "receive" => Some(commands.converse(Tool::Zfs, args.clone()).map(|it| it.0)),
            _ => None,
        };
        if let Some(follow) = follow {
            let mut follow = follow.map_err(io::Error::other)?;
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            follow.stdout.read_to_end(&mut stdout).await?;
            follow.stderr.read_to_end(&mut stderr).await?;
            return Ok(Output { status: follow.wait().await, stdout, stderr });
        }
        let ran = commands.run(Tool::Zfs, args, Duration::from_secs(60)).await;
        let ran = ran.map_err(io::Error::other)?;
        Ok(Output { status: ran.status, stdout: ran.stdout, stderr: ran.stderr })
    }

    async fn vmadm(&self, args: &[String], input: &[u8]) -> io::Result<Output> {
        let verbs = Verbs::new(&self.node, Wait::none());
        let (verb, vm) =
            (args.first().map_or("", String::as_str), args.get(1).map_or("", String::as_str));
        let done = match verb {
            "update" => {
                let mut changes: serde_json::Map<String, Value> = serde_json::from_slice(input)?;
                if changes.get("do_not_inventory") == Some(&json!(false)) {
                    changes.insert("do_not_inventory".to_owned(), Value::Null);
                }
                verbs.update(vm, &changes).await
            }
            "start" => verbs.boot(vm).await,
            "stop" => {
                let halted = verbs.halt(vm, 0).await;
                if let Some(disk) = &self.disk {
                    disk.rests();
                }
                halted
            }
            "delete" => verbs.delete(vm).await,
            other => return Err(io::Error::other(format!("vmadm {other}"))),
        };
        Ok(match done {
            Ok(()) => output(0, String::new(), String::new()),
            Err(error) => output(1, String::new(), error.to_string()),
        })
    }

    fn net_agent(&self, args: &[String]) -> io::Result<Output> {
        let value = |name: &str| {
            let at = args.iter().position(|arg| arg == name)?;
            args.get(at + 1).cloned()
        };
        let file = HoldsFile::new(&self.holds);
        match args.first().map_or("", String::as_str) {
            "holds" => {
                let holds = file.read().map_err(io::Error::other)?;
                Ok(output(0, json!(holds.holds).to_string(), String::new()))
            }
            "hold" => {
                let (vm, reason) = (value("--vm"), value("--reason").unwrap_or_default());
                let length = Some(SignedDuration::from_hours(2));
                let by = "migration-agent".to_owned();
                let held = file.hold(vm, length, reason, by, Timestamp::now());
                held.map_err(io::Error::other)?;
                Ok(output(0, String::new(), String::new()))
            }
            _ => {
                let released = file.release(value("--vm").as_deref()).map_err(io::Error::other)?;
                Ok(output(i32::from(released == 0), String::new(), String::new()))
            }
        }
    }
}

impl Programs {
    /// What a deliberate bug does besides.
    fn misbehave(&self, line: &str) {
        let Some(dataset) = line.strip_prefix("zfs destroy ").and_then(|name| {
            let (dataset, snapshot) = name.split_once('@')?;
            snapshot.starts_with("vm-migration-").then_some(dataset)
        }) else {
            return;
        };
        let zfs = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            drop(InProcess::new(&self.node).answer(Tool::Zfs, &words));
        };
        match self.bug {
            Some(Bug::QuotaNotRestored) if !dataset.contains("/data") => {
                zfs(&format!("set quota=none {dataset}"));
            }
            Some(Bug::SnapshotDestroyedTooEarly) => {
                for number in 1..9 {
                    zfs(&format!("destroy {dataset}@vm-migration-{number}"));
                }
            }
            _ => {}
        }
    }
}

impl Commands for Programs {
    fn run(
        &self,
        program: Program,
        args: Vec<String>,
        input: Vec<u8>,
        deadline: Duration,
    ) -> BoxFuture<'_, io::Result<Output>> {
        async move {
            if is_reading(program, &args) {
                self.seat.pass().await;
                let answer = self.answer(program, args, input, deadline).await;
                self.seat.pass().await;
                return answer;
            }
            let line = format!("{} {}", program.name(), args.join(" "));
            let (at, _) = self.seat.begin(|| line.clone()).await;
            self.judge.look(&line);
            let answer = self.answer(program, args, input, deadline).await;
            self.misbehave(&line);
            self.judge.look(&line);
            self.seat.end(at).await;
            answer
        }
        .boxed()
    }

    fn send(&self, args: Vec<String>) -> io::Result<Sending> {
        if let Some(disk) = &self.disk {
            return disk.commands.send(args);
        }
        let follow =
            InProcess::new(&self.node).follow(Tool::Zfs, args).map_err(io::Error::other)?;
        let (stdout, ending) = ended(follow);
        Ok(Sending { stdout, ending })
    }

    fn receive(&self, args: Vec<String>) -> io::Result<Receiving> {
        if let Some(disk) = &self.disk {
            return disk.commands.receive(args);
        }
        let started = InProcess::new(&self.node).converse(Tool::Zfs, args);
        let (follow, stdin) = started.map_err(io::Error::other)?;
        Ok(Receiving { stdin, ending: ended(follow).1 })
    }
}

fn ended(mut follow: Follow) -> (migration::agent::commands::Reader, Ending) {
    let none = || Box::new(tokio::io::empty());
    let stdout = std::mem::replace(&mut follow.stdout, none());
    let stderr = std::mem::replace(&mut follow.stderr, none());
    (stdout, Ending::new(stderr, async move { follow.wait().await }.boxed()))
}
