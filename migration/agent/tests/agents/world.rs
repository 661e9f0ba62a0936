// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes with a VM each, their agents, and a service that gives orders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use daemon::Shutdown;
use migration_agent::config::QUIET;
use migration_agent::{Agent, Setup};
use migration_core::intent::End;
use migration_core::protocol::{About, Doing, Looked, Observe, Observed, Order, State, What};
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Call, Transport};
use sdc_clients::identity::Identity;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http};
use serde_json::{Value, json};
use simnode::node::Zfs;
use simnode::trees::Tree;
use simnode::{CreateOptions, Node, Verbs, Wait};
use tempfile::TempDir;
use trust::Keeper;
use uuid::Uuid;

use crate::commands::Programs;
use crate::net::{Net, Port, ToAgents, ToVminfod};

pub const VM: Uuid = Uuid::from_u128(0x0b4a4a3e_8b7c_4a09_9c3e_2a5d8f5e0c11);
pub const MIGRATION: Uuid = Uuid::from_u128(0x5e0c_11aa);

pub struct Cn {
    pub programs: Programs,
    seen: Node,
    pub uuid: Uuid,
    dir: TempDir,
    host: String,
    running: Option<(Agent, Shutdown)>,
    starts: u8,
}

pub struct World {
    pub source: Cn,
    pub target: Cn,
    pub net: Arc<Net>,
    revision: AtomicU64,
}

impl Cn {
    fn new(name: &str, uuid: u128, zfs: Zfs) -> Cn {
        let dir = TempDir::new().unwrap();
        // The same seed: both have the same images.
        let uuid = Uuid::from_u128(uuid);
        let options = CreateOptions {
            vms: 0,
            cn_uuid: Some(uuid.to_string()),
            ..CreateOptions::new(dir.path().join("node"))
        };
        let mut node = Node::create(&options).unwrap();
        let seen = node.clone(); // vminfod lists as illumos does
        node.set_info(|info| info.zfs = zfs).unwrap();
        let host = format!("{name}.example");
        let programs = Programs::new(&node);
        Cn { programs, seen, uuid, dir, host, running: None, starts: 0 }
    }

    /// Starts the agent.
    pub async fn start(&mut self, net: &Arc<Net>) {
        self.starts += 1;
        let shutdown = Shutdown::new();
        let vminfod = Arc::new(ToVminfod(self.seen.clone()));
        let vminfod = Http::with_transport("http://127.0.0.1:9090", "test", vminfod).unwrap();
        let setup = Setup {
            cn: self.uuid,
            top: self.programs.node.root(),
            pool: "zones".to_owned(),
            state_dir: self.dir.path().join("state"),
            seed: [self.starts; 8],
            mbps: None,
            commands: Arc::new(self.programs.clone()),
            vminfod: Vminfod::with_http(vminfod.without_retries()),
            vm_agent: self.dir.path().join("vm-agent.sock"),
            wire: Arc::new(Port::new(net, &self.host, self.name())),
            agents: agents(net, Some(self.name()), &net.hosts()),
            transport: Arc::new(ToAgents(Arc::clone(net), Some(self.name()))),
        };
        let agent = Agent::new(setup, &shutdown).await.unwrap();
        agent.start();
        net.connect(&self.host, self.name(), Some(agent.control()));
        self.running = Some((agent, shutdown));
    }

    /// Lets the agent ask the service at this host.
    pub fn asks(&self, service: &str) {
        self.running.as_ref().unwrap().0.ask_replaced(format!("https://{service}"), QUIET);
    }

    /// Kills the agent: nothing that it does goes on.
    pub async fn kill(&mut self, net: &Net) {
        net.connect(&self.host, self.name(), None);
        let (agent, shutdown) = self.running.take().unwrap();
        shutdown.trigger();
        agent.drain(Duration::from_secs(3600)).await;
    }

    /// Who its agent is.
    pub fn name(&self) -> Identity {
        Identity::Agent(self.uuid)
    }

    pub fn status(&self) -> Value {
        self.running.as_ref().unwrap().0.status()
    }

    /// Lets the agent show the certificate that this keeps.
    pub fn keeps(&self, keeper: Keeper) {
        self.running.as_ref().unwrap().0.keeps(Arc::new(keeper));
    }

