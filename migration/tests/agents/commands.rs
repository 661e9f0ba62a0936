// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of a node: simnode's rules in process, and net-agent's list of holds.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use migration::agent::commands::{Commands, Ending, Output, Program, Receiving, Sending};
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::node::Zfs;
use simnode::{Node, Verbs, Wait};
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;
use vminfod::node::commands::{Commands as _, Follow, Tool};

/// The programs of one node.
#[derive(Clone)]
pub struct Programs {
    pub node: Node,
    pub holds: Arc<Mutex<BTreeMap<String, String>>>,
    pub steps: Arc<Steps>,
    /// What was run, but for what only reads.
    pub ran: Arc<Mutex<Vec<String>>>,
}

/// Counts what an agent does to its node, and stops it there.
#[derive(Default)]
pub struct Steps {
    done: AtomicUsize,
    /// Stops before (even) or after (odd) the step of half this number.
    stop_at: Mutex<Option<usize>>,
    pub stopped: Notify,
}

impl Steps {
    pub fn stop_at(&self, half: Option<usize>) {
        self.done.store(0, Ordering::SeqCst);
        *self.stop_at.lock().unwrap() = half;
    }

    async fn stop_if(&self, half: usize) {
        if *self.stop_at.lock().unwrap() == Some(half) {
            self.stopped.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

fn output(status: i32, stdout: String, stderr: String) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

fn is_reading(program: Program, args: &[String]) -> bool {
    let verb = args.first().map_or("", String::as_str);
    let is_dry = verb == "send" && args.contains(&"-n".to_owned());
    program == Program::Zpool || is_dry || ["get", "list", "holds"].contains(&verb)
}

impl Programs {
    pub fn new(node: &Node) -> Programs {
        let (holds, steps, ran) = Default::default();
        Programs { node: node.clone(), holds, steps, ran }
    }

    /// Runs a command line of `zfs`, which must succeed.
    pub fn zfs(&self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let output = InProcess::new(&self.node).answer(Tool::Zfs, &words);
        assert_eq!(output.status, 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn answer(&self, program: Program, args: Vec<String>, input: Vec<u8>) -> Output {
        match program {
            Program::Zfs => {
                let commands = InProcess::new(&self.node);
                // A dry run, and what drops a partial stream, are streams without bytes.
                let follow = match args[0].as_str() {
                    "send" => Some(commands.follow(Tool::Zfs, args.clone()).unwrap()),
                    "receive" => Some(commands.converse(Tool::Zfs, args.clone()).unwrap().0),
                    _ => None,
                };
                if let Some(mut follow) = follow {
                    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
                    follow.stdout.read_to_end(&mut stdout).await.unwrap();
                    follow.stderr.read_to_end(&mut stderr).await.unwrap();
                    return Output { status: follow.wait().await, stdout, stderr };
                }
                let ran = commands.run(Tool::Zfs, args, Duration::from_secs(60)).await.unwrap();
                Output { status: ran.status, stdout: ran.stdout, stderr: ran.stderr }
            }
            Program::Zpool if self.node.info().zfs == Zfs::Fuse => {
                output(2, String::new(), "bad property list: invalid property".to_owned())
            }
            Program::Zpool => {
                let on = if args[1].contains("encryption") { "disabled" } else { "active" };
                output(
                    0,
                    format!("NAME PROPERTY VALUE SOURCE\nzones {} {on} local\n", args[1]),
                    String::new(),
                )
            }
            Program::Vmadm => self.vmadm(&args, &input).await,
            Program::NetAgent => self.net_agent(&args),
            Program::Zonecfg => {
                let ran = InProcess::new(&self.node).zonecfg(&args);
                Output { status: ran.status, stdout: ran.stdout, stderr: ran.stderr }
            }
        }
    }

    async fn vmadm(&self, args: &[String], input: &[u8]) -> Output {
        let verbs = Verbs::new(&self.node, Wait::none());
        let vm = &args[1];
        let done = match args[0].as_str() {
            "update" => {
                let mut changes: Value = serde_json::from_slice(input).unwrap();
                let changes = changes.as_object_mut().unwrap();
                if changes.get("do_not_inventory") == Some(&json!(false)) {
                    changes.insert("do_not_inventory".to_owned(), Value::Null);
                }
                verbs.update(vm, changes).await
            }
            "start" => verbs.boot(vm).await,
            "stop" => verbs.halt(vm, 0).await,
            "delete" => verbs.delete(vm).await,
            other => panic!("vmadm {other}"),
        };
        match done {
            Ok(()) => output(0, String::new(), String::new()),
            Err(error) => output(1, String::new(), error.to_string()),
        }
    }

    fn net_agent(&self, args: &[String]) -> Output {
        let value = |name: &str| {
            let at = args.iter().position(|arg| arg == name)?;
            args.get(at + 1).cloned()
        };
        let mut holds = self.holds.lock().unwrap();
        match args[0].as_str() {
            "holds" => {
                let rows: Vec<Value> =
                    holds.iter().map(|(vm, reason)| json!({"vm": vm, "reason": reason})).collect();
                output(0, json!(rows).to_string(), String::new())
            }
            "hold" => {
                assert_eq!(value("--for").as_deref(), Some("2h"));
                holds.insert(value("--vm").unwrap(), value("--reason").unwrap());
                output(0, String::new(), String::new())
            }
            _ if holds.remove(&value("--vm").unwrap()).is_some() => {
                output(0, String::new(), String::new())
            }
            _ => output(1, String::new(), "there is no hold".to_owned()),
        }
    }
}

impl Commands for Programs {
    fn run(
        &self,
        program: Program,
        args: Vec<String>,
        input: Vec<u8>,
        _deadline: Duration,
    ) -> BoxFuture<'_, io::Result<Output>> {
        async move {
            if is_reading(program, &args) {
                return Ok(self.answer(program, args, input).await);
            }
            let step = 2 * self.steps.done.fetch_add(1, Ordering::SeqCst);
            self.steps.stop_if(step).await;
            let line = format!("{} {}", program.name(), args.join(" "));
            self.ran.lock().unwrap().push(line);
            let answer = self.answer(program, args, input).await;
            self.steps.stop_if(step + 1).await;
            Ok(answer)
        }
        .boxed()
    }

    fn send(&self, args: Vec<String>) -> io::Result<Sending> {
        let follow =
            InProcess::new(&self.node).follow(Tool::Zfs, args).map_err(io::Error::other)?;
        let (stdout, ending) = ended(follow);
        Ok(Sending { stdout, ending })
    }

    fn receive(&self, args: Vec<String>) -> io::Result<Receiving> {
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
