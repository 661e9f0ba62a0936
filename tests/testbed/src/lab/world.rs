// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The world of the lab: a node, the mocks, and the daemons as processes that can be started,
//! killed and started again.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sdc_clients::http::Http;
use sdc_clients::migrations::Migrations;
use sdc_clients::napi::{Napi, Nic, NicList, NicQuery};
use sdc_clients::vminfod::Vminfod;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::asking::OWN_AGENT;
use super::centre::Centre;
use super::config::Configs;
use super::daemons::{Daemons, PAGE};
use super::error::LabError;
use super::options::WorldOptions;
use super::ports::{self, Ports};
use super::qemus::Qemus;
use super::tools::{self, Places};
use crate::moving::subject;
use mocks::{napi, vmapi};
use simnode::{CreateOptions, Node};

/// A running world. Dropping it ends its processes.
#[derive(Debug)]
pub struct World {
    options: WorldOptions,
    node: Node,
    /// The node's admin address.
    admin: Ipv4Addr,
    /// The mock NAPI.
    pub napi: Arc<napi::Server>,
    /// The mock VMAPI.
    pub vmapi: Arc<vmapi::Server>,
    centre: Centre,
    daemons: Daemons,
    ports: Ports,
    qemus: Option<Qemus>,
    /// Hears what is typed.
    _control: JoinSet<()>,
}

impl World {
    /// Creates the node and starts the mocks; no daemon runs yet.
    pub async fn create(options: WorldOptions) -> Result<Self, LabError> {
        let centre = Centre::start(&options).await?;
        Self::join(options, centre, 0).await
    }

    /// Creates another node of the same data centre, in a directory, at an address and with a seed of its own; no
    /// daemon runs there yet. Each is stopped by itself, and the last one stops the services.
    pub async fn beside(&self, nth: u32) -> Result<Self, LabError> {
        let mut dir = self.options.dir.clone().into_os_string();
        dir.push(format!("{}", nth + 1));
        let options = WorldOptions {
            dir: dir.into(),
            seed: self.options.seed.wrapping_add(1000 * u64::from(nth)),
            vminfod_port: 0,
            agent_port: 0,
            console_port: 0,
            ..self.options.clone()
        };
        Self::join(options, self.centre.clone(), nth).await
    }

    async fn join(options: WorldOptions, centre: Centre, nth: u32) -> Result<Self, LabError> {
        let admin = ports::admin(nth);
        let node = Node::create(&CreateOptions {
            vms: options.vms,
            slot: 10_000 * nth as usize,
            seed: options.seed,
            admin_ip: Some(admin),
            program: Some(options.program.clone()),
            ..CreateOptions::new(&options.dir)
        })?;
        let what = "looking for a free port";
        let mut held = Vec::new();
        let mut free = |given| ports::or_free(given, &mut held).map_err(LabError::io(what));
        let ports = Ports {
            vminfod: free(options.vminfod_port)?,
            agent: free(options.agent_port)?,
            vm_agent: free(0)?,
            kvmd: free(0)?,
            console: free(options.console_port)?,
            migration_agent: free(0)?,
            fleet_agent: free(0)?,
            fleet_page: free(0)?,
            volapi: [free(0)?, free(0)?],
            _held: held,
        };
        centre.add(&node);
        // Where holds are kept, also while net-agent is left out.
        std::fs::create_dir_all(options.dir.join("net-agent"))
            .map_err(LabError::io("making net-agent's directory"))?;
        let daemons = centre.join(&options, &node).await;
        let _control =
            centre.listen(&options.dir).map_err(LabError::io("opening the lab's socket"))?;
        let mut world = Self {
            options,
            node,
            admin,
            napi: Arc::clone(&centre.napi),
            vmapi: Arc::clone(&centre.vmapi),
            centre,
            daemons,
            ports,
            qemus: None,
            _control,
        };
        let (napi_url, vmapi_url) = (world.napi.url(), world.vmapi.url());
        world.node.set_info(|info| {
            info.napi_url = Some(napi_url);
            info.vmapi_url = Some(vmapi_url);
        })?;
        Ok(world)
    }

