// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One simulated node: its files and zones, and the real vminfod, net-agent and vm-agent on it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use daemon::agent::Refusal;
use daemon::command::Program;
use rand::RngExt;
use rand::rngs::StdRng;
use sdc_clients::MacAddr;
use sdc_clients::vminfod::{Incomplete, VmFields as _, VmObject};
use serde_json::json;
use tokio::task::JoinHandle;
use vminfod::config::Config;
use vminfod::http::Api;
use vminfod::node::{Deadlines, LoadError, load};

use super::bugs::Bug;
use super::centre::Centre;
use super::commands::SimCommands;
use super::gate::{Gate, NAPI, VMAPI};
use super::hub::{Hub, Impostor};
use super::judge::Judge;
use super::outside::Outside;
use super::records::Records;
use super::seat::Seat;
use super::sight::Sight;
use super::signals::{SimWatch, Way, carry};
use super::truth::Life;
use super::wire::NodeWire;
use crate::cn;
use simnode::in_process::InProcess;
use simnode::sysevent::Stream;
use simnode::{CreateOptions, Node, Verbs, Wait};

/// Between two looks of the agent at a leaked NIC.
pub const SECOND_LOOK: Duration = Duration::from_secs(20);
/// Between two lists of the agent.
pub const RELIST: Duration = Duration::from_secs(360);
/// Between two comparisons of vm-agent, where it compares now and then.
pub const COMPARED: Duration = Duration::from_secs(600);
/// At most so long between two refreshes of vminfod.
pub const REFRESH: Duration = Duration::from_secs(150);
/// T of a node's cache: a command that hangs has its deadline, a failing VM its back-off.
pub const CACHE: Duration = Duration::from_secs(REFRESH.as_secs() + 200);
/// The deadline for the listing of the node's snapshots.
const SNAPSHOTS: Duration = Duration::from_secs(120);

/// A compute node.
pub struct Cn {
    pub uuid: String,
    pub node: Node,
    /// vmadm, which waits for nobody.
    pub verbs: Verbs,
    /// Its commands without faults.
    pub honest: InProcess,
    /// Its commands as vminfod runs them.
    pub commands: SimCommands,
    /// How signals travel.
    pub way: Way,
    pub watch: SimWatch,
    /// To its vminfod.
    pub wire: NodeWire,
    /// Who may be in its place for the agents.
    pub impostor: Impostor,
    /// To NAPI and VMAPI, for its net-agent.
    pub outside: Arc<Outside>,
    /// To VMAPI, for its vm-agent.
    pub records: Arc<Records>,
    /// Its net-agent.
    pub net: Seat,
    /// Its vm-agent.
    pub vms: Seat,
    centre: Centre,
    starts: u64,
    vminfod: Option<cn::Vminfod>,
    /// The VMs that its vminfod showed last, by zone name.
    last: HashSet<String>,
    /// The agents that live, for their operator.
    net_agent: Option<Arc<net_agent::agent::Agent>>,
    vm_agent: Option<Arc<vm_agent::agent::Agent>>,
    carrier: JoinHandle<()>,
    most: usize,
    left: usize,
}

impl Cn {
    /// A node with so many VMs; nothing runs on it yet.
    pub fn new(centre: &Centre, dir: &Path, nth: u64, vms: u32) -> anyhow::Result<Self> {
        Self::of_uuid(centre, dir, nth, (vms, None))
    }

