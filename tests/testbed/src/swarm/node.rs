// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One node of the swarm: the mock vminfod, its own shard of the mock NAPI and of the mock VMAPI
//! (no request of an agent concerns the records of another node), and the capacity of the service,
//! which all share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use daemon::Shutdown;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use sdc_clients::http::{CONNECT_TIMEOUT, Request, Response, StreamResponse, Transport};
use sdc_clients::{Error, Phase};
use serde_json::json;

use super::queue::{Full, Queue};
use super::series::{Kind, Series};
use crate::cn::{net_agent, vm_agent};
use mocks::hub::Hub;
use mocks::napi::{Era, NewNic, Options, Store};
use mocks::transport::InProcess;
use mocks::vmapi;

const ADMIN: &str = "930896af-bf8c-48d4-885c-6573a94b1853";
const OWNER: &str = "9dce1460-0c4c-4417-ab8b-25ca478c5a78";
/// From the request to the answer on an idle network.
const LATENCY: Duration = Duration::from_millis(2);

/// The agent of a swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum With {
    /// net-agent, and what it asks of NAPI.
    NetAgent,
    /// vm-agent, and what it asks of VMAPI.
    VmAgent,
}

/// What every node of the swarm is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// VMs per node, one NIC each.
    pub vms: u32,
    /// Physical links per node, each with a server NIC.
    pub links: u32,
}

/// What the nodes of one run share.
#[derive(Debug)]
pub struct Centre {
    /// NAPI's age.
    pub era: Era,
    /// Which agents.
    pub with: With,
    /// The capacity of the service that they ask.
    pub queue: Queue,
    /// What is counted.
    pub series: Series,
}

/// One node's wire.
pub struct Wire {
    centre: Arc<Centre>,
    napi: InProcess,
    store: Store,
    vmapi: InProcess,
    records: vmapi::Store,
    hub: Hub,
    /// Addresses, and the list (none), that the agent still has to read.
    open: Mutex<BTreeSet<Option<String>>>,
}

/// The n-th address of a node's kind.
fn mac(kind: u8, node: u32, n: u32) -> String {
    let [a, b, c, d] = node.to_be_bytes();
    // Nodes and addresses below 65,536 and 16: enough to be unique in the swarm.
    format!("{kind:02x}:{:02x}:{b:02x}:{c:02x}:{d:02x}:{:02x}", a | 0x10, n)
}

fn uuid(kind: u32, node: u32, n: u32) -> String {
    format!("{kind:08x}-0000-4000-8000-{node:08x}{n:04x}")
}

impl Wire {
    /// Node number `node`: its VMs and the records NAPI holds for it, all of them clean.
    pub fn new(centre: &Arc<Centre>, shape: Shape, node: u32) -> anyhow::Result<Self> {
        let cn = uuid(1, node, 0);
        let store = Store::new(Options {
            seed: u64::from(node),
            admin_uuid: ADMIN.to_owned(),
            ..Options::era(centre.era)
        });
        let (mut vms, mut open) = (BTreeMap::new(), BTreeSet::from([None]));
        for n in 0..shape.vms {
            let (vm, mac) = (uuid(2, node, n), mac(0x90, node, n));
            let old = Duration::from_secs(86_400);
            let nic = NewNic::zone(&mac, &vm, &cn).with("owner_uuid", json!(OWNER));
            store
                .add_nic(nic.with("primary", json!(true)).aged(old))
                .map_err(anyhow::Error::msg)?;
            let object = json!({"uuid": vm, "zonename": vm, "state": "running", "zone_state": "running",
                "owner_uuid": OWNER, "brand": "joyent", "server_uuid": cn,
                "zonepath": format!("/zones/{vm}"), "nics": [{"mac": mac, "primary": true}],
                "customer_metadata": {}, "internal_metadata": {}, "tags": {}, "snapshots": []});
            vms.extend(object.as_object().map(|object| (vm, object.clone())));
        }
        let mut links = serde_json::Map::new();
        for n in 0..shape.links {
            let mac = mac(0x0c, node, n);
            store.add_admin_nic(&mac, &cn, true).map_err(anyhow::Error::msg)?;
            links.insert(format!("ixgbe{n}"), json!({"MAC Address": mac, "Link Status": "up"}));
            open.insert(Some(format!("/nics/{}", mac.replace(':', ""))));
        }
        let records = vmapi::Store::default();
        if centre.with == With::VmAgent {
            // All that this agent needs is its list.
            open = BTreeSet::from([None]);
            let known: Vec<_> = vms.values().cloned().collect();
            records.seed_from_vms(&known, &cn);
        }
        let hub = Hub::new(&cn, 0);
        hub.set_sysinfo(json!({"UUID": cn, "Network Interfaces": links}));
        hub.silently(|known| *known = vms);
        Ok(Self {
            centre: Arc::clone(centre),
            napi: InProcess::new(store.clone()),
            store,
            vmapi: InProcess::new(records.clone()),
            records,
            hub,
            open: Mutex::new(open),
        })
    }