    /// Tells of each daemon that ends from now on, also of one that is stopped. There is one listener.
    pub fn ended(&mut self) -> mpsc::Receiver<LabError> {
        self.daemons.ended()
    }

    /// From now on what dies is started again, as SMF does it, and the nodes send heartbeats: the lab is up.
    pub async fn is_up(&self) {
        self.centre.is_up().await;
    }

    /// Serves VMAPI's records at this address from now on, and no longer where it was.
    pub async fn serve_vmapi_at(&mut self, address: SocketAddr) -> std::io::Result<()> {
        let store = self.vmapi.store().clone();
        let new = Arc::new(vmapi::Server::with_store(address, store).await?);
        self.centre.vmapi = Arc::clone(&new);
        if let Ok(old) = Arc::try_unwrap(std::mem::replace(&mut self.vmapi, new)) {
            old.stop().await;
        }
        Ok(())
    }

    /// The services of the data centre.
    pub fn centre(&self) -> &Centre {
        &self.centre
    }

    /// The base URL of the mock CNAPI.
    pub fn cnapi_url(&self) -> String {
        self.centre.cnapi.url()
    }

    /// The simulated node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The base URL of vminfod, once it has been started.
    pub fn vminfod_url(&self) -> String {
        ports::url(self.ports.vminfod)
    }

    /// The base URL of kvmd.
    pub fn kvmd_url(&self) -> String {
        ports::url(self.ports.kvmd)
    }

    /// The base URL of the web page.
    pub fn console_url(&self) -> String {
        ports::url(self.ports.console)
    }

    /// The base URL of net-agent's status.
    pub fn agent_url(&self) -> String {
        ports::url(self.ports.agent)
    }

    /// The base URL of vm-agent's status.
    pub fn vm_agent_url(&self) -> String {
        ports::url(self.ports.vm_agent)
    }

    /// The base URL of migration-service.
    pub fn migrations_url(&self) -> String {
        self.centre.migrations.url()
    }

    /// The base URL of migration-service's status.
    pub fn migrations_status_url(&self) -> String {
        self.centre.migrations.status_url()
    }

    /// The base URL of volapi.
    pub fn volapi_url(&self) -> String {
        ports::url(self.ports.volapi[0])
    }

    /// The base URL of volapi's status.
    pub fn volapi_status_url(&self) -> String {
        ports::url(self.ports.volapi[1])
    }

    /// Where this node's migration-agent takes orders.
    pub fn migration_agent_url(&self) -> String {
        format!("https://{}:{}", self.admin, self.centre.agents[0])
    }

    /// Where this node's migration-agent takes streams.
    pub fn migration_data_address(&self) -> SocketAddr {
        (self.admin, self.centre.agents[1]).into()
    }

    /// Where migration-agent prints its status and metrics.
    pub fn migration_agent_status_url(&self) -> String {
        ports::url(self.ports.migration_agent)
    }

    /// Where migration-service of this world has its authority.
    pub fn authority_file(&self) -> PathBuf {
        self.options.dir.join("migration-service/authority.json")
    }

    /// migration-service and this node's migration-agent run.
    pub fn has_migrations(&self) -> bool {
        ["migration-service", "migration-agent"].iter().all(|name| self.daemons.pid(name).is_some())
    }

    /// A client of migration-service that asks once.
    pub fn migrations(&self) -> Result<Migrations, LabError> {
        let http = Http::new(&self.migrations_url(), OWN_AGENT);
        let http = http.map_err(LabError::request("a client of migration-service"))?;
        Ok(Migrations::new(http.without_retries()))
    }

