// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The world of the lab: a node, the mocks, and the daemons as processes that can be started,
//! killed and started again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::Error;
use sdc_clients::http::{Call, Http};
use sdc_clients::napi::{Napi, Nic, NicList, NicQuery};
use sdc_clients::vminfod::Vminfod;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::config::{ADMIN, Configs};
use super::error::LabError;
use super::options::WorldOptions;
use super::ports::{self, Ports, local};
use super::tools::{self, Places};
use crate::process::Child;
use mocks::{napi, vmapi};
use simnode::{CreateOptions, Node};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(25);
/// How long a daemon may take to stop when asked.
const GRACE: Duration = Duration::from_secs(5);
/// How many ends of daemons are kept for the listener; more are not told.
const ENDS: usize = 16;
/// The user agent of the lab's own requests.
pub const OWN_AGENT: &str = "testbed";

/// A running world. Dropping it ends its processes.
#[derive(Debug)]
pub struct World {
    options: WorldOptions,
    node: Node,
    /// The mock NAPI.
    pub napi: napi::Server,
    /// The mock VMAPI.
    pub vmapi: vmapi::Server,
    vminfod: Option<Child>,
    agent: Option<Child>,
    vm_agent: Option<Child>,
    kvmd: Option<Child>,
    console: Option<Child>,
    ports: Ports,
    /// What tells that a daemon has ended, and who hears it.
    told: mpsc::Sender<LabError>,
    ended: Option<mpsc::Receiver<LabError>>,
}

impl World {
    /// Creates the node and starts the mocks; no daemon runs yet.
    pub async fn create(options: WorldOptions) -> Result<Self, LabError> {
        let node = Node::create(&CreateOptions {
            vms: options.vms,
            seed: options.seed,
            program: Some(options.program.clone()),
            ..CreateOptions::new(&options.dir)
        })?;
        let settings = napi::Options {
            seed: options.seed,
            admin_uuid: ADMIN.to_owned(),
            ..napi::Options::era(options.era)
        };
        let napi = napi::Server::start(local(options.napi_port), settings)
            .await
            .map_err(LabError::io(format!("listening on port {} as NAPI", options.napi_port)))?;
        let vmapi = vmapi::Server::start(local(options.vmapi_port))
            .await
            .map_err(LabError::io(format!("listening on port {} as VMAPI", options.vmapi_port)))?;
        let what = "looking for a free port";
        let free = async |given| ports::or_free(given).await.map_err(LabError::io(what));
        let ports = Ports {
            vminfod: free(options.vminfod_port).await?,
            agent: free(options.agent_port).await?,
            vm_agent: free(0).await?,
            kvmd: free(0).await?,
            console: free(options.console_port).await?,
        };
        let (told, ended) = mpsc::channel(ENDS);
        let mut world = Self {
            options,
            node,
            napi,
            vmapi,
            vminfod: None,
            agent: None,
            vm_agent: None,
            kvmd: None,
            console: None,
            ports,
            told,
            ended: Some(ended),
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
        self.ended.take().unwrap_or_else(|| mpsc::channel(1).1)
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

    /// A client of vminfod.
    pub fn hub(&self) -> Result<Vminfod, LabError> {
        let http = Http::new(&self.vminfod_url(), OWN_AGENT);
        let http = http.map_err(LabError::request("a client of vminfod"))?;
        Ok(Vminfod::with_http(http.without_retries()))
    }

    /// The pid of vminfod.
    pub fn vminfod_pid(&self) -> Option<u32> {
        self.vminfod.as_ref().and_then(Child::id)
    }

    /// The pid of net-agent.
    pub fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().and_then(Child::id)
    }

    /// The pid of kvmd.
    pub fn kvmd_pid(&self) -> Option<u32> {
        self.kvmd.as_ref().and_then(Child::id)
    }

    /// Starts vminfod and waits until it listens.
    pub async fn start_vminfod(&mut self) -> Result<(), LabError> {
        let config = self.configs().vminfod();
        let (mut child, log) = self.spawn("vminfod", "serve", &config).await?;
        let log = said(&mut child, "listening", log).await?;
        tokio::spawn(keep(child.name().to_owned(), child.take_lines(), log, self.told.clone()));
        let url = self.vminfod_url();
        self.node.set_info(|info| info.vminfod_url = Some(url.clone()))?;
        self.vminfod = Some(child);
        tools::write(&Places {
            program: &self.options.program,
            node: self.node.dir(),
            vminfod: &url,
            kvmd: &self.kvmd_url(),
            napi: &self.napi.url(),
            vmapi: &self.vmapi.url(),
        })
        .map_err(LabError::io("writing the operator's commands"))
    }

    /// Starts net-agent.
    pub async fn start_agent(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().agent(), self.agent_url());
        self.agent = Some(self.start("net-agent", "serve", &config).await?);
        answers("net-agent", &url).await
    }