    /// The lines of its metrics.
    pub async fn metrics(&self) -> Vec<String> {
        let page = daemon::metrics::answer(&self.running.as_ref().unwrap().0.metrics());
        let page = axum::body::to_bytes(page.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(page.into()).unwrap().lines().map(str::to_owned).collect()
    }

    /// A client of this agent, for a program that has proved to be this one.
    pub fn client(&self, net: &Arc<Net>, from: Option<Identity>) -> Http {
        let inner: Arc<dyn Transport> = Arc::new(ToAgents(Arc::clone(net), from));
        let url = format!("https://{}:5314", self.host);
        let http = Http::with_transport(&url, "test", inner).unwrap();
        http.without_retries().to_peer(self.name())
    }

    pub fn verbs(&self) -> Verbs {
        Verbs::new(&self.programs.node, Wait::none())
    }

    /// Each dataset of the VM with what it contains, its snapshots with what they contain, and what people set.
    pub fn contents(&self) -> Contents {
        let node = &self.programs.node;
        let all = node.datasets().unwrap();
        let rows = all.tree(&format!("zones/{VM}")).into_iter();
        rows.map(|row| {
            let mut own: BTreeMap<String, String> =
                all.own_properties(&row.name).into_iter().collect();
            own.retain(|key, _| key != "origin");
            let snapshots = all.snapshots(&row.name).into_iter();
            let snapshots = snapshots.map(|snapshot| {
                let contents = node.contents(&all, &snapshot.name).unwrap();
                (snapshot.name.clone(), (snapshot.guid().unwrap(), contents))
            });
            let contents = node.contents(&all, &row.name).unwrap();
            (row.name.clone(), (contents, snapshots.collect(), own))
        })
        .collect()
    }

    /// Each dataset of the VM with what it contains, and its snapshots.
    pub fn snapshots(&self) -> Vec<(String, Tree, Snapshots)> {
        let all = self.contents().into_iter();
        all.map(|(name, (contents, snapshots, _))| (name, contents, snapshots)).collect()
    }

    /// A property of one of the VM's datasets.
    pub fn get(&self, property: &str, dataset: &str) -> String {
        let text = self.programs.zfs(&format!("get -Hp -o value {property} {dataset}"));
        text.trim().to_owned()
    }
}

/// By name: GUID and contents.
pub type Snapshots = BTreeMap<String, (u64, Tree)>;

/// Of each dataset: contents, snapshots, properties.
pub type Contents = BTreeMap<String, (Tree, Snapshots, BTreeMap<String, String>)>;

/// The agents at these hosts, asked by a program that has proved to be this one.
pub fn agents(
    net: &Arc<Net>,
    from: Option<Identity>,
    hosts: &BTreeMap<Uuid, String>,
) -> NodeAgents {
    let transport: Arc<dyn Transport> = Arc::new(ToAgents(Arc::clone(net), from));
    let urls = hosts.iter().map(|(cn, host)| (*cn, format!("https://{host}:5314"))).collect();
    let cnapi = Http::with_transport("http://cnapi.example", "test", Arc::clone(&transport));
    NodeAgents::new(Known { port: 5314, urls }, Cnapi::new(cnapi.unwrap()), transport, "test")
}

impl World {
    /// A VM that runs on the source, and its hidden target.
    pub async fn new(zfs: Zfs) -> World {
        let source = Cn::new("source", 0x50_0a, zfs);
        let target = Cn::new("target", 0x50_0b, zfs);
        let net: Arc<Net> = Arc::default();
        for cn in [&source, &target] {
            net.connect(&cn.host, cn.name(), None);
        }
        let mut world = World { source, target, net, revision: AtomicU64::new(0) };
        let images = world.source.programs.zfs("list -H -o name -t snapshot -r zones");
        let is_root =
            |image: &&str| world.source.get("type", &image.replace("@final", "")) == "filesystem";
        let image = images.lines().find(is_root).unwrap();
        let image = image.trim_start_matches("zones/").trim_end_matches("@final").to_owned();
        let payload = json!({
            "uuid": VM.to_string(), "brand": "joyent", "alias": "web", "quota": 10, "ram": 256,
            "image_uuid": image, "delegate_dataset": true, "autoboot": true, "tags": {"role": "www"},
        });
        world.source.verbs().create(payload.as_object().unwrap()).await.unwrap();
        let mut hidden = payload.clone();
        hidden["autoboot"] = json!(false);
        hidden["do_not_inventory"] = json!(true);
        hidden["tags"] = json!({});
        world.target.verbs().create(hidden.as_object().unwrap()).await.unwrap();
        world.write("motd", 1, 200_000);
        world.source.programs.zfs(&format!("set a:b=c zones/{VM}"));
        world.start().await;
        world
    }

    pub async fn start(&mut self) {
        let net = Arc::clone(&self.net);
        self.source.start(&net).await;
        self.target.start(&net).await;
    }

    /// Sets a quota of the source's root that is nearly used up, and returns it.
    pub fn tight_quota(&self) -> String {
        let root = format!("zones/{VM}");
        let used: u64 = self.source.get("used", &root).parse().unwrap();
        let quota = (used + used / 40).to_string();
        self.source.programs.zfs(&format!("set quota={quota} {root}"));
        quota
    }

    /// The VM writes a file in its root, and one in what is delegated to it.
    pub fn write(&self, name: &str, byte: u8, len: usize) {
        let node = &self.source.programs.node;
        node.write_file(&format!("zones/{VM}"), &format!("root/{name}"), &vec![byte; len]).unwrap();
        node.write_file(&format!("zones/{VM}/data"), name, &vec![byte ^ 0xff; len]).unwrap();
    }

