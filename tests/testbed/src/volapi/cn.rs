// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! A simulated node with the real migration-agent, which has the storage VMs of the volumes.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use axum::body::Body;
use daemon::Shutdown;
use daemon::command::Program;
use daemon::http::Router;
use futures_util::future::BoxFuture;
use http::StatusCode;
use migration_agent::wire::{Connection, Incoming, Wire};
use migration_agent::{Agent, Setup};
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::identity::Identity;
use sdc_clients::vminfod::SYNCED;
use sdc_clients::vminfod::Vminfod;
use sdc_clients::{Error, Http};
use serde_json::{Map, Value, json};
use simnode::in_process::InProcess;
use simnode::{CreateOptions, Node, Verbs, Wait};
use tempfile::TempDir;
use uuid::Uuid;
use vminfod::node::load;

use crate::cn::ctx;

/// Where its agent listens on the admin network.
pub const ADDRESS: &str = "10.99.99.7";

pub struct Cn {
    pub uuid: Uuid,
    node: Node,
    control: Router,
    _agent: Agent,
    _dir: TempDir,
}

impl std::fmt::Debug for Cn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cn").field("uuid", &self.uuid).finish_non_exhaustive()
    }
}

impl Cn {
    /// A node without VMs, and its agent.
    pub async fn start() -> anyhow::Result<Cn> {
        let (dir, uuid) = (TempDir::new()?, Uuid::new_v4());
        let options = CreateOptions {
            vms: 0,
            cn_uuid: Some(uuid.to_string()),
            program: std::env::current_exe().ok(),
            ..CreateOptions::new(dir.path().join("node"))
        };
        let node = Node::create(&options)?;
        let agent = agent(&node, uuid, &dir.path().join("migration-agent")).await?;
        Ok(Cn { uuid, control: agent.control(), node, _agent: agent, _dir: dir })
    }

    /// What CNAPI has of it.
    pub fn record(&self) -> Value {
        let nic = json!({"NIC Names": ["admin"], "ip4addr": ADDRESS, "Link Status": "up"});
        json!({"uuid": self.uuid, "status": "running", "sysinfo": {"Network Interfaces": {"e0": nic}}})
    }

    /// Its agent answers volapi, which has asked it and nobody else.
    pub async fn answer(&self, request: &Request) -> Result<Response, Error> {
        let mut asked = http::Request::new(Body::from(request.body.clone().unwrap_or_default()));
        let odd = || Error::connect(&request.method, request.target(), "an odd request");
        *asked.uri_mut() = request.target().parse().map_err(|_| odd())?;
        *asked.method_mut() = request.method.clone();
        *asked.headers_mut() = request.headers.clone();
        if request.peer != Some(Identity::Agent(self.uuid)) {
            return Err(odd());
        }
        asked.extensions_mut().insert(Some(Identity::Volapi));
        let (head, body) = daemon::http::call(self.control.clone(), asked).await.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|_| odd())?;
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    /// Makes and boots a storage VM, as VMAPI's job does.
    pub async fn make(&self, vm: &str) -> anyhow::Result<()> {
        let image = simnode::sample::image("joyent").context("an image")?;
        let payload = json!({"uuid": vm, "brand": "joyent", "quota": 1000, "ram": 256,
            "image_uuid": image, "delegate_dataset": true, "autoboot": true});
        let payload: Map<String, Value> = payload.as_object().cloned().unwrap_or_default();
        self.verbs().create(&payload).await?;
        Ok(())
    }

    /// Stops or starts a VM, as VMAPI's job does; returns false if it was so already.
    pub async fn set_running(&self, vm: &str, running: bool) -> anyhow::Result<bool> {
        if self.runs(vm)? == running {
            return Ok(false);
        }
        match running {
            true => self.verbs().boot(vm).await?,
            false => self.verbs().halt(vm, 0).await?,
        }
        Ok(true)
    }