    /// Starts vm-agent.
    pub async fn start_vm_agent(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().vm_agent(), self.vm_agent_url());
        self.vm_agent = Some(self.start("vm-agent", "serve", &config).await?);
        answers("vm-agent", &url).await
    }

    /// Kills vm-agent as a crash would, or stops it as SMF does.
    pub async fn end_vm_agent(&mut self, crash: bool) -> Result<(), LabError> {
        end(self.vm_agent.take(), crash).await
    }

    /// Starts kvmd as it runs on SmartOS: its verdicts come from what vminfod tells.
    pub async fn start_kvmd(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().kvmd(), self.kvmd_url());
        self.kvmd = Some(self.start("kvmd", "start", &config).await?);
        answers("kvmd", &url).await
    }

    /// Starts the web page.
    pub async fn start_console(&mut self) -> Result<(), LabError> {
        let (config, url) = (self.configs().console(), self.console_url());
        self.console = Some(self.start("console", "serve", &config).await?);
        answers("console", &url).await
    }

    /// Kills vminfod as a crash would, or stops it as SMF does.
    pub async fn end_vminfod(&mut self, crash: bool) -> Result<(), LabError> {
        end(self.vminfod.take(), crash).await
    }

    /// Kills net-agent as a crash would, or stops it as SMF does.
    pub async fn end_agent(&mut self, crash: bool) -> Result<(), LabError> {
        end(self.agent.take(), crash).await
    }

    /// Stops everything in order.
    pub async fn stop(mut self) -> Result<(), LabError> {
        end(self.console.take(), false).await?;
        end(self.kvmd.take(), false).await?;
        self.end_vm_agent(false).await?;
        self.end_agent(false).await?;
        self.end_vminfod(false).await?;
        self.napi.stop().await;
        self.vmapi.stop().await;
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
            napi: self.napi.url(),
            vmapi: self.vmapi.url(),
            state_dir: self.agent_state_dir(),
        }
    }

    /// Starts a daemon whose lines go to its log.
    async fn start(&self, name: &str, verb: &str, config: &Value) -> Result<Child, LabError> {
        let (mut child, log) = self.spawn(name, verb, config).await?;
        tokio::spawn(keep(name.to_owned(), child.take_lines(), log, self.told.clone()));
        Ok(child)
    }

    /// Writes the configuration of a daemon, starts it, and opens its log.
    async fn spawn(
        &self,
        name: &str,
        verb: &str,
        config: &Value,
    ) -> Result<(Child, tokio::fs::File), LabError> {
        let dir = &self.options.dir;
        let file = dir.join(format!("{name}.json"));
        let written = tokio::fs::write(&file, format!("{config:#}\n")).await;
        written.map_err(LabError::io(format!("writing {}", file.display())))?;
        tokio::fs::create_dir_all(self.agent_state_dir())
            .await
            .map_err(LabError::io("making net-agent's directory"))?;
        let log = dir.join(format!("{name}.log"));
        let mut options = tokio::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(&log).await;
        let log = log.map_err(LabError::io(format!("opening the log of {name}")))?;
        let args = [&format!("@{name}"), verb, "--config", &file.to_string_lossy()];
        let child = Child::spawn(name, &self.options.program, &args)
            .map_err(LabError::io(format!("starting {name}")))?;
        Ok((child, log))
    }
}

/// Looks at a condition until it holds; an error ends the wait.
pub async fn until<F, Fut>(what: &str, within: Duration, mut holds: F) -> Result<(), LabError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, LabError>>,
{
    let end = Instant::now() + within;
    while !holds().await? {
        if Instant::now() > end {
            return Err(LabError::TooLate { what: what.to_owned(), within });
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until a daemon's `/ping` answers.
async fn answers(name: &str, url: &str) -> Result<(), LabError> {
    let what = format!("{name} answers");
    let http = Http::new(url, OWN_AGENT).map_err(LabError::request(&what))?;
    until(&what, Duration::from_secs(20), || async {
        Ok(http.execute(Call::new(http::Method::GET, &["ping"])).await.is_ok())
    })
    .await
}

/// A NIC, VM or other thing that is gone is not an error here.
pub fn found<T>(result: Result<T, Error>, what: &str) -> Result<Option<T>, LabError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if err.is_not_found_resource() => Ok(None),
        Err(err) => Err(LabError::request(what)(err)),
    }
}

/// Waits for a bunyan line with this `msg`; all lines go to the log.
async fn said(
    child: &mut Child,
    msg: &str,
    mut log: tokio::fs::File,
) -> Result<tokio::fs::File, LabError> {
    let mut last = String::from("none");
    while let Some(line) = child.line().await {
        write_line(&mut log, &line).await;
        if let Ok(value) = serde_json::from_str::<Value>(&line)
            && value["msg"] == msg
        {
            return Ok(log);
        }
        last = line;
    }
    Err(LabError::Ended { name: child.name().to_owned(), last })
}

/// Writes the lines to the log, and tells when there are no more.
async fn keep(
    name: String,
    mut lines: mpsc::Receiver<String>,
    mut log: tokio::fs::File,
    told: mpsc::Sender<LabError>,
) {
    let mut last = String::from("none");
    while let Some(line) = lines.recv().await {
        write_line(&mut log, &line).await;
        last = line;
    }
    // Nobody may be listening.
    drop(told.try_send(LabError::Ended { name, last }));
}

async fn write_line(log: &mut tokio::fs::File, line: &str) {
    // A log of the lab that cannot be written costs the log, not the lab.
    let _lost = log.write_all(format!("{line}\n").as_bytes()).await;
}

async fn end(child: Option<Child>, crash: bool) -> Result<(), LabError> {
    let Some(child) = child else { return Ok(()) };
    let name = child.name().to_owned();
    let grace = if crash { Duration::ZERO } else { GRACE };
    if crash {
        child.signal(rustix::process::Signal::KILL);
    }
    child.stop(grace).await.map(drop).map_err(LabError::io(format!("stopping {name}")))
}

/// The program that is running now, for a world made by the testbed itself.
pub fn this_program() -> Result<PathBuf, LabError> {
    std::env::current_exe().map_err(LabError::io("finding the testbed's own program"))
}

/// A path as the shell wants it.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