    pub fn cn(&self, end: End) -> &Cn {
        match end {
            End::Source => &self.source,
            End::Target => &self.target,
        }
    }

    pub fn about(&self, end: End, revision: u64) -> About {
        About { migration: MIGRATION, revision, nonce: None, vm: VM, end }
    }

    /// The next revision of the record.
    pub fn next(&self) -> u64 {
        self.revision.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub async fn post<T: serde::de::DeserializeOwned>(
        &self,
        cn: &Cn,
        route: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        self.post_as(Identity::Service, cn, route, body).await
    }

    /// The same, by another program.
    pub async fn post_as<T: serde::de::DeserializeOwned>(
        &self,
        from: Identity,
        cn: &Cn,
        route: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        let call = Call::new(http::Method::POST, &[route]).json(body);
        let call = call.timeout(Duration::from_secs(3600));
        cn.client(&self.net, Some(from)).execute(call).await?.json("an answer")
    }

    pub async fn observe(&self, end: End) -> Result<Observed, Error> {
        let about = self.about(end, self.next());
        self.post(self.cn(end), "observe", &Observe { about, brief: false }).await
    }

    /// The first answer to a question for the state of a copy.
    pub async fn look(&self, end: End, revision: u64, brief: bool) -> Looked {
        let about = self.about(end, revision);
        self.post(self.cn(end), "observe", &Observe { about, brief }).await.unwrap()
    }

    /// What is true of a copy, asked with this revision.
    pub async fn observe_at(&self, end: End, revision: u64) -> migration_core::machine::Node {
        let about = self.about(end, revision);
        let seen: Observed =
            self.post(self.cn(end), "observe", &Observe { about, brief: false }).await.unwrap();
        seen.node
    }

    /// Gives an order until it has ended, each time with the same revision: with a new one, an order that failed
    /// between two requests would begin again. Returns how it went, with what the agent says it did without.
    pub async fn doing(&self, end: End, order: What) -> Result<Doing, Error> {
        let given =
            Order { about: self.about(end, self.next()), wait_ms: 10_000, order, instead: None };
        loop {
            let doing: Doing = self.post(self.cn(end), "orders", &given).await?;
            if doing.state != State::Running {
                return Ok(doing);
            }
        }
    }

    /// The same, without what it did without.
    pub async fn order(&self, end: End, order: What) -> Result<State, Error> {
        Ok(self.doing(end, order).await?.state)
    }

    /// The same for an order that must be done.
    pub async fn done(&self, end: End, order: What) {
        assert_eq!(self.order(end, order.clone()).await.unwrap(), State::Done, "{order:?}");
    }

    /// Plans the sync of this number, from the source, while nothing is changed.
    pub async fn rehearse(&self, number: u32) -> Result<State, Error> {
        let (source, to) = (self.source.uuid, self.target.uuid);
        self.done(End::Target, What::Receive { from: source, image: None }).await;
        let before = (self.source.snapshots(), self.target.snapshots());
        let done = self.order(End::Source, What::Rehearse { number, to }).await;
        assert!(before == (self.source.snapshots(), self.target.snapshots()), "it changes nothing");
        done
    }

    /// Sends the snapshot of this number to the other copy.
    pub async fn send(&self, from: End, number: u32) -> Result<State, Error> {
        self.done(from.other(), What::Receive { from: self.cn(from).uuid, image: None }).await;
        self.order(from, What::Send { number, to: self.cn(from.other()).uuid, mbps: None }).await
    }

    /// Checks that both copies are the same, but for what only one of them has: later writes, other snapshots.
    pub fn are_same(&self) {
        let (source, target) = (self.source.contents(), self.target.contents());
        assert_eq!(source.keys().collect::<Vec<_>>(), target.keys().collect::<Vec<_>>());
        for (name, (contents, snapshots, own)) in &source {
            let (their_contents, their_snapshots, their_own) = &target[name];
            assert!(contents == their_contents, "{name} has other contents");
            assert_eq!(own, their_own, "{name}");
            let names = |all: &Snapshots| -> Vec<(String, u64)> {
                all.iter().map(|(name, (guid, _))| (name.clone(), *guid)).collect()
            };
            assert_eq!(names(snapshots), names(their_snapshots), "{name}");
            assert!(snapshots == their_snapshots, "{name}: a snapshot has other contents");
        }
    }
}

/// Stops the source, and brings the target to its last state.
pub async fn finish(world: &World, number: u32) {
    world.done(End::Source, What::Autoboot { on: false }).await;
    world.done(End::Source, What::Stop).await;
    assert_eq!(world.send(End::Source, number).await.unwrap(), State::Done);
    world.done(End::Source, What::RestoreQuota).await;
    world.done(End::Target, What::RestoreQuota).await;
}