    /// A client of vminfod.
    pub fn hub(&self) -> Result<Vminfod, LabError> {
        let http = Http::new(&self.vminfod_url(), OWN_AGENT);
        let http = http.map_err(LabError::request("a client of vminfod"))?;
        Ok(Vminfod::with_http(http.without_retries()))
    }

    /// The options; what is changed is for the daemons that are started next.
    pub fn options(&mut self) -> &mut WorldOptions {
        &mut self.options
    }

    /// The pid of the daemon of this name.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.daemons.pid(name)
    }

    /// Starts vminfod and waits until it listens.
    pub async fn start_vminfod(&mut self) -> Result<(), LabError> {
        let config = self.configs().vminfod();
        let url = self.vminfod_url();
        self.daemons.start_until_said("vminfod", "listening", &config, &url).await?;
        self.node.set_info(|info| info.vminfod_url = Some(url.clone()))?;
        tools::write(&self.places()).map_err(LabError::io("writing the operator's commands"))
    }

    /// Starts net-agent.
    pub async fn start_agent(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().agent(), self.agent_url());
        self.daemons.start("net-agent", "serve", &config, &url).await
    }

    /// Starts vm-agent.
    pub async fn start_vm_agent(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().vm_agent(), self.vm_agent_url());
        self.daemons.start("vm-agent", "serve", &config, &url).await
    }

    /// Starts kvmd as it runs on SmartOS: its verdicts come from what vminfod tells, and from second monitors in zones.
    pub async fn start_kvmd(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().kvmd(), self.kvmd_url());
        self.qemus = Some(Qemus::follow(&self.node, &self.hub()?));
        let root = self.node.root().to_string_lossy().into_owned();
        self.daemons.start_with("kvmd", &["start", "--root", &root], &config, &url).await
    }

    /// The QEMUs of its kvm VMs, while kvmd runs.
    pub(super) fn qemus(&self) -> Option<&Qemus> {
        self.qemus.as_ref()
    }

    /// Starts migration-agent.
    pub async fn start_migration_agent(&mut self) -> Result<(), LabError> {
        tools::write_migration(&self.places())
            .map_err(LabError::io("writing the commands of migrations"))?;
        let config = self.configs().migration_agent();
        let url = ports::url(self.ports.migration_agent);
        self.daemons.start("migration-agent", "serve", &config, &url).await?;
        self.centre.trust.asks(self.node.cn_uuid(), self.options.dir.join("migration-agent/trust"));
        self.centre.trust.let_in().await
    }

    /// Starts migration-service, which knows the agents of all nodes that there are.
    pub async fn start_migration_service(&mut self) -> Result<(), LabError> {
        let config = self.configs().migration_service();
        let url = self.centre.migrations.status_url();
        self.daemons.start("migration-service", "serve", &config, &url).await?;
        self.centre.trust.serves(self.options.dir.join("migration-service/control.sock"));
        self.centre.trust.let_in().await
    }

    /// Starts fleet-agent, which publishes the node to the feed at these servers.
    pub(super) async fn start_fleet_agent(&mut self, servers: &[String]) -> Result<(), LabError> {
        tools::write_fleet(&self.places(), servers)
            .map_err(LabError::io("writing the commands of the feed"))?;
        let config = self.configs().fleet_agent(servers);
        let url = ports::url(self.ports.fleet_agent);
        self.daemons.start("fleet-agent", "serve", &config, &url).await
    }

    /// Starts the page of the data centre. Returns its address.
    pub(super) async fn start_fleet_page(
        &mut self,
        servers: &[String],
    ) -> Result<String, LabError> {
        let url = ports::url(self.ports.fleet_page);
        let config = self.configs().fleet_page(servers);
        self.daemons.start(PAGE, "serve", &config, &url).await?;
        Ok(url)
    }

    /// Starts the web page, which shows the agents that run.
    pub async fn start_console(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().console(), self.console_url());
        self.daemons.start("console", "serve", &config, &url).await
    }

    /// Starts volapi over the workflow API at `workflow`. Where migration-agents run it has snapshots made by them.
    pub(super) async fn start_volapi(&mut self, workflow: &str) -> Result<(), LabError> {
        // As everybody else it asks migration-service, which refuses what acts on a VM that moves.
        let front = self.daemons.pid("migration-service").map(|_| self.migrations_url());
        let vmapi = front.unwrap_or_else(|| self.vmapi.url());
        tools::write_volumes(&self.places(), &vmapi)
            .map_err(LabError::io("writing the commands of volumes"))?;
        let (config, url) = (self.configs().volapi(workflow, &vmapi), self.volapi_status_url());
        self.daemons.start("volapi", "serve", &config, &url).await?;
        if self.daemons.pid("migration-agent").is_some() {
            self.centre.trust.asks("volapi", self.options.dir.join("volapi/trust"));
        }
        self.centre.trust.let_in().await
    }

    /// Kills the daemon of this name as a crash would, or stops it as SMF does.
    pub async fn end(&mut self, name: &str, crash: bool) -> Result<(), LabError> {
        self.daemons.end(name, crash).await
    }

    /// Makes the VM that moves as a provisioner does, NAPI's records first. Returns these.
    pub async fn provision(&self) -> Result<Vec<Value>, LabError> {
        let vm = subject::payload().map_err(LabError::Moves)?;
        self.centre.know_origins(std::slice::from_ref(&vm));
        let napi = self.napi.store();
        let macs = napi.seed_from_vms(std::slice::from_ref(&vm), self.node.cn_uuid());
        let macs = macs.map_err(LabError::Seed)?;
        subject::create(&self.node, &vm).await.map_err(LabError::Moves)?;
        let is_own = |nic: &Value| macs.iter().any(|mac| nic["mac"] == **mac);
        Ok(napi.nics().into_iter().filter(is_own).collect())
    }

    /// Stops everything in order.
    pub async fn stop(self) -> Result<(), LabError> {
        const ORDER: [&str; 10] = [
            "console",
            PAGE,
            "fleet-agent",
            "volapi",
            "kvmd",
            "migration-service",
            "migration-agent",
            "vm-agent",
            "net-agent",
            "vminfod",
        ];
        for name in ORDER {
            self.daemons.end(name, false).await?;
        }
        // What holds the services is given back first, so that the last node can stop them.
        let Self { napi, vmapi, centre, _control, .. } = self;
        drop((napi, vmapi, _control));
        centre.stop().await;
        Ok(())
    }

    /// Every NIC that NAPI holds.
    pub async fn nics(&self) -> Result<Vec<Nic>, LabError> {
        let asked = "listing the NICs of the mock NAPI";
        let http = Http::new(&self.napi.url(), OWN_AGENT).map_err(LabError::request(asked))?;
        let all = Napi::new(http).list_nics(NicList::Nics, &NicQuery::default()).await;
        all.map_err(LabError::request(asked))
    }

    /// Where net-agent keeps what must survive it.
    pub fn agent_state_dir(&self) -> PathBuf {
        self.options.dir.join("net-agent")
    }

    fn configs(&self) -> Configs<'_> {
        Configs {
            options: &self.options,
            ports: &self.ports,
            node: &self.node,
            admin: self.admin,
            centre: &self.centre,
            daemons: &self.daemons,
            state_dir: self.agent_state_dir(),
        }
    }

    fn places(&self) -> Places<'_> {
        Places {
            program: &self.options.program,
            node: self.node.dir(),
            vminfod: self.vminfod_url(),
            kvmd: self.kvmd_url(),
            napi: self.napi.url(),
            vmapi: self.vmapi.url(),
            cnapi: self.cnapi_url(),
            migrations: self.migrations_url(),
            imgapi: self.centre.imgapi.url(),
            volapi: self.volapi_url(),
        }
    }
}

/// The program that is running now, for a world made by the testbed itself.
pub fn this_program() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(LabError::io("finding the testbed's own program"))
}

/// A path as the shell wants it.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
