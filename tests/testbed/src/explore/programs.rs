// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The programs of a node as its migration-agent runs them: simnode's rules in process, and the hold file of the
//! node's net-agent; `zfs` may be the real one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Launch, Output, Program, Run, Running};
use futures_util::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use migration_core::intent::End;
use net_agent::holds::HoldsFile;
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::{Node, Verbs, Wait};

use super::bugs::Bug;
use super::disk::Disk;
use super::points::{Fate, Life, Party};
use crate::moving::judge::Judge;

/// The programs of one life of an agent.
#[derive(Clone)]
pub struct Programs {
    pub node: Node,
    /// Where its net-agent keeps its holds.
    pub holds: PathBuf,
    pub life: Life,
    /// Who looks at what is done.
    pub judge: Arc<Judge>,
    /// Where its datasets are, unless they are simulated.
    pub disk: Option<Arc<Disk>>,
    /// A deliberate bug.
    pub bug: Option<Bug>,
}

/// With a deliberate bug a copy boots so late.
const LATE: Duration = Duration::from_secs(60);
/// What SMF has as the start method of our vm-agent.
const OUR_VM_AGENT: &str = r"/opt/smartdc/agents/lib/node_modules/vm-agent/smf/vm-agent\ start";

fn output(status: i32, stdout: String, stderr: String) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

fn is_reading(program: Program, args: &[String]) -> bool {
    let verb = args.first().map_or("", String::as_str);
    let is_dry = verb == "send" && args.iter().any(|arg| arg == "-n");
    matches!(program, Program::Zpool | Program::Svcprop)
        || is_dry
        || ["get", "list", "holds"].contains(&verb)
        || args.iter().any(|arg| arg.starts_with("info "))
}

impl Programs {
    async fn answer(&self, call: Call) -> Result<Output, CommandError> {
        let program = call.program;
        if let (Program::Zfs | Program::Zpool, Some(disk)) = (program, &self.disk) {
            let line = format!("{program} {}", call.args.join(" "));
            let answer = disk.commands.run(call).await;
            if let Ok(output) = &answer
                && output.status != 0
            {
                self.judge.note(format!("{line}: {}", output.complaint()));
            }
            return answer;
        }
        let Call { args, input, .. } = &call;
        let done = match program {
            Program::Zpool => {
                let property = args.get(1).cloned().unwrap_or_default();
                let on = if property.contains("encryption") { "disabled" } else { "active" };
                let text = format!("NAME PROPERTY VALUE SOURCE\nzones {property} {on} local\n");
                Ok(output(0, text, String::new()))
            }
            Program::Vmadm => self.vmadm(args, input).await,
            Program::NetAgent => self.net_agent(args),
            Program::Svcprop => Ok(output(0, format!("{OUR_VM_AGENT}\n"), String::new())),
            _ => return InProcess::new(&self.node).run(call).await,
        };
        done.map_err(|error| CommandError::Io { program, error: Arc::new(error) })
    }

    async fn vmadm(&self, args: &[String], input: &[u8]) -> io::Result<Output> {
        let verbs = Verbs::new(&self.node, Wait::none());
        let (verb, vm) =
            (args.first().map_or("", String::as_str), args.get(1).map_or("", String::as_str));
        let done = match verb {
            "update" => {
                let changes: serde_json::Map<String, Value> = serde_json::from_slice(input)?;
                verbs.update(vm, &changes).await
            }
            "start" => {
                if self.bug == Some(Bug::BootsLate) && self.life.party == Party::Agent(End::Source)
                {
                    tokio::time::sleep(LATE).await;
                }
                verbs.boot(vm).await
            }
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
            drop(InProcess::new(&self.node).answer(Program::Zfs, &words));
        };
        match self.bug {
            Some(Bug::QuotaNotRestored) if !dataset.contains("/data") => {
                zfs(&format!("set quota=none {dataset}"));
            }
            Some(Bug::DestroyedByName) => {
                let (_, snapshot) = line.split_once('@').unwrap_or_default();
                zfs(&format!("destroy -r zones/elsewhere@{snapshot}"));
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
    fn run(&self, call: Call) -> Run<'_> {
        async move {
            if is_reading(call.program, &call.args) {
                self.life.pass().await;
                let answer = self.answer(call).await;
                self.life.pass().await;
                return answer;
            }
            let line = format!("{} {}", call.program, call.args.join(" "));
            let (at, fate) = self.life.begin(|| line.clone()).await;
            self.judge.check(&line);
            let answer = match fate {
                Fate::Fails => Ok(output(1, String::new(), "it cannot be done".to_owned())),
                Fate::Hollow => Ok(output(0, String::new(), String::new())),
                _ => self.answer(call).await,
            };
            self.misbehave(&line);
            self.judge.check(&line);
            self.life.end(at).await;
            answer
        }
        .boxed()
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        match &self.disk {
            Some(disk) => disk.commands.start(launch),
            None => InProcess::new(&self.node).start(launch),
        }
    }
}