    /// The work of an agent on this node, made as the program makes it; its files would be in `dir`.
    pub fn agent(
        self,
        node: u32,
        seed: u64,
        dir: &Path,
        shutdown: Shutdown,
    ) -> anyhow::Result<BoxFuture<'static, ()>> {
        // Any two agents draw from unrelated sequences, and the same seed gives the same swarm.
        let seed = (seed << 20).wrapping_add(u64::from(node)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let with = self.centre.with;
        let wire: Arc<dyn Transport> = Arc::new(self);
        let cn = uuid(1, node, 0);
        let mut config = json!({
            "vminfod": {"url": "http://127.0.0.1:9090", "trust_tcp": true}, "no_rabbit": true, "seed": seed,
            "log_level": "off", "state_dir": dir.join(node.to_string()), "cnapi": {"url": "none"},
        });
        match with {
            With::NetAgent => {
                config["napi"] = json!({"url": "http://napi.swarm"});
                config["vmapi"] = json!({"url": "http://vmapi.swarm"});
                config["cn_uuid"] = json!(cn);
                config["admin_uuid"] = json!(ADMIN);
                Ok(Box::pin(net_agent(&config, Arc::clone(&wire), wire)?.run(shutdown)))
            }
            With::VmAgent => {
                config["vmapi_url"] = json!("http://vmapi.swarm");
                config["server_uuid"] = json!(cn);
                Ok(Box::pin(vm_agent(&config, &cn, Arc::clone(&wire), wire)?.run(shutdown)))
            }
        }
    }

    /// A request to the service whose capacity is judged.
    async fn queued(&self, request: Request, service: &InProcess) -> Result<Response, Error> {
        let (kind, key) = self.kind(&request);
        let series = &self.centre.series;
        series.arrived(kind);
        let (method, target, within) = (request.method.clone(), request.target(), request.timeout);
        let patience = Patience { series, answered: false };
        let exchange = async {
            tokio::time::sleep(LATENCY).await;
            if self.centre.queue.serve().await == Err(Full) {
                series.refused();
                tokio::time::sleep(CONNECT_TIMEOUT.saturating_sub(LATENCY)).await;
                return Err(Error::timed_out(Phase::Connect, &method, &target, CONNECT_TIMEOUT));
            }
            service.send(request).await
        };
        let outcome = tokio::time::timeout(within, exchange)
            .await
            .unwrap_or_else(|_| Err(Error::timed_out(Phase::Answer, &method, &target, within)));
        // The logs of the mocks are of no use here, and ten thousand of them would be large.
        self.store.log().clear();
        self.records.log().clear();
        if let Ok(answer) = &outcome {
            patience.answered();
            self.settle(key, answer.status);
        }
        outcome
    }

    /// What the request is for, and which of the agent's needs it meets.
    fn kind(&self, request: &Request) -> (Kind, Option<Option<String>>) {
        let path = request.url.path();
        let strange = request.url.query().is_some_and(|q| q.contains("no_such_parameter"));
        match (&request.method, path) {
            (&Method::GET, "/search/nics") if self.centre.era != Era::Rfd58 => (Kind::Probe, None),
            (&Method::GET, "/nics") if strange => (Kind::Probe, None),
            (&Method::GET, "/search/nics" | "/nics" | "/vms") => (Kind::List, Some(None)),
            (&Method::GET, _) if path.starts_with("/vms/") => (Kind::Probe, None),
            (&Method::GET, _) => (Kind::Nic, Some(Some(path.to_owned()))),
            _ => (Kind::Write, None),
        }
    }

    fn settle(&self, key: Option<Option<String>>, status: StatusCode) {
        let (Some(key), true) = (key, status.is_success()) else { return };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.remove(&key) && open.is_empty() {
            self.centre.series.done();
        }
    }

    async fn vminfod(&self, request: Request) -> Result<Response, Error> {
        if request.url.path().starts_with("/vms/") {
            self.centre.series.arrived(Kind::OneVm);
        }
        let answer = self.hub.send(request).await;
        self.hub.log().clear();
        answer
    }
}

/// Counts a request that was dropped or timed out before its answer.
struct Patience<'a> {
    series: &'a Series,
    answered: bool,
}

impl Patience<'_> {
    fn answered(mut self) {
        self.answered = true;
        self.series.answered();
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.series.given_up();
        }
    }
}

impl Transport for Wire {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            match request.url.host_str() {
                Some("napi.swarm") => self.queued(request, &self.napi).await,
                Some("vmapi.swarm") if self.centre.with == With::VmAgent => {
                    self.queued(request, &self.vmapi).await
                }
                Some("vmapi.swarm") => {
                    self.centre.series.arrived(Kind::Vmapi);
                    self.vmapi.send(request).await
                }
                _ => self.vminfod(request).await,
            }
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        // A quiet node: a snapshot, then nothing, for ever.
        self.hub.stream(request)
    }
}