    /// Returns true if the VM runs.
    pub fn runs(&self, vm: &str) -> anyhow::Result<bool> {
        Ok(self.node.zones()?.find(vm).is_some_and(|zone| zone.zoneid.is_some()))
    }

    fn verbs(&self) -> Verbs {
        Verbs::new(&self.node, Wait::none())
    }

    /// A client writes into the volume of a storage VM.
    pub fn write(&self, vm: &str, text: &str) -> anyhow::Result<()> {
        Ok(self.node.write_file(&format!("zones/{vm}/data"), "exports/file", text.as_bytes())?)
    }

    /// Returns true if the volume has just what was written last.
    pub fn has(&self, vm: &str, text: &str) -> anyhow::Result<bool> {
        let all = self.node.datasets()?;
        let tree = self.node.contents(&all, &format!("zones/{vm}/data"))?;
        Ok(tree == tree.with_file("exports/file", text.as_bytes()))
    }

    /// The uuids of the snapshots of a volume, the oldest first.
    pub fn snapshots(&self, vm: &str) -> anyhow::Result<Vec<String>> {
        let all = self.node.datasets()?;
        let found = all.snapshots(&format!("zones/{vm}/data"));
        let uuid = |name: &str| Some(name.split_once("@volsnap-")?.1.to_owned());
        Ok(found.iter().filter_map(|row| uuid(&row.name)).collect())
    }

    /// Runs a command line of `zfs`.
    pub fn zfs(&self, line: &str) -> anyhow::Result<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let output = InProcess::new(&self.node).answer(Program::Zfs, &words);
        anyhow::ensure!(output.status == 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

async fn agent(node: &Node, cn: Uuid, dir: &Path) -> anyhow::Result<Agent> {
    let vminfod: Arc<dyn Transport> = Arc::new(ToVminfod(node.clone()));
    let http = Http::with_transport("http://127.0.0.1:9090", "test", Arc::clone(&vminfod))?;
    // No other agent is asked.
    let nobody = Known { port: 0, urls: Default::default() };
    let setup = Setup {
        cn,
        top: node.root(),
        pool: "zones".to_owned(),
        state_dir: dir.to_owned(),
        seed: [7; 8],
        mbps: None,
        // Snapshots need no other program than `zfs`.
        commands: Arc::new(InProcess::new(node)),
        vminfod: Vminfod::with_http(http.clone().without_retries()),
        vm_agent: dir.join("vm-agent.sock"),
        wire: Arc::new(NoWire),
        agents: NodeAgents::new(nobody, Cnapi::new(http), Arc::clone(&vminfod), "test"),
        transport: vminfod,
    };
    Ok(Agent::new(setup, &Shutdown::new()).await?)
}

/// Nothing is sent between nodes here.
struct NoWire;

impl Wire for NoWire {
    fn address(&self) -> String {
        "nowhere".to_owned()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>> {
        Box::pin(std::future::pending())
    }

    fn dial<'a>(&'a self, _address: &'a str, _cn: Uuid) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

/// The objects of the node's VMs, each a fresh reading.
struct ToVminfod(Node);

impl Transport for ToVminfod {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let name = request.url.path().trim_start_matches("/vms/").to_owned();
            let (status, body) = match load::object(&ctx(&self.0), &name).await {
                Ok(Some(vm)) => (StatusCode::OK, json!(vm)),
                Ok(None) => {
                    let message = format!("VM Not Found: {name}");
                    (StatusCode::NOT_FOUND, json!({"code": "ResourceNotFound", "message": message}))
                }
                Err(error) => {
                    let body = json!({"code": "Unavailable", "message": error.to_string()});
                    (StatusCode::SERVICE_UNAVAILABLE, body)
                }
            };
            let headers = http::HeaderMap::from_iter([(
                http::HeaderName::from_static(SYNCED),
                http::HeaderValue::from_static("true"),
            )]);
            Ok(Response { status, headers, body: body.to_string().into() })
        })
    }
}
