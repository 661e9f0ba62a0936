// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The data centre of one run: two nodes, NAPI, VMAPI, CNAPI, the store, and migration-service in front. It does what
//! faults ask of it: starts what died, lets go on what stopped, boots nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use migration_core::intent::End;
use mocks::napi::{Era, Options};
use mocks::transport::InProcess;
use mocks::{cnapi, imgapi, napi, papi, vmapi};
use sdc_clients::Http;
use sdc_clients::migrations::Migrations;
use sdc_clients::napi::Napi;
use serde_json::{Map, Value, json};
use simnode::life::platform::VMINFOD;
use simnode::{Verbs, Wait};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use vminfod::node::load;

use super::bugs::Bug;
use super::cn::{AGENT, Cn};
use super::disk::Disk;
use super::names::uuid;
use super::net::{Line, Net};
use super::points::{Fault, Party, Points};
use super::service::Instance;
use super::vault::Vault;
use crate::cn::ctx;
use crate::moving::MIGRATION;
use crate::moving::judge::Judge;
use crate::moving::subject::{self, VM};

/// What died is started again after so long.
const DEAD: Duration = Duration::from_secs(20);
/// What stopped goes on after so long: longer than every wait of the others, and than the lease.
const STOPPED: Duration = Duration::from_secs(300);
/// So often somebody looks whether a migration rests.
const LOOKS: Duration = Duration::from_secs(2);
/// Between two heartbeats of a node.
const BEAT: Duration = Duration::from_secs(5);
/// A node boots for so long.
const BOOTS: Duration = Duration::from_secs(90);

/// What the world is like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// net-agent and vm-agent run on both nodes.
    pub with_agents: bool,
    /// A deliberate bug.
    pub bug: Option<Bug>,
}

/// The data centre.
pub struct World {
    /// The source's node, and the target's.
    pub nodes: [Cn; 2],
    /// What is between all.
    pub net: Arc<Net>,
    pub judge: Arc<Judge>,
    /// NAPI.
    pub napi: napi::Store,
    /// VMAPI.
    pub vmapi: vmapi::Store,
    /// CNAPI.
    pub cnapi: cnapi::Store,
    /// The database.
    pub(super) vault: Vault,
    service: Instance,
    /// It takes over where the first one is away.
    second: Instance,
    shape: Shape,
    /// Nodes without power.
    down: Arc<Mutex<BTreeSet<End>>>,
    /// The nodes' heartbeats.
    beats: JoinHandle<()>,
    /// The NICs as NAPI had them at first.
    pub nics: Vec<Value>,
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

impl World {
    /// A VM with two NICs and three datasets runs on the source.
    pub async fn new(dir: &Path, points: &Points, shape: Shape) -> anyhow::Result<World> {
        World::on(dir, points, shape, [None, None]).await
    }

    /// The same with the VM's datasets on these disks, empty but for what an image and `vmadm create` bring. Neither
    /// the judge nor `check` knows what is on them.
    pub async fn on(
        dir: &Path,
        points: &Points,
        shape: Shape,
        disks: [Option<Arc<Disk>>; 2],
    ) -> anyhow::Result<World> {
        let judge = Arc::new(Judge::new(VM));
        let net = Net::new(points, &judge, shape.bug);
        let [source, target] = disks;
        let nodes = [
            Cn::new(dir, End::Source, source, shape.bug)?,
            Cn::new(dir, End::Target, target, shape.bug)?,
        ];
        net.early(&nodes[1].node);
        let (napi, vmapi) = (napi::Store::new(Options::era(Era::Rfd58)), vmapi::Store::default());
        let (cnapi, imgapi, papi) =
            (cnapi::Store::default(), imgapi::Store::default(), papi::Store::default());
        net.mock("napi.sim", InProcess::new(napi.clone()));
        net.mock("vmapi.sim", InProcess::new(vmapi.clone()));
        net.mock("cnapi.sim", InProcess::new(cnapi.clone()));
        net.mock("imgapi.sim", InProcess::new(imgapi.clone()));
        net.mock("papi.sim", InProcess::new(papi.clone()));
        for cn in &nodes {
            cnapi.put_server(server(cn)?);
        }
        let verbs = |cn: &Cn| Verbs::new(&cn.node.by(MIGRATION), Wait::none());
        let hands = nodes.each_ref().map(|cn| (cn.uuid.to_string(), (verbs(cn), cn.disk.clone())));
        cnapi.set_hands(Arc::new(move |order: cnapi::Order| {
            let hands = hands.iter().find(|(cn, _)| *cn == order.server_uuid);
            let hands = hands.map(|(_, hands)| hands.clone());
            Box::pin(async move {
                let (verbs, disk) = hands.ok_or("there is no such node")?;
                match order.verb.as_str() {
                    "create" => {
                        if let Some(disk) = disk {
                            disk.make(&order.body).map_err(|error| error.to_string())?;
                        }
                        let made = verbs.create(&order.body).await;
                        made.map(|_| json!({})).map_err(|error| error.to_string().into())
                    }
                    verb => Err(format!("this node cannot {verb}").into()),
                }
            })
        }));
        let agents: BTreeMap<_, _> =
            nodes.iter().map(|cn| (cn.uuid, format!("https://{}", cn.host()))).collect();
        let vault = Vault::new(points.restores())?;
        let leases = match shape.bug {
            Some(Bug::LeaseIgnored) => Vault::new(false)?,
            _ => vault.clone(),
        };
        let second = Instance::new(2, &vault, &leases, agents.clone());
        let service = Instance::new(1, &vault, &vault, agents);
        judge.know(&vmapi);
        let (nics, down) = (Vec::new(), Arc::<Mutex<BTreeSet<End>>>::default());
        let beats = tokio::spawn(beat(cnapi.clone(), points.clone(), Arc::clone(&down)));
        let mut world = World {
            nodes,
            net,
            judge,
            napi,
            vmapi,
            cnapi,
            vault,
            service,
            second,
            shape,
            nics,
            down,
            beats,
        };
        world.create(&imgapi, &papi).await?;
        world.start().await?;
        Ok(world)
    }

