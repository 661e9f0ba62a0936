// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One simulated node: its files and zones, the real vminfod and net-agent on it, and the crashes
//! of both.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use daemon::Shutdown;
use net_agent::agent::{Agent, clients};
use sdc_clients::Jitter;
use sdc_clients::vminfod::{Incomplete, VmFields as _, VmObject};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vminfod::config::Config;
use vminfod::http::Api;
use vminfod::node::commands::{Commands, Tool};
use vminfod::node::root::Root;
use vminfod::node::{Ctx, Deadlines, LoadError, load};

use super::bugs::Bug;
use super::centre::Centre;
use super::commands::SimCommands;
use super::gate::Gate;
use super::gated;
use super::judge::Judge;
use super::outside::Outside;
use super::signals::{SimWatch, Way, carry};
use super::truth::Life;
use super::wire::NodeWire;
use simnode::in_process::InProcess;
use simnode::sysevent::Stream;
use simnode::tap::Tap;
use simnode::{CreateOptions, Node, Verbs, Wait};

/// Between two looks of the agent at a leaked NIC.
pub const SECOND_LOOK: Duration = Duration::from_secs(20);
/// Between two lists of the agent.
pub const RELIST: Duration = Duration::from_secs(360);
/// At most so long between two refreshes of vminfod.
pub const REFRESH: Duration = Duration::from_secs(150);
/// T of a node's cache: a command that hangs has its deadline, a failing VM its back-off.
pub const CACHE: Duration = Duration::from_secs(REFRESH.as_secs() + 200);
/// The deadline for the listing of the node's snapshots.
const SNAPSHOTS: Duration = Duration::from_secs(120);

/// A compute node.
pub struct Cn {
    /// Its UUID.
    pub uuid: String,
    /// The node.
    pub node: Node,
    /// vmadm, which waits for nobody.
    pub verbs: Verbs,
    /// Its commands without faults.
    pub honest: InProcess,
    /// Its commands as vminfod runs them.
    pub commands: SimCommands,
    /// How signals travel.
    pub way: Way,
    /// File notices.
    pub watch: SimWatch,
    /// To its vminfod.
    pub wire: NodeWire,
    /// To NAPI and VMAPI.
    pub outside: Arc<Outside>,
    /// What passes between its agent and the world.
    pub gate: Gate,
    centre: Centre,
    /// Where its agent keeps its memory, one place for each that died.
    state_dir: PathBuf,
    crashes: u64,
    starts: u64,
    vminfod: Option<(vminfod::Running, Shutdown)>,
    /// The VMs that its vminfod showed last, by zone name.
    last: HashSet<String>,
    agent: Option<(Shutdown, JoinHandle<()>)>,
    carrier: JoinHandle<()>,
    most: usize,
    left: usize,
}

impl Cn {
    /// A node with so many VMs; nothing runs on it yet.
    pub fn new(centre: &Centre, dir: &Path, nth: u64, vms: u32) -> anyhow::Result<Self> {
        let seed = centre.seed.wrapping_mul(31).wrapping_add(nth);
        let tap = Tap::default();
        let program = std::env::current_exe().ok();
        let options = CreateOptions { vms, seed, program, ..CreateOptions::new(dir.join("cn")) };
        let node = Node::create(&options)?.tapped(&tap);
        let (uuid, honest, way) =
            (node.cn_uuid().to_owned(), InProcess::new(&node), Way::new(seed ^ 0x5157));
        let carrier = tokio::spawn(carry(tap, honest.clone(), way.clone()));
        for zone in node.zones()?.iter() {
            centre.truth.set(&zone.zonename, Life::On(uuid.clone()));
        }
        let wire = NodeWire::new(centre.bug);
        let judge = Judge::new(&node, centre, &wire, SECOND_LOOK);
        let outside = Outside::new(centre, judge, seed ^ 0x0077);
        Ok(Self {
            verbs: Verbs::new(&node, Wait::none()),
            commands: SimCommands::new(honest.clone(), seed ^ 0x00c0, centre.bug),
            outside: Arc::new(outside),
            gate: Gate::new(&centre.napi, &centre.truth, centre.bug),
            state_dir: dir.join("agent"),
            crashes: 0,
            centre: centre.clone(),
            watch: SimWatch::new(honest.files()),
            wire,
            starts: 0,
            most: 0,
            left: 0,
            vminfod: None,
            last: HashSet::new(),
            agent: None,
            uuid,
            node,
            honest,
            way,
            carrier,
        })
    }

