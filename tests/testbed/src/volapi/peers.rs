// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services around volapi: our mocks, what they were asked, and what goes wrong with a request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use mocks::faults::{Action, Rule};
use mocks::transport::InProcess;
use mocks::{cnapi, vmapi, workflow};
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::snapshots::Snapshots;
use sdc_clients::{Error, Http};
use serde_json::{Map, Value, json};
use volapi::peers::Peers;

use super::cn::{ADDRESS, Cn};
use super::fuse::{Fuse, Who};
use super::services::{Asked, Services};
use crate::faults::{Fault, Moment};

/// One request to a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub peer: String,
    pub method: String,
    pub url: String,
    pub body: Option<Value>,
    pub status: u16,
}

#[derive(Debug, Default)]
struct Scene {
    /// The VMs that VMAPI was asked to destroy.
    deleted: Vec<String>,
    fuse: Arc<Fuse>,
    calls: Vec<Call>,
}

/// All services at once: the host of an address says which one is asked.
#[derive(Clone, Debug)]
pub struct DataCentre {
    scene: Arc<Mutex<Scene>>,
    services: Services,
    pub vms: vmapi::Store,
    /// The node that storage VMs are on, if there is one.
    pub cn: Option<Arc<Cn>>,
}

impl DataCentre {
    /// The services of a recording's world.
    pub fn new(world: &Value) -> anyhow::Result<DataCentre> {
        DataCentre::of(world, None)
    }

    /// The same with a node.
    pub async fn with_node(world: &Value) -> anyhow::Result<DataCentre> {
        DataCentre::of(world, Some(Arc::new(Cn::start().await?)))
    }

    fn of(world: &Value, cn: Option<Arc<Cn>>) -> anyhow::Result<DataCentre> {
        let services = Services::begin(world, cnapi::Store::default())?;
        if let Some(cn) = &cn {
            services.cnapi.put_server(cn.record().as_object().cloned().unwrap_or_default());
        }
        let vms = services.vmapi.clone();
        // The jobs of VMs are not those that a recording speaks of, and what they do is done by others.
        vms.run_jobs(
            workflow::Store::default(),
            Arc::new(|_| Box::pin(std::future::ready(Ok(())))),
        );
        Ok(DataCentre { scene: Arc::default(), services, vms, cn })
    }

    /// The clients that a service asks them with.
    pub fn peers(&self) -> anyhow::Result<Peers> {
        let transport: Arc<dyn Transport> = Arc::new(self.clone());
        let http = |peer: &str| {
            let address = format!("http://{peer}");
            Http::with_transport(&address, "volapi", Arc::clone(&transport))
                .map(|http| http.without_retries())
        };
        let snapshots = match &self.cn {
            Some(_) => {
                let known = Known { port: 5314, urls: BTreeMap::new() };
                let cnapi = Cnapi::new(http("cnapi")?);
                let agents = NodeAgents::new(known, cnapi, Arc::clone(&transport), "volapi");
                Some(Snapshots::new(agents))
            }
            None => None,
        };
        Ok(Peers {
            snapshots,
            vmapi: http("vmapi")?,
            cnapi: http("cnapi")?,
            papi: http("papi")?,
            napi: http("napi")?,
            imgapi: http("imgapi")?,
            workflow: http("wfapi")?,
        })
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how services behave.
    pub fn behave(&self, conf: &Map<String, Value>) {
        self.services.behave(conf.clone());
    }

    /// Drops all tickets.
    pub fn drop_tickets(&self) {
        self.services.cnapi.drop_tickets();
    }

    /// Sets what the workflow API knows of a job.
    pub fn set_job(&self, job: Map<String, Value>) {
        self.services.workflow.put(job);
    }

    /// Returns what was asked since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.scene().calls)
    }

    /// Returns how many tickets nobody has given back.
    pub fn tickets(&self) -> usize {
        let is_open = |it: &Value| it["status"] == "queued" || it["status"] == "active";
        self.services.cnapi.all_tickets().into_iter().filter(is_open).count()
    }

    /// Lets a fuse decide what becomes of each request from now on.
    pub fn light(&self, fuse: &Arc<Fuse>) {
        self.scene().fuse = Arc::clone(fuse);
    }

    /// Returns true if VMAPI was asked to destroy the VM.
    pub fn is_deleted(&self, vm: &str) -> bool {
        self.scene().deleted.iter().any(|it| it == vm)
    }

