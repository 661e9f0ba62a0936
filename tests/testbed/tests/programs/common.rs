// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the end-to-end tests share: a world of the lab in a directory of its own, its processes, and
//! waiting for what they do.

pub mod centre; // two nodes with everything, and volapi

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Paths, Program, Spawned};
use futures_util::future::join_all;
use mocks::napi::Era;
use rustix::process::{Pid, Signal, kill_process};
use sdc_clients::Jitter;
use sdc_clients::http::{Call, Duplex, Http};
use sdc_clients::identity::Identity;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod, WatchEvent, Watcher, watch};
use serde_json::{Value, json};
use simnode::{CreateOptions, Node, Verbs, Wait};
use testbed::lab::asking::OWN_AGENT;
use testbed::lab::seed::{self, Wrongs};
use testbed::lab::{World, WorldOptions};
use testbed::process::{self, Child, Finished};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use trust::Holder;
use vminfod::config::PROGRAMS;
use vminfod::node::Ctx;
use vminfod::node::root::Root;

/// Longer than anything takes that goes well on a busy machine.
pub const LATE: Duration = Duration::from_secs(600);

/// The testbed, which is every daemon and every command of the node.
pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testbed"))
}

/// Runs the testbed with these arguments to its end.
pub async fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Finished {
    process::run(&program(), args, LATE).await.unwrap()
}

/// A world in a directory that goes with it.
pub struct Lab {
    world: World,
    dir: tempfile::TempDir,
}

impl Deref for Lab {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Lab {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Lab {
    /// Creates a world and starts its vminfod; `set` changes the options before.
    pub async fn start(set: impl FnOnce(&mut WorldOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = WorldOptions::new(dir.path().join("cn"), program());
        set(&mut options);
        let mut world = World::create(options).await.unwrap();
        world.start_vminfod().await.unwrap();
        Self { world, dir }
    }

    /// The same without sweeps and refreshes: vminfod learns of a change only from what announces it.
    pub async fn without_sweeps(set: impl FnOnce(&mut WorldOptions)) -> Self {
        Self::start(|options| {
            options.vminfod.insert("sweep".to_owned(), json!("1h"));
            set(options);
        })
        .await
    }

    /// The same with so many VMs.
    pub async fn of(vms: u32) -> Self {
        Self::start(|options| options.vms = vms).await
    }

    /// A node whose agents have compared it, in their own time divided, with right records of all its VMs.
    pub async fn compared() -> Self {
        let mut lab = Self::start(|options| {
            (options.speed, options.era) = (600, Era::Rfd58);
        })
        .await;
        let (vms, cn) = (lab.vms().await, lab.node().cn_uuid().to_owned());
        lab.vmapi.store().seed_from_vms(&vms, &cn);
        lab.napi.store().seed_from_vms(&vms, &cn).unwrap();
        lab.start_agent().await.unwrap();
        lab.start_vm_agent().await.unwrap();
        until("a pass left nothing undecided", async || {
            let file = std::fs::read_to_string(lab.agent_state_dir().join("memory.json"));
            let kept: Value = serde_json::from_str(&file.unwrap_or_default()).unwrap_or_default();
            kept["reference"].as_array().is_some_and(|vms| !vms.is_empty())
        })
        .await;
        lab
    }

    /// Waits until net-agent has compared the node a few more times.
    pub async fn rounds(&self) {
        let resyncs = async || self.agent_status().await["resyncs"].as_u64().unwrap();
        let at = resyncs().await + 4;
        until("rounds go by", async || resyncs().await >= at).await;
    }

    /// How many deletes NAPI was sent.
    pub fn nic_deletes(&self) -> usize {
        self.napi.requests().iter().filter(|seen| seen.method == "DELETE").count()
    }

    /// A directory that only this test uses; the node is in `cn`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The configuration that vminfod was started with.
    pub fn config(&self) -> String {
        self.dir().join("cn/vminfod.json").to_string_lossy().into_owned()
    }

    /// All that vminfod has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("cn/vminfod.log")).unwrap()
    }

    /// A client of vminfod that asks once.
    pub fn client(&self) -> Vminfod {
        self.hub().unwrap()
    }

    /// vmadm's verbs, which wait for nobody.
    pub fn verbs(&self) -> Verbs {
        Verbs::new(self.node(), Wait::none())
    }

    /// vmadm's verbs, which wait until vminfod shows what they did.
    pub fn waiting_verbs(&self) -> Verbs {
        Verbs::new(self.node(), Wait::at(&self.vminfod_url()).unwrap())
    }

    /// All VMs, read anew.
    pub async fn vms(&self) -> Vec<VmObject> {
        self.client().vms(true).await.unwrap().vms
    }

    /// A VM in this state that has a NIC.
    pub async fn pick(&self, state: &str) -> VmObject {
        let found = |vm: &VmObject| vm.state() == Some(state) && !vm.macs().is_empty();
        let vm = self.vms().await.into_iter().find(found);
        vm.unwrap_or_else(|| panic!("no {state} VM with a NIC"))
    }