    /// The same, with this uuid or one of its own.
    pub(super) fn of_uuid(
        centre: &Centre,
        dir: &Path,
        nth: u64,
        (vms, cn_uuid): (u32, Option<String>),
    ) -> anyhow::Result<Self> {
        let seed = centre.seed.wrapping_mul(31).wrapping_add(nth);
        let options = CreateOptions { vms, seed, cn_uuid, ..CreateOptions::new(dir.join("cn")) };
        let (node, honest, tap) = cn::node(options)?;
        let (uuid, way) = (node.cn_uuid().to_owned(), Way::new(seed ^ 0x5157));
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
            records: Arc::new(Records::new(centre, &uuid, seed ^ 0x0ec0)),
            net: Seat::new(Gate::new(centre, NAPI), dir, "net-agent"),
            vms: Seat::new(Gate::new(centre, VMAPI), dir, "vm-agent"),
            centre: centre.clone(),
            watch: SimWatch::new(honest.files()),
            wire,
            impostor: Impostor::default(),
            starts: 0,
            most: 0,
            left: 0,
            vminfod: None,
            last: HashSet::new(),
            net_agent: None,
            vm_agent: None,
            uuid,
            node,
            honest,
            way,
            carrier,
        })
    }

    /// Hides half of its VMs.
    pub(super) async fn hide_some(&self, rng: &mut StdRng) -> anyhow::Result<()> {
        for vm in self.centre.truth.on(&self.uuid) {
            if rng.random() {
                self.verbs.hide(&vm, true).await?;
            }
        }
        Ok(())
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
            sweep: often(Duration::from_secs(20)),
            refresh: (often(REFRESH * 4 / 5), often(REFRESH)),
            // Many nodes are in one process, and each is reached in memory.
            socket: None,
            ..Config::default()
        };
        let (commands, seed) = (Arc::new(self.commands.clone()), self.centre.seed ^ self.starts);
        let vminfod = cn::Vminfod::start(config, commands, seed).await?;
        self.watch.poll(&self.node.root(), &self.way);
        let api = vminfod.running.api.clone();
        self.wire.connect(Some(api.clone()));
        self.vminfod = Some(vminfod);
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
    pub async fn load(&self) -> Result<Vec<VmObject>, LoadError> {
        Ok(load::objects(&cn::ctx(&self.node)).await?.vms)
    }

    /// Ends vminfod where it is.
    pub async fn end_vminfod(&mut self) {
        self.last = self.names();
        self.wire.connect(None);
        if let Some(vminfod) = self.vminfod.take()
            && !vminfod.end().await
        {
            self.centre.truth.fault("V13", "some task of vminfod did not end");
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
            "state_dir": self.net.state_dir().to_string_lossy(), "log_level": "off",
            "seed": self.centre.seed.wrapping_add(self.starts) >> 1,
            "admin_uuid": self.centre.napi.options().admin_uuid,
            "mirror_stopped": bug != Some(Bug::ForgetStopped),
        });
        let hub = Hub::new(Arc::new(self.wire.clone()), &self.impostor, bug);
        let (node, outside) = self.net.wires(hub, self.outside.clone());
        let agent = cn::net_agent(&config, outside, node)?;
        self.net_agent = Some(Arc::clone(&agent));
        self.net.run(|shutdown| agent.run(shutdown));
        Ok(())
    }

    /// Starts vm-agent.
    pub fn start_vm_agent(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let bug = self.centre.bug;
        let age = if bug == Some(Bug::DestroyTheUnborn) { "1ms" } else { "2h" };
        if bug == Some(Bug::ForgetWhatWasTold) {
            self.vms.edit_memory(|memory| memory["told"] = json!([]))?;
        }
        let config = json!({
            "vmapi_url": "http://vmapi.sim", "server_uuid": self.uuid,
            "startup_delay": {"min": "0s", "max": "30s"}, "provisioning_age": age,
            "relist": if self.centre.relists { format!("{}s", COMPARED.as_secs()) } else { "24h".to_owned() },
            "state_dir": self.vms.state_dir().to_string_lossy(), "log_level": "off",
            "seed": self.centre.seed.wrapping_add(self.starts) >> 1,
        });
        let sight = Sight::new(self.wire.of_another(), bug);
        let hub = Hub::new(Arc::new(sight), &self.impostor, bug);
        let (node, outside) = self.vms.wires(hub, self.records.clone());
        let agent = cn::vm_agent(&config, &self.uuid, outside, node)?;
        self.vm_agent = Some(Arc::clone(&agent));
        self.vms.run(|shutdown| agent.run(shutdown));
        Ok(())
    }

    /// A deliberate bug: what the brake of vm-agent blocks goes all the same.
    pub(super) fn lift_brake(&self) {
        if self.centre.bug == Some(Bug::LiftTheBrake) {
            self.approve_vms();
        }
    }

    /// A person approves what the brakes of both agents block.
    pub(super) async fn approve(&self) {
        self.approve_vms();
        let Some(agent) = &self.net_agent else { return };
        if let Some(id) = agent.offer().await["approval"]["id"].as_str() {
            drop(agent.approve(id, "the simulator"));
        }
    }

    fn approve_vms(&self) {
        let Some(agent) = &self.vm_agent else { return };
        if let Some(id) = agent.offer()["approval"]["id"].as_str() {
            drop(agent.parts.approve(id, "the simulator"));
        }
    }

    /// Why its vm-agent writes nothing.
    pub(super) fn mute(&self) -> Option<Refusal> {
        self.vm_agent.as_ref()?.parts.gate.writable().err()
    }

    /// Ends all that runs.
    pub async fn end(mut self) {
        self.net.end().await;
        self.vms.end().await;
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

    /// The VMs that left live elsewhere: they count no more.
    pub(super) fn forget_most(&mut self) {
        self.most = 0;
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
    pub fn trouble(&self, tool: Program, trouble: simnode::decorators::Trouble, times: u32) {
        self.commands.trouble(tool, trouble, times);
    }

    /// The MACs of a VM as its configuration has them.
    pub fn macs(&self, vm: &str) -> anyhow::Result<Vec<String>> {
        let xml = self.node.zone_config(vm).with_context(|| format!("the zone {vm}"))?;
        // A configuration may have them without leading zeros.
        let macs =
            xml.all("network").filter_map(|nic| nic.get("mac-addr")?.parse::<MacAddr>().ok());
        Ok(macs.map(|mac| mac.to_string()).collect())
    }
}
