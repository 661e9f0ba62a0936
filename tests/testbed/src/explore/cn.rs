// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One node: its files and zones, and the real vminfod, migration-agent, net-agent and vm-agent on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use daemon::command::{Call, Commands, Run};
use migration_agent::config::QUIET;
use migration_agent::wire::Wire;
use migration_agent::{Agent, Setup, before_zones};
use migration_core::intent::End;
use sdc_clients::Http;
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::Transport;
use sdc_clients::vminfod::Vminfod;
use serde_json::json;
use simnode::in_process::InProcess;
use simnode::{CreateOptions, Node, Verbs, Wait};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use uuid::Uuid;
use vminfod::config::Config;

use super::bugs::Bug;
use super::data::{Cable, Port};
use super::disk::Disk;
use super::names::uuid;
use super::net::{Line, Net};
use super::points::{Life, Party};
use super::programs::Programs;
use crate::cn;
use crate::moving::MIGRATION;

/// Where the service is.
const SERVICE: &str = "https://service-1";
/// migration-agent's service, and its manifest as it is shipped.
pub const AGENT: &str = "smartdc/agent/migration-agent";
const MANIFEST: &str = include_str!("../../../../deploy/smf/migration-agent.xml");
/// SMF starts the method that comes before the zones again after this.
const METHOD: Duration = Duration::from_secs(600);
/// A program is drained within this.
const DRAINS: Duration = Duration::from_secs(3600);

/// What runs on a node.
#[derive(Default)]
struct Programmes {
    vminfod: Option<cn::Vminfod>,
    agent: Option<(Agent, Shutdown)>,
    others: Vec<(Shutdown, JoinHandle<()>)>,
    starts: u8,
}

/// A compute node.
pub struct Cn {
    pub uuid: Uuid,
    /// Which copy it has.
    pub end: End,
    pub node: Node,
    honest: InProcess,
    dir: PathBuf,
    carrier: JoinHandle<()>,
    /// Where its datasets are, unless they are simulated.
    pub disk: Option<Arc<Disk>>,
    bug: Option<Bug>,
    running: Mutex<Programmes>,
}

/// The commands of a vminfod, which are its own doing: they wait while it is stopped.
struct Gated {
    life: Life,
    inner: InProcess,
}

impl Commands for Gated {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            self.life.pass().await;
            let done = self.inner.run(call).await;
            self.life.pass().await;
            done
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&self.inner)
    }
}

impl Cn {
    /// A node without VMs; nothing runs on it yet.
    pub fn new(
        dir: &Path,
        end: End,
        disk: Option<Arc<Disk>>,
        bug: Option<Bug>,
    ) -> anyhow::Result<Cn> {
        let uuid = uuid(end);
        let dir = dir.join(end.to_string());
        let (vms, cn_uuid) = (0, Some(uuid.to_string()));
        let options = CreateOptions { vms, cn_uuid, ..CreateOptions::new(dir.join("node")) };
        let (node, honest, tap) = cn::node(options)?;
        // What a package brings is in its folder; what a boot imports is another one.
        let folder = match bug {
            Some(Bug::ManifestNotImported) => {
                "/opt/smartdc/agents/lib/node_modules/migration-agent/smf"
            }
            _ => "/opt/smartdc/agents/smf",
        };
        node.put(&format!("{folder}/migration-agent.xml"), MANIFEST.as_bytes(), 0o444)?;
        let carrier = tokio::spawn(honest.clone().feed_from(tap));
        let running = Mutex::default();
        Ok(Cn { uuid, end, node, honest, dir, carrier, disk, bug, running })
    }

    /// Where its net-agent keeps its holds.
    pub fn holds(&self) -> PathBuf {
        self.dir.join("net-agent")
    }

    /// Where its migration-agent keeps its state file.
    fn state_dir(&self) -> PathBuf {
        self.dir.join("migration-agent")
    }