    /// Starts vminfod; returns when it serves.
    pub async fn start_vminfod(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let deaf = self.centre.bug == Some(Bug::CountOnSysevents);
        let often = |span: Duration| if deaf { Duration::from_secs(86_400) } else { span };
        let config = Config {
            // A listing of snapshots that hangs must not outlast the end of a world.
            deadlines: Deadlines { zfs_snapshots: SNAPSHOTS, ..Deadlines::default() },
            root: self.node.root(),
            listen: ([127, 0, 0, 1], 0).into(),
            sweep: often(Duration::from_secs(20)),
            refresh: (often(REFRESH * 4 / 5), often(REFRESH)),
            ..Config::default()
        };
        let shutdown = Shutdown::new();
        let commands: Arc<dyn Commands> = Arc::new(self.commands.clone());
        let jitter = Jitter::from_seed(self.centre.seed ^ self.starts);
        let running = vminfod::serve_with(config, commands, jitter, shutdown.clone()).await?;
        self.watch.look(&self.node.root(), &self.way);
        self.wire.connect(Some(running.api.clone()));
        let api = running.api.clone();
        self.vminfod = Some((running, shutdown));
        self.judge_start(api).await;
        Ok(())
    }

    /// V15: a fresh daemon shows what an old one shows, or says that it is incomplete.
    async fn judge_start(&self, api: Api) {
        let mut request = http::Request::new(String::new());
        *request.uri_mut() = http::Uri::from_static("/vms");
        let (answer, _) = api.answer(request).await.into_parts();
        let (incomplete, shown) = (Incomplete::of(&answer.headers), self.names());
        for vm in self.last.difference(&shown).filter(|vm| !incomplete.has(vm)) {
            if self.centre.truth.life(vm) == Some(Life::On(self.uuid.clone())) {
                self.centre.truth.fault("V15", format!("a fresh vminfod does not show {vm}"));
            }
        }
    }

    fn names(&self) -> HashSet<String> {
        let name = |vm: VmObject| vm.zonename().map(str::to_owned);
        self.shown().into_iter().filter_map(name).collect()
    }

    /// What its vminfod shows; nothing when none runs.
    pub fn shown(&self) -> Vec<VmObject> {
        let vms = |api: Api| api.published.snapshot().vms.values().map(|vm| vm.object()).collect();
        self.wire.api().map(vms).unwrap_or_default()
    }

    /// What a reading of the node without a daemon finds, with commands that work.
    ///
    /// # Errors
    /// When a source that concerns every VM fails.
    pub async fn load(&self) -> Result<Vec<VmObject>, LoadError> {
        let ctx = Ctx::new(Root::new(self.node.root()), Arc::new(self.honest.clone()));
        Ok(load::objects(&ctx).await?.vms)
    }

    /// Ends vminfod where it is.
    pub async fn end_vminfod(&mut self) {
        self.last = self.names();
        self.wire.connect(None);
        if let Some((running, shutdown)) = self.vminfod.take() {
            shutdown.trigger();
            if !running.ended().await {
                self.centre.truth.fault("V13", "some task of vminfod did not end");
            }
        }
    }