    /// A service takes up a request whose sender is gone.
    pub async fn take_up(&self, request: &Request) {
        // Nobody reads the answer.
        drop(self.answer(request.clone()).await);
    }

    /// Returns the node whose agent a request is for.
    fn agent(&self, request: &Request) -> Option<Arc<Cn>> {
        self.cn.clone().filter(|_| request.url.host_str() == Some(ADDRESS))
    }

    /// Whether a request to VMAPI starts or stops a VM of the node.
    fn power(&self, request: &Request) -> Option<(Arc<Cn>, String, bool)> {
        let vm = request.url.path().strip_prefix("/vms/")?.to_owned();
        let mut query = request.url.query_pairs();
        let (_, action) = query.find(|(name, _)| name == "action")?;
        let runs = match &*action {
            "start" => true,
            "stop" => false,
            _ => return None,
        };
        Some((self.cn.clone()?, vm, runs))
    }

    /// VMAPI's job stops or starts a VM at once.
    async fn set_running(&self, cn: &Cn, vm: &str, runs: bool) -> anyhow::Result<()> {
        cn.set_running(vm, runs).await?;
        if let Some(mut record) = self.vms.get(vm) {
            record.insert("state".to_owned(), json!(if runs { "running" } else { "stopped" }));
            self.vms.put(record);
        }
        Ok(())
    }

    async fn answer(&self, request: Request) -> Result<Response, Error> {
        if let Some(cn) = self.agent(&request) {
            return cn.answer(&request).await;
        }
        let peer = request.url.host_str().unwrap_or_default().to_owned();
        let (method, url) = (request.method.to_string(), request.target());
        let body = body_of(&request).unwrap_or_default();
        let asked = Asked { peer: &peer, method: &method, url: &url, body: &body };
        let power = self.power(&request).filter(|_| peer == "vmapi");
        if let Some((cn, vm, runs)) = &power
            && cn.runs(vm).is_ok_and(|now| now == *runs)
        {
            let message = format!("VM is already {}", if *runs { "running" } else { "stopped" });
            let body = Some(json!({"code": "ValidationFailed", "message": message}));
            let refusal = Action::Status { status: 409, body, retry_after: None };
            self.vms.faults().add(Rule::new("POST", request.url.path(), refusal).times(1));
        }
        self.services.prepare(asked);
        let answer = InProcess::shared(self.services.mock(&peer)).send(request).await?;
        if answer.status.is_success() {
            let said = serde_json::from_slice(&answer.body).unwrap_or_default();
            self.services.settle(asked, &said);
            if let Some((cn, vm, runs)) = power {
                let done = self.set_running(&cn, &vm, runs).await;
                done.map_err(|error| Error::broken(&http::Method::POST, &*url, error.to_string()))?;
            }
            if let ("vmapi", "DELETE", Some(vm)) = (&*peer, &*method, url.strip_prefix("/vms/")) {
                let vm = vm.split('?').next().unwrap_or_default();
                self.scene().deleted.push(vm.to_owned());
            }
        }
        Ok(answer)
    }
}

fn body_of(request: &Request) -> Option<Value> {
    serde_json::from_slice(request.body.as_ref()?).ok()
}

impl Transport for DataCentre {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            // A request takes time: others run meanwhile.
            tokio::task::yield_now().await;
            let at = {
                let mut scene = self.scene();
                scene.calls.push(Call {
                    peer: request.url.host_str().unwrap_or_default().to_owned(),
                    method: request.method.to_string(),
                    url: request.target(),
                    body: body_of(&request),
                    status: 0,
                });
                scene.calls.len() - 1
            };
            let fuse = Arc::clone(&self.scene().fuse);
            let is_vmapi = request.url.host_str() == Some("vmapi");
            let blow = fuse.next(if is_vmapi { Who::Vmapi } else { Who::Peer });
            match blow {
                Some((_, Fault::Dies(_))) => return std::future::pending().await,
                Some((_, Fault::Late)) => {
                    fuse.delay(request);
                    return std::future::pending().await;
                }
                Some((Moment::Before, _)) => {
                    return Err(Error::connect(&request.method, request.target(), "refused"));
                }
                Some((Moment::After, _)) | None => {}
            }
            let (method, target) = (request.method.clone(), request.target());
            let answer = self.answer(request).await?;
            if blow.is_some() {
                return Err(Error::broken(&method, target, "cut off"));
            }
            if let Some(call) = self.scene().calls.get_mut(at) {
                call.status = answer.status.as_u16();
            }
            Ok(answer)
        })
    }
}