    fn programs(&self, net: &Arc<Net>, life: &Life) -> Programs {
        let (node, holds, judge) = (self.node.by(MIGRATION), self.holds(), Arc::clone(&net.judge));
        let disk = self.disk.clone();
        Programs { node, holds, life: life.clone(), judge, disk, bug: self.bug }
    }

    /// The name under which its migration-agent answers.
    pub fn host(&self) -> String {
        format!("agent-{}", self.end)
    }

    fn vminfod_host(&self) -> String {
        format!("vminfod-{}", self.end)
    }

    /// vmadm, as a person uses it.
    pub fn verbs(&self) -> Verbs {
        Verbs::new(&self.node, Wait::none())
    }

    /// Starts vminfod, unless the boot of its node has done so meanwhile; returns when it serves.
    pub async fn start_vminfod(&self, net: &Arc<Net>) -> anyhow::Result<()> {
        if self.running.lock().await.vminfod.is_some() {
            return Ok(());
        }
        let life = net.points.life(Party::Vminfod(self.end));
        let config = Config { root: self.node.root(), ..Config::default() };
        let commands = Arc::new(Gated { life: life.clone(), inner: self.honest.clone() });
        let vminfod = cn::Vminfod::start(config, commands, 7).await?;
        net.show(&self.vminfod_host(), vminfod.running.api.clone(), &life);
        self.running.lock().await.vminfod = Some(vminfod);
        Ok(())
    }

    /// Ends vminfod, whose life is over.
    pub async fn end_vminfod(&self) {
        let vminfod = self.running.lock().await.vminfod.take();
        if let Some(vminfod) = vminfod {
            vminfod.end().await;
        }
    }

    /// Starts migration-agent.
    pub async fn start_agent(&self, net: &Arc<Net>) -> anyhow::Result<()> {
        let life = net.points.life(Party::Agent(self.end));
        let mut running = self.running.lock().await;
        running.starts += 1;
        let shutdown = Shutdown::new();
        let line: Arc<dyn Transport> = Line::new(net, Some(&life));
        let vminfod = format!("http://{}", self.vminfod_host());
        let vminfod = Http::with_transport(&vminfod, "migration-agent", Arc::clone(&line))?;
        let programs = self.programs(net, &life);
        let wire: Arc<dyn Wire> = match &self.disk {
            Some(disk) => Arc::new(Cable::new(disk, self.end, &life).await?),
            None => Arc::new(Port::new(net, self.end, &life)),
        };
        let setup = Setup {
            cn: self.uuid,
            top: self.node.root(),
            pool: "zones".to_owned(),
            state_dir: self.state_dir(),
            seed: [running.starts; 8],
            mbps: None,
            commands: Arc::new(programs),
            vminfod: Vminfod::with_http(vminfod.without_retries()),
            vm_agent: self.dir.join("vm-agent.sock"),
            wire,
            agents: agents(&line)?,
            transport: line,
        };
        let agent = Agent::new(setup, &shutdown).await?;
        agent.start();
        agent.ask_replaced(SERVICE.to_owned(), QUIET);
        net.serve(&self.host(), agent.control(), &life);
        running.agent = Some((agent, shutdown));
        Ok(())
    }

    /// Ends migration-agent, whose life is over.
    pub async fn end_agent(&self) {
        let running = self.running.lock().await.agent.take();
        if let Some((agent, shutdown)) = running {
            shutdown.trigger();
            agent.drain(DRAINS).await;
        }
    }

