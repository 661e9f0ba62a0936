// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of a node: simnode's rules in process, and net-agent's list of holds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Launch, Output, Program, Run, Running};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::node::Zfs;
use simnode::{Node, Verbs, Wait};
use tokio::sync::Notify;

/// The programs of one node.
#[derive(Clone)]
pub struct Programs {
    pub node: Node,
    pub holds: Arc<Mutex<BTreeMap<String, String>>>,
    /// The start method of the vm-agent that SMF knows.
    pub vm_agent: Arc<Mutex<Option<String>>>,
    pub steps: Arc<Steps>,
    /// What was run, but for what only reads.
    pub ran: Arc<Mutex<Vec<String>>>,
    /// So many seconds a recursive `zfs get` takes.
    pub slow: Arc<AtomicU64>,
    /// `vmadm delete` does not end.
    pub stuck: Arc<AtomicBool>,
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
    matches!(program, Program::Zpool | Program::Svcprop)
        || is_dry
        || ["get", "list", "holds"].contains(&verb)
}

impl Programs {
    pub fn new(node: &Node) -> Programs {
        let (holds, steps, ran, slow, stuck) = Default::default();
        let ours = r"/opt/smartdc/agents/lib/node_modules/vm-agent/smf/vm-agent\ start";
        let vm_agent = Arc::new(Mutex::new(Some(ours.to_owned())));
        Programs { node: node.clone(), holds, vm_agent, steps, ran, slow, stuck }
    }

    /// Runs a command line of `zfs`, which must succeed.
    pub fn zfs(&self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let output = InProcess::new(&self.node).answer(Program::Zfs, &words);
        assert_eq!(output.status, 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Encrypts the pool, with everything in it.
    pub fn encrypt(&self) {
        let encrypted = |all: &mut simnode::datasets::Datasets| {
            all.encrypt("zones");
            Ok(Vec::new())
        };
        self.node.zfs(encrypted).unwrap();
    }

    fn is_encrypted(&self) -> bool {
        let rows = self.zfs("get -Hp -o value encryption zones");
        self.node.info().zfs == Zfs::Illumos && rows.trim() != "off"
    }

    /// Sets a property to a text, spaces and line ends in it.
    pub fn set(&self, dataset: &str, name: &str, text: &str) {
        let words = ["set".to_owned(), format!("{name}={text}"), dataset.to_owned()];
        let output = InProcess::new(&self.node).answer(Program::Zfs, &words);
        assert_eq!(output.status, 0, "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs a command line of `zfs` with `_` for a space in a name.
    pub fn zfs_named(&self, line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let output = InProcess::new(&self.node).answer(Program::Zfs, &words);
        assert_eq!(output.status, 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn answer(&self, call: Call) -> Result<Output, CommandError> {
        let Call { args, input, .. } = &call;
        let is_listing =
            call.program == Program::Zfs && args[0] == "get" && args.contains(&"-r".to_owned());
        if is_listing {
            tokio::time::sleep(Duration::from_secs(self.slow.load(Ordering::SeqCst))).await;
        }
        if args.first().is_some_and(|verb| verb == "delete") && self.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(match call.program {
            Program::Zpool if self.node.info().zfs == Zfs::Fuse => {
                output(2, String::new(), "bad property list: invalid property".to_owned())
            }
            Program::Zpool => {
                let is_on = !args[1].contains("encryption") || self.is_encrypted();
                let on = if is_on { "active" } else { "disabled" };
                output(
                    0,
                    format!("NAME PROPERTY VALUE SOURCE\nzones {} {on} local\n", args[1]),
                    String::new(),
                )
            }
            Program::Vmadm => self.vmadm(args, input).await,
            Program::NetAgent => self.net_agent(args),
            Program::Svcprop => match &*self.vm_agent.lock().unwrap() {
                Some(start) => output(0, format!("{start}\n"), String::new()),
                None => output(
                    1,
                    String::new(),
                    "svcprop: Pattern 'vm-agent' doesn't match any entities".to_owned(),
                ),
            },
            _ => InProcess::new(&self.node).run(call).await?,
        })
    }

    async fn vmadm(&self, args: &[String], input: &[u8]) -> Output {
        let verbs = Verbs::new(&self.node, Wait::none());
        let vm = &args[1];
        let done = match args[0].as_str() {
            "update" => {
                let changes: Value = serde_json::from_slice(input).unwrap();
                verbs.update(vm, changes.as_object().unwrap()).await
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
    fn run(&self, call: Call) -> Run<'_> {
        async move {
            if is_reading(call.program, &call.args) {
                return self.answer(call).await;
            }
            let step = 2 * self.steps.done.fetch_add(1, Ordering::SeqCst);
            self.steps.stop_if(step).await;
            let line = format!("{} {}", call.program, call.args.join(" "));
            self.ran.lock().unwrap().push(line);
            let answer = self.answer(call).await;
            self.steps.stop_if(step + 1).await;
            answer
        }
        .boxed()
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        InProcess::new(&self.node).start(launch)
    }
}