    /// Starts net-agent.
    pub fn start_agent(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        self.outside.judge().restart();
        let bug = self.centre.bug;
        let second_look = if bug == Some(Bug::SkipSecondLook) { "1ms" } else { "20s" };
        let vmapi = if bug == Some(Bug::AskNoVmapi) { "none" } else { "http://vmapi.sim" };
        let (relist, resync) =
            if bug == Some(Bug::CountOnEvents) { ("0s", "24h") } else { ("360s", "60s") };
        let config = json!({
            "napi": {"url": "http://napi.sim"}, "vmapi": {"url": vmapi}, "cn_uuid": self.uuid,
            "startup_delay": {"min": "5s", "max": "30s"},
            "server_nic_delay": {"min": "0s", "max": "10s"},
            "second_look": second_look, "min_age": "60s", "relist": relist, "resync": resync,
            "unsupported_backoff": "120s", "hidden_memory": "300s",
            "state_dir": self.state_dir.to_string_lossy(), "log_level": "off",
            "seed": self.centre.seed.wrapping_add(self.starts) >> 1,
            "admin_uuid": self.centre.napi.options().admin_uuid,
            "mirror_stopped": bug != Some(Bug::ForgetStopped),
        });
        let config = net_agent::config::Config::from_json(&config.to_string())?;
        let memory = self.state_dir.join("memory.json");
        let (node, outside) =
            gated::open(&self.gate, Arc::new(self.wire.clone()), self.outside.clone(), &memory);
        let made = clients(&config, outside, node)?;
        let agent = Agent::with_clients(config, made);
        let shutdown = Shutdown::new();
        let task = tokio::spawn(agent.run(shutdown.clone()));
        self.agent = Some((shutdown, task));
        Ok(())
    }

    /// Kills net-agent where it is. What it kept on the disk stays; `back`: the last write of it
    /// never got there.
    pub async fn kill_agent(&mut self, back: bool) -> anyhow::Result<()> {
        self.gate.kill();
        let kept = self.gate.memory(back);
        self.crashes += 1;
        self.state_dir.set_file_name(format!("agent-{}", self.crashes));
        std::fs::create_dir_all(&self.state_dir)?;
        if let Some(kept) = kept {
            std::fs::write(self.state_dir.join("memory.json"), kept)?;
        }
        self.end_agent().await;
        Ok(())
    }

    /// Edits what the dead agent remembers.
    pub(super) fn edit_memory(&self, edit: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let file = self.state_dir.join("memory.json");
        let Ok(text) = std::fs::read(&file) else { return Ok(()) };
        let mut memory = serde_json::from_slice(&text)?;
        edit(&mut memory);
        Ok(std::fs::write(&file, memory.to_string())?)
    }

    /// Ends net-agent in good order, wherever it is: its requests are cut off.
    pub async fn end_agent(&mut self) {
        if let Some((shutdown, task)) = self.agent.take() {
            shutdown.trigger();
            drop(task.await);
        }
    }

    /// Ends all that runs.
    pub async fn end(mut self) {
        self.end_agent().await;
        self.end_vminfod().await;
        self.carrier.abort();
    }

    /// May a VM go without tripping the brake, which waits for the operator and so never lets this
    /// world come to rest? It does when half of a node's VMs are gone.
    pub fn may_lose_one(&mut self) -> bool {
        let now = self.centre.truth.on(&self.uuid).len();
        self.most = self.most.max(now);
        now > self.most / 2 + 2
    }

    /// May these NICs stay behind in NAPI, for the agent to delete? More than five that look leaked
    /// or were deleted within an hour trip the brake too.
    pub fn may_leave(&mut self, nics: usize) -> bool {
        let may = self.left + nics <= 5;
        self.left += if may { nics } else { 0 };
        may
    }

    /// A child that follows events dies.
    pub fn cut_source(&self, zones: bool) {
        self.honest.cut(if zones { Stream::Zones } else { Stream::Zfs });
    }

    /// Faults are over on this node.
    pub fn calm(&self) {
        self.commands.calm();
        self.way.set(super::signals::Weather::GOOD);
    }

    /// A dataset command that hangs, and the like, for the next few runs.
    pub fn trouble(&self, tool: Tool, trouble: simnode::decorators::Trouble, times: u32) {
        self.commands.trouble(tool, trouble, times);
    }

    /// The MACs of a VM as its configuration has them.
    pub fn macs(&self, vm: &str) -> anyhow::Result<Vec<String>> {
        let xml = self.node.zone_config(vm).with_context(|| format!("the zone {vm}"))?;
        Ok(xml.all("network").filter_map(|nic| nic.get("mac-addr").map(str::to_owned)).collect())
    }
}