    /// Starts net-agent and vm-agent.
    pub async fn start_others(&self, net: &Arc<Net>) -> anyhow::Result<()> {
        let node = format!("http://{}", self.vminfod_host());
        let window = |low: &str, high: &str| json!({"min": low, "max": high});
        let mut running = self.running.lock().await;
        let seed = 7 + u64::from(running.starts);
        let common = |config: serde_json::Value, dir: &str| {
            let mut config = config;
            config["seed"] = json!(seed);
            config["log_level"] = json!("off");
            config["state_dir"] = json!(self.dir.join(dir));
            config["startup_delay"] = window("1s", "5s");
            config
        };
        let line = |party| -> Arc<dyn Transport> { Line::new(net, Some(&net.points.life(party))) };
        let config = common(
            json!({
                "napi": {"url": "http://napi.sim"}, "vmapi": {"url": "http://vmapi.sim"},
                "cnapi": {"url": "none"},
                "vminfod": {"url": node, "trust_tcp": true}, "cn_uuid": self.uuid.to_string(),
                "server_nic_delay": window("0s", "1s"),
            }),
            "net-agent",
        );
        let wire = line(Party::NetAgent(self.end));
        let agent = cn::net_agent(&config, Arc::clone(&wire), wire)?;
        let shutdown = Shutdown::new();
        running.others.push((shutdown.clone(), tokio::spawn(agent.run(shutdown))));
        let config = common(
            json!({
                "vmapi_url": "http://vmapi.sim", "vminfod": {"url": node, "trust_tcp": true},
                "server_uuid": self.uuid.to_string(), "cnapi": {"url": "none"},
            }),
            "vm-agent",
        );
        let wire = line(Party::VmAgent(self.end));
        let agent = cn::vm_agent(&config, &self.uuid.to_string(), Arc::clone(&wire), wire)?;
        let shutdown = Shutdown::new();
        running.others.push((shutdown.clone(), tokio::spawn(agent.run(shutdown))));
        Ok(())
    }

    /// Ends net-agent and vm-agent, whose lives are over.
    pub async fn end_others(&self) {
        let others = std::mem::take(&mut self.running.lock().await.others);
        for (shutdown, task) in others {
            shutdown.trigger();
            drop(task.await);
        }
    }

    /// Ends all that runs on it.
    pub async fn end(&self) {
        self.end_others().await;
        self.end_agent().await;
        self.end_vminfod().await;
    }

    /// The node boots, as its platform does it. Returns the services that it started.
    pub async fn boot(&self, net: &Arc<Net>) -> anyhow::Result<Vec<String>> {
        let mut boot = self.node.begin_boot()?;
        let mut started = Vec::new();
        while let Some(start) = self.node.next_start(&mut boot)? {
            if start.service == AGENT {
                self.before_zones(net).await?;
            }
            self.node.ended(&start, true)?;
            started.push(start.service);
        }
        Ok(started)
    }

    /// migration-agent's start method, up to where the agent serves.
    async fn before_zones(&self, net: &Arc<Net>) -> anyhow::Result<()> {
        let said = loop {
            let life = net.points.life(Party::Agent(self.end));
            let programs = self.programs(net, &life);
            let line: Arc<dyn Transport> = Line::new(net, Some(&life));
            let (dir, about) = (self.state_dir(), (SERVICE, self.uuid));
            let ways = (Arc::clone(&line), agents(&line)?);
            let looks = before_zones(&dir, &programs, ways, about);
            match tokio::time::timeout(METHOD, looks).await {
                Ok(said) => break said?,
                Err(_) => net.judge.note("-- the start method is started again".to_owned()),
            }
        };
        net.judge.note(format!("-- {} boots: {}", self.end, said.trim()));
        Ok(())
    }
}

/// The migration-agents of all nodes.
fn agents(line: &Arc<dyn Transport>) -> anyhow::Result<NodeAgents> {
    let at = |end: End| (uuid(end), format!("https://agent-{end}"));
    let known = Known { port: 5314, urls: [End::Source, End::Target].map(at).into() };
    let cnapi = Http::with_transport("http://cnapi.sim", "migration-agent", Arc::clone(line))?;
    Ok(NodeAgents::new(known, Cnapi::new(cnapi), Arc::clone(line), "migration-agent"))
}

impl Drop for Cn {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}