    /// The VM as it is at first.
    async fn create(&mut self, imgapi: &imgapi::Store, papi: &papi::Store) -> anyhow::Result<()> {
        let source = &self.nodes[0];
        let vm = subject::payload()?;
        let text = |name: &str| vm.get(name).cloned().unwrap_or_default();
        match &source.disk {
            None => imgapi.put(object(&json!({
                "uuid": text("image_uuid"), "state": "active",
                "files": [{"compression": "gzip", "size": 1000, "sha1": ""}],
            }))),
            // IMGAPI does not have its image, which has to come from the source.
            Some(disk) => {
                self.judge.rest();
                disk.install(text("image_uuid").as_str().unwrap_or_default())?;
                disk.make(&vm)?;
            }
        }
        papi.put(object(&json!({"uuid": text("billing_id"), "name": text("package_name")})));
        subject::create(&source.node, &vm).await?;
        for cn in &self.nodes {
            self.judge.add(cn.end, &cn.node);
        }
        if self.nodes.iter().all(|cn| cn.disk.is_none()) {
            self.nodes.iter().try_for_each(|cn| subject::beside(&cn.node))?;
            self.judge.know_makers();
        }
        self.judge.write(End::Source, &source.node);
        let all = load::objects(&ctx(&source.node)).await.context("the first load")?.vms;
        self.vmapi.seed_from_vms(&all, &source.uuid.to_string());
        self.napi.seed_from_vms(&all, &source.uuid.to_string()).map_err(anyhow::Error::msg)?;
        self.nics = self.napi.nics();
        ensure!(self.nics.len() == 2, "{} NICs", self.nics.len());
        Ok(())
    }

    async fn start(&self) -> anyhow::Result<()> {
        for cn in &self.nodes {
            cn.start_vminfod(&self.net).await?;
            cn.start_agent(&self.net).await?;
            if self.shape.with_agents {
                cn.start_others(&self.net).await?;
            }
        }
        self.service.start(&self.net).await?;
        self.second.start(&self.net).await
    }

    pub async fn end(&self) {
        self.beats.abort();
        self.service.end().await;
        self.second.end().await;
        for cn in &self.nodes {
            cn.end().await;
        }
        self.net.close();
    }

    /// The node of a copy.
    pub fn cn(&self, end: End) -> &Cn {
        match end {
            End::Source => &self.nodes[0],
            End::Target => &self.nodes[1],
        }
    }

    /// A client of the service, as an operator has it.
    pub fn migrations(&self) -> anyhow::Result<Migrations> {
        let url = format!("http://{}", self.service.host());
        let http = Http::with_transport(&url, "operator", Line::new(&self.net, None))?;
        Ok(Migrations::new(http.without_retries()))
    }

    /// A client of NAPI.
    pub fn napi_client(&self) -> Napi {
        let line = Line::new(&self.net, None);
        let http = Http::with_transport("http://napi.sim", "operator", line);
        Napi::new(http.expect("invariant: the address is one"))
    }

    /// Returns true if there is a deliberate bug.
    pub fn has_bug(&self) -> bool {
        self.shape.bug.is_some()
    }

    /// Returns true if net-agent and vm-agent run.
    pub fn with_agents(&self) -> bool {
        self.shape.with_agents
    }