    /// A listener that has the first list.
    pub async fn watcher(&self) -> Watcher {
        synced(&self.client()).await
    }

    /// Fills NAPI and VMAPI for these VMs, with what an agent has to put right.
    pub async fn fill(&self) -> Wrongs {
        seed::fill(self, &self.vms().await).unwrap()
    }

    /// net-agent's `/status`.
    pub async fn agent_status(&self) -> Value {
        status(&self.agent_url()).await
    }

    /// Stops everything in order.
    pub async fn stop(self) {
        self.world.stop().await.unwrap();
    }
}

/// A node without daemons in `dir`, the same for the same number of VMs.
pub fn node(dir: &Path, vms: u32) -> Node {
    let program = Some(program());
    Node::create(&CreateOptions { vms, program, ..CreateOptions::new(dir.join("cn")) }).unwrap()
}

/// The node as one reads it without a daemon.
pub fn ctx(node: &Node) -> Ctx {
    let with = |paths: Paths, program: Program| paths.with(program, node.tool(program.name()));
    let paths = PROGRAMS.into_iter().fold(Paths::default(), with);
    Ctx::new(Root::new(node.root()), Arc::new(Spawned::new(paths)))
}

/// A text of a VM, empty where there is none.
pub fn text<'a>(vm: &'a VmObject, key: &str) -> &'a str {
    vm.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The whole `/status` of a daemon.
pub async fn status(url: &str) -> Value {
    let call = Call::get(&["status"]).query("full", "true");
    let answer = Http::new(url, OWN_AGENT).unwrap().execute(call).await.unwrap();
    Value::Object(answer.object().unwrap())
}

/// Looks at a condition until it holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + LATE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await; // A poll: nothing tells.
    }
}

/// Follows vminfod from its first list on.
pub async fn synced(hub: &Vminfod) -> Watcher {
    let mut watcher = watch(hub, Jitter::from_seed(1));
    see(&mut watcher, |event| matches!(event, WatchEvent::Synced(_)).then_some(())).await;
    watcher
}

/// Waits for the first event that `wanted` picks.
pub async fn see<T>(watcher: &mut Watcher, mut wanted: impl FnMut(&WatchEvent) -> Option<T>) -> T {
    let seen = async {
        loop {
            if let Some(found) = wanted(&watcher.next().await) {
                return found;
            }
        }
    };
    tokio::time::timeout(LATE, seen).await.expect("the event came in time")
}

/// Waits for a modification of the VM of this UUID or zone name that `wanted` accepts.
pub async fn see_modified(watcher: &mut Watcher, vm: &str, wanted: impl Fn(&VmObject) -> bool) {
    see(watcher, |event| match event {
        WatchEvent::Modified { vm: now, .. } => {
            ([&now["uuid"], &now["zonename"]].contains(&&Value::from(vm)) && wanted(now))
                .then_some(())
        }
        _ => None,
    })
    .await;
}

/// Whether a port ends a new connection of this key within a second.
pub async fn is_refused(holder: &Holder, at: SocketAddr, to: Identity) -> bool {
    let stream = TcpStream::connect(at).await.unwrap();
    match trust::connect(holder, stream, to).await {
        // The client's side of a handshake ends before the server has judged its certificate.
        Ok(mut stream) => {
            let mut rest = Vec::new();
            let end = stream.read_to_end(&mut rest);
            tokio::time::timeout(Duration::from_secs(1), end).await.is_ok()
        }
        Err(_) => true,
    }
}

/// Waits for the end of connections whose key was revoked just now: a second, and what this machine needs at present.
/// Returns which were cut in that time.
pub async fn cut<N>(kept: Vec<(N, Box<dyn Duplex>)>, machine: Duration) -> Vec<(N, bool)> {
    let end = tokio::time::Instant::now() + Duration::from_secs(1) + machine;
    let ends = kept.into_iter().map(async |(name, mut stream)| {
        let cut = tokio::time::timeout_at(end, stream.read_to_end(&mut Vec::new())).await;
        (name, cut.is_ok())
    });
    join_all(ends).await
}

/// Sends a signal to a process that this test started.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Writes another alias (`by-hand`) into a zone's XML, in place.
pub fn edit_alias(file: &Path) {
    let xml = std::fs::read_to_string(file).unwrap();
    let alias = xml.split("name=\"alias\"").nth(1).and_then(|rest| rest.split('"').nth(3));
    std::fs::write(file, xml.replace(alias.unwrap(), "YnktaGFuZA==")).unwrap();
}

/// The next line with this part.
pub async fn line_with(child: &mut Child, part: &str) -> String {
    let found = async {
        loop {
            let line = child.line().await.unwrap_or_else(|| panic!("it ended without {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    };
    tokio::time::timeout(LATE, found).await.unwrap_or_else(|_| panic!("it never said {part:?}"))
}

/// The next line of a log with this message.
pub async fn said(child: &mut Child, msg: &str) -> Value {
    tokio::time::timeout(LATE, child.said(msg)).await.expect(msg).unwrap()
}