    /// Does what a fault asks for.
    pub async fn enact(&self, fault: Fault) -> anyhow::Result<()> {
        self.judge.note(format!("-- {fault}"));
        match fault {
            Fault::Dies(party) => {
                self.bury(party).await;
                sleep(DEAD).await;
                self.judge.note(format!("-- {party} is started"));
                self.revive(party).await?;
            }
            Fault::Stops(party) => {
                sleep(STOPPED).await;
                self.judge.note(format!("-- {party} goes on"));
                self.net.points.go_on(party);
            }
            Fault::Cut(end) => {
                sleep(STOPPED).await;
                self.judge.note(format!("-- the network has the {end} again"));
                self.net.points.mend(end);
            }
            Fault::Reboots(end) if self.is_down(end) => {}
            Fault::Reboots(end) => {
                self.goes_down(end).await?;
                sleep(BOOTS).await;
                self.comes_up(end).await?;
            }
            Fault::Empty | Fault::Older(_) => {
                self.service.end().await;
                self.second.end().await;
                self.vault.lose(match fault {
                    Fault::Older(ago) => Some(ago),
                    _ => None,
                })?;
                sleep(DEAD).await;
                self.judge.note("-- the services are started");
                self.service.start(&self.net).await?;
                self.second.start(&self.net).await?;
            }
            Fault::Fails => {
                sleep(STOPPED).await;
                self.judge.note("-- it is done again");
                self.net.points.heal();
            }
            Fault::Lasts | Fault::Hollow => {
                self.rested(LOOKS).await?;
                self.judge.note("-- it is done again");
                self.net.points.heal();
            }
            Fault::Hand => self.boots_the_hidden_copy().await,
            // No doing of the world.
            Fault::Loses | Fault::Late | Fault::Away(_) | Fault::Stale | Fault::Unseen => {}
        }
        Ok(())
    }

    /// Somebody boots a copy that is hidden and does not run, if there is one.
    async fn boots_the_hidden_copy(&self) {
        let is_it = |cn: &&Cn| {
            let copy = self.judge.copy(&cn.node).filter(|it| it.hidden && !it.running);
            copy.is_some() && !self.is_down(cn.end)
        };
        let Some(cn) = self.nodes.iter().rev().find(is_it) else { return };
        self.judge.by_hand(cn.end);
        let booted = cn.verbs().boot(VM).await;
        self.judge.note(format!("-- booted by hand: the {}'s copy: {booted:?}", cn.end));
        self.judge.check("a hand has booted the hidden copy");
    }

    fn down(&self) -> MutexGuard<'_, BTreeSet<End>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_down(&self, end: End) -> bool {
        self.down().contains(&end)
    }

    /// A node loses its power, with all that runs on it.
    pub async fn goes_down(&self, end: End) -> anyhow::Result<()> {
        self.down().insert(end);
        let cn = self.cn(end);
        cn.end().await;
        cn.node.lose_power()?;
        self.judge.check("the power is lost");
        Ok(())
    }

    /// A node boots, and what SMF starts on it runs.
    pub async fn comes_up(&self, end: End) -> anyhow::Result<()> {
        let cn = self.cn(end);
        let started = cn.boot(&self.net).await?;
        self.judge.dark(end, false);
        self.judge.check("the node has booted");
        self.judge.note(format!("-- {end} has booted"));
        self.down().remove(&end);
        for (service, party) in [(VMINFOD, Party::Vminfod(end)), (AGENT, Party::Agent(end))] {
            if started.iter().any(|it| it == service) {
                self.revive(party).await?;
            }
        }
        if self.shape.with_agents {
            cn.start_others(&self.net).await?;
        }
        Ok(())
    }

    async fn bury(&self, party: Party) {
        match party {
            Party::Service(_) => self.service.end().await,
            Party::Agent(end) => self.cn(end).end_agent().await,
            Party::Vminfod(end) => self.cn(end).end_vminfod().await,
            Party::NetAgent(end) | Party::VmAgent(end) => self.cn(end).end_others().await,
        }
    }

    async fn revive(&self, party: Party) -> anyhow::Result<()> {
        if party.end().is_some_and(|end| self.is_down(end)) {
            return Ok(()); // it starts with its node
        }
        match party {
            Party::Service(_) => self.service.start(&self.net).await,
            Party::Agent(end) => self.cn(end).start_agent(&self.net).await,
            Party::Vminfod(end) => self.cn(end).start_vminfod(&self.net).await,
            Party::NetAgent(end) | Party::VmAgent(end) => {
                self.cn(end).start_others(&self.net).await
            }
        }
    }
}

/// CNAPI hears the nodes that have power and that the network has.
async fn beat(cnapi: cnapi::Store, points: Points, down: Arc<Mutex<BTreeSet<End>>>) {
    loop {
        for end in [End::Source, End::Target] {
            let is_down = down.lock().unwrap_or_else(PoisonError::into_inner).contains(&end);
            if !is_down && !points.is_cut(Some(end), None) {
                cnapi.beat(&uuid(end).to_string());
            }
        }
        sleep(BEAT).await;
    }
}

/// CNAPI's record of a node.
fn server(cn: &Cn) -> anyhow::Result<Map<String, Value>> {
    let sysinfo = std::fs::read(cn.node.path("/tmp/.sysinfo.json"))?;
    let mut sysinfo: Map<String, Value> = serde_json::from_slice(&sysinfo)?;
    sysinfo.insert("UUID".to_owned(), json!(cn.uuid.to_string()));
    Ok(object(&json!({
        "uuid": cn.uuid.to_string(), "hostname": sysinfo.get("Hostname"), "status": "running",
        "setup": true, "reserved": false, "current_platform": sysinfo.get("Live Image"),
        "sysinfo": sysinfo,
    })))
}
