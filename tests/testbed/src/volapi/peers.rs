// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The services around volapi: they answer what the recording says of them, and keep what they were asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use mocks::transport::InProcess;
use mocks::vmapi::Store;
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::snapshots::Snapshots;
use sdc_clients::{Error, Http};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use uuid::Uuid;
use volapi::peers::Peers;

use super::cn::{ADDRESS, Cn, secret};
use super::fuse::{Blow, Callee, Fuse};

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
struct Ticket {
    queue: String,
    body: Value,
}

#[derive(Debug, Default)]
struct Scene {
    networks: Map<String, Value>,
    quotas: Vec<Value>,
    /// What the recording says of each service.
    conf: Map<String, Value>,
    /// The tickets by uuid, and the order of each queue.
    tickets: BTreeMap<String, Ticket>,
    queues: BTreeMap<String, VecDeque<String>>,
    jobs: BTreeMap<String, Value>,
    /// The VMs that VMAPI was asked to destroy.
    deleted: Vec<String>,
    fuse: Arc<Fuse>,
    calls: Vec<Call>,
}

/// All services at once: the host of an address says which one is asked.
#[derive(Clone, Debug)]
pub struct DataCentre {
    scene: Arc<Mutex<Scene>>,
    moved: Arc<Notify>,
    pub vms: Store,
    /// The node that storage VMs are on, if there is one.
    pub cn: Option<Arc<Cn>>,
}

type Said = (u16, Option<Value>);

fn ok(body: Value) -> Said {
    (200, Some(body))
}

fn fault(code: &str, message: &str, status: u16) -> Said {
    (status, Some(json!({"code": code, "message": message})))
}

impl DataCentre {
    /// The services of a recording's world.
    pub fn new(world: &Value) -> DataCentre {
        let scene = Scene {
            networks: world["networks"].as_object().cloned().unwrap_or_default(),
            quotas: world["package_quotas"].as_array().cloned().unwrap_or_default(),
            ..Scene::default()
        };
        let vms = Store::default();
        DataCentre { scene: Arc::new(Mutex::new(scene)), moved: Arc::default(), vms, cn: None }
    }

    /// The same with a node.
    pub async fn with_node(world: &Value) -> anyhow::Result<DataCentre> {
        let cn = Some(Arc::new(Cn::start().await?));
        Ok(DataCentre { cn, ..DataCentre::new(world) })
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
                let known = Known { secret: secret()?, port: 5314, urls: BTreeMap::new() };
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
        self.scene().conf.extend(conf.clone());
    }

    /// Drops all tickets.
    pub fn drop_tickets(&self) {
        let mut scene = self.scene();
        scene.tickets.clear();
        scene.queues.clear();
        drop(scene);
        self.moved.notify_waiters();
    }

    /// Sets what the workflow API knows of a job.
    pub fn set_job(&self, uuid: &str, job: Option<Value>) {
        match job {
            Some(job) => drop(self.scene().jobs.insert(uuid.to_owned(), job)),
            None => drop(self.scene().jobs.remove(uuid)),
        }
    }

    /// Returns what was asked since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.scene().calls)
    }

    /// Returns the tickets that nobody has given back.
    pub fn tickets(&self) -> usize {
        self.scene().queues.values().map(VecDeque::len).sum()
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
        let body: Option<Value> =
            request.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
        // Nobody reads the answer.
        let _ = match self.agent(request) {
            Some(cn) => cn.answer(request).await.map(drop),
            None => self.answer(request, body.as_ref()).await.map(drop),
        };
    }

    /// Returns the node whose agent a request is for.
    fn agent(&self, request: &Request) -> Option<Arc<Cn>> {
        self.cn.clone().filter(|_| request.url.host_str() == Some(ADDRESS))
    }

    /// VMAPI's job stops or starts a VM at once.
    async fn set_running(&self, cn: &Cn, vm: &str, running: bool) -> Said {
        if let Some(said) = self.configured("vm_order") {
            return said;
        }
        let state = if running { "running" } else { "stopped" };
        match (cn.set_running(vm, running).await, self.vms.get(vm)) {
            (Ok(true), Some(mut record)) => {
                record.insert("state".to_owned(), json!(state));
                self.vms.put(record);
                self.order(vm)
            }
            (Ok(_), _) => fault("ValidationFailed", &format!("VM is already {state}"), 409),
            (Err(error), _) => fault("InternalError", &error.to_string(), 500),
        }
    }

    /// Returns the next of the configured answers under this name.
    fn configured(&self, name: &str) -> Option<Said> {
        let mut scene = self.scene();
        let conf = scene.conf.get_mut(name)?;
        let answer = match conf {
            Value::Array(queue) => queue.first_mut()?,
            Value::Object(_) => conf,
            _ => return None,
        };
        let said = (answer["status"].as_u64()?.try_into().ok()?, Some(answer["body"].clone()));
        let times = answer["times"].as_u64();
        if let (Some(times), Value::Array(queue)) = (times, conf) {
            match times {
                0 | 1 => drop(queue.remove(0)),
                _ => queue[0]["times"] = json!(times - 1),
            }
        }
        Some(said)
    }

    async fn answer(&self, request: &Request, body: Option<&Value>) -> Result<Said, Error> {
        let peer = request.url.host_str().unwrap_or_default().to_owned();
        let parts: Vec<&str> =
            request.url.path().split('/').filter(|part| !part.is_empty()).collect();
        let is_get = request.method == Method::GET;
        match (peer.as_str(), &parts[..]) {
            ("napi", ["networks", uuid]) => Ok(self.network(uuid)),
            ("papi", ["packages"]) => Ok(self.packages()),
            ("papi", ["packages", uuid]) => Ok(self.package(uuid)),
            ("imgapi", ["images", uuid]) => Ok(self.image(uuid, is_get)),
            ("wfapi", ["jobs", uuid]) => Ok(self.scene().jobs.get(*uuid).map_or_else(
                || fault("ResourceNotFound", "job not found", 404),
                |job| ok(job.clone()),
            )),
            ("cnapi", ["servers", _, "tickets"]) if is_get => Ok(self.list_tickets()),
            ("cnapi", ["servers", _, "tickets"]) => Ok(self.take_ticket(body)),
            ("cnapi", ["servers", uuid]) => Ok(match &self.cn {
                Some(cn) if cn.uuid.to_string() == *uuid => ok(cn.record()),
                _ => fault("ResourceNotFound", "server not found", 404),
            }),
            ("cnapi", ["tickets", ticket, "wait"]) => Ok(self.wait(ticket).await),
            ("cnapi", ["tickets", ticket, "release"]) => Ok(self.release(ticket)),
            ("cnapi", ["tickets", ticket]) => Ok(self.ticket(ticket)),
            ("vmapi", ["vms"]) if request.method == Method::POST => Ok(self.make_vm(body)),
            ("vmapi", ["vms", vm]) if request.method == Method::DELETE => Ok(self.destroy_vm(vm)),
            ("vmapi", ["vms", vm]) if request.method == Method::POST => {
                let mut query = request.url.query_pairs();
                let action = query.find(|(name, _)| name == "action");
                Ok(match (&self.cn, action.as_ref().map(|(_, action)| action.as_ref())) {
                    (Some(cn), Some("start")) => self.set_running(cn, vm, true).await,
                    (Some(cn), Some("stop")) => self.set_running(cn, vm, false).await,
                    _ => self.order(vm),
                })
            }
            ("vmapi", ["vms", vm, "tags"]) => Ok(self.order(vm)),
            ("vmapi", ["vms"]) if self.scene().conf.contains_key("vm_list") => {
                match self.configured("vm_list") {
                    Some(said) => Ok(said),
                    None => self.vmapi(request).await,
                }
            }
            ("vmapi", ["vms", _]) => match self.configured("vm_get") {
                Some(said) => Ok(said),
                None => self.vmapi(request).await,
            },
            ("vmapi", _) => self.vmapi(request).await,
            _ => Ok(fault("ResourceNotFound", &format!("{peer} has no such route"), 404)),
        }
    }

    async fn vmapi(&self, request: &Request) -> Result<Said, Error> {
        let reply = InProcess::new(self.vms.clone()).send(request.clone()).await?;
        Ok((reply.status.as_u16(), serde_json::from_slice(&reply.body).ok()))
    }

    fn network(&self, uuid: &str) -> Said {
        let scene = self.scene();
        if let Some(status) = scene.conf.get("napi_status").and_then(Value::as_u64) {
            let body = json!({"code": "InternalError", "message": "napi broken"});
            return (status.try_into().unwrap_or(500), Some(body));
        }
        match scene.networks.get(uuid) {
            Some(network) => {
                let mut network = network.clone();
                network["uuid"] = json!(uuid);
                ok(network)
            }
            None => fault("ResourceNotFound", "network not found", 404),
        }
    }

    fn packages(&self) -> Said {
        let scene = self.scene();
        let status = scene.conf.get("papi_status").and_then(Value::as_u64).unwrap_or(200);
        if status != 200 {
            let broken = json!({"code": "InternalError", "message": "papi broken"});
            let body = scene.conf.get("papi_body").cloned().unwrap_or(broken);
            return (status.try_into().unwrap_or(500), Some(body));
        }
        let made = scene.quotas.iter().enumerate().map(|(at, quota)| {
            let n = 10 + at;
            let uuid = format!("aaaa00{n}-1111-4111-8111-0000000000{n}");
            json!({"uuid": uuid, "name": format!("sdc_volume_nfs_{n}"), "quota": quota, "active": true})
        });
        let set = scene.conf.get("packages").filter(|packages| packages.is_array()).cloned();
        ok(set.unwrap_or_else(|| made.collect()))
    }

    fn package(&self, uuid: &str) -> Said {
        match self.packages() {
            (200, Some(Value::Array(all))) => all
                .into_iter()
                .find(|package| package["uuid"] == uuid)
                .map_or_else(|| fault("ResourceNotFound", "package not found", 404), ok),
            broken => broken,
        }
    }

    /// VMAPI takes an order for a VM, and a job does it later: whoever asks sets the VM's record then.
    fn order(&self, vm: &str) -> Said {
        match (self.configured("vm_order"), self.vms.get(vm)) {
            (Some(said), _) => said,
            (None, Some(_)) => (202, Some(json!({"vm_uuid": vm, "job_uuid": Uuid::new_v4()}))),
            (None, None) => fault("ResourceNotFound", "VM not found", 404),
        }
    }

    fn image(&self, uuid: &str, is_get: bool) -> Said {
        match (self.scene().conf.get("images") != Some(&json!(false)), is_get) {
            (true, _) => ok(json!({"uuid": uuid, "name": "nfs", "state": "active"})),
            (false, true) => fault("ResourceNotFound", "image not found", 404),
            (false, false) => fault("InternalError", "no route to remote", 500),
        }
    }

    fn take_ticket(&self, body: Option<&Value>) -> Said {
        if let Some(said) = self.configured("ticket_create") {
            return said;
        }
        let mut scene = self.scene();
        let ticket = Uuid::new_v4().to_string();
        let body = body.cloned().unwrap_or_default();
        let queue = body["id"].as_str().unwrap_or_default().to_owned();
        let waiting = scene.queues.entry(queue.clone()).or_default();
        waiting.push_back(ticket.clone());
        let answer = json!({"uuid": ticket, "queue": waiting.iter().collect::<Vec<_>>()});
        scene.tickets.insert(ticket, Ticket { queue, body });
        (202, Some(answer))
    }

    async fn wait(&self, ticket: &str) -> Said {
        if let Some(said) = self.configured("ticket_wait") {
            return said;
        }
        loop {
            let moved = self.moved.notified();
            {
                let scene = self.scene();
                let queue = scene.tickets.get(ticket).and_then(|it| scene.queues.get(&it.queue));
                if queue.is_none_or(|queue| queue.front().is_some_and(|first| first == ticket)) {
                    return (204, None);
                }
            }
            moved.await;
        }
    }

    fn shown(scene: &Scene, uuid: &str, ticket: &Ticket) -> Value {
        let is_first = scene.queues.get(&ticket.queue).and_then(VecDeque::front);
        let active = if is_first.is_some_and(|first| first == uuid) { "active" } else { "queued" };
        let status = scene.conf.get("ticket_status").and_then(Value::as_str).unwrap_or(active);
        let mut shown = ticket.body.clone();
        for (name, value) in [("uuid", uuid), ("server_uuid", "default"), ("status", status)] {
            shown[name] = json!(value);
        }
        shown
    }

    fn ticket(&self, ticket: &str) -> Said {
        if let Some(said) = self.configured("ticket_get") {
            return said;
        }
        let scene = self.scene();
        match scene.tickets.get(ticket) {
            Some(found) => ok(DataCentre::shown(&scene, ticket, found)),
            None => fault("ResourceNotFound", "ticket not found", 404),
        }
    }

    fn list_tickets(&self) -> Said {
        let scene = self.scene();
        let all = scene.tickets.iter().map(|(uuid, it)| DataCentre::shown(&scene, uuid, it));
        ok(all.collect())
    }

    fn release(&self, ticket: &str) -> Said {
        if let Some(said) = self.configured("ticket_release") {
            return said;
        }
        let mut scene = self.scene();
        if let Some(found) = scene.tickets.remove(ticket)
            && let Some(queue) = scene.queues.get_mut(&found.queue)
        {
            queue.retain(|other| other != ticket);
        }
        drop(scene);
        self.moved.notify_waiters();
        (204, None)
    }

    fn destroy_vm(&self, vm: &str) -> Said {
        if let Some(said) = self.configured("vm_delete") {
            return said;
        }
        self.scene().deleted.push(vm.to_owned());
        (202, Some(json!({"vm_uuid": vm, "job_uuid": Uuid::new_v4()})))
    }

    fn make_vm(&self, body: Option<&Value>) -> Said {
        if let Some(said) = self.configured("vm_create") {
            return said;
        }
        let mut vm = body.and_then(Value::as_object).cloned().unwrap_or_default();
        let uuid = vm.get("uuid").cloned().unwrap_or_default();
        let state = self.scene().conf.get("vm_create_state").cloned();
        let state = state.unwrap_or(json!("provisioning"));
        if state.is_string() {
            vm.insert("state".to_owned(), state);
            vm.shift_remove("networks");
            self.vms.put(vm);
        }
        (202, Some(json!({"vm_uuid": uuid, "job_uuid": Uuid::new_v4()})))
    }
}

impl Transport for DataCentre {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            // A request takes time: others run meanwhile.
            tokio::task::yield_now().await;
            let body: Option<Value> =
                request.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
            let at = {
                let mut scene = self.scene();
                scene.calls.push(Call {
                    peer: request.url.host_str().unwrap_or_default().to_owned(),
                    method: request.method.to_string(),
                    url: request.target(),
                    body: body.clone(),
                    status: 0,
                });
                scene.calls.len() - 1
            };
            let fuse = Arc::clone(&self.scene().fuse);
            let is_vmapi = request.url.host_str() == Some("vmapi");
            let blow = fuse.next(if is_vmapi { Callee::Vmapi } else { Callee::Other });
            match blow {
                Some(Blow::Killed) => return std::future::pending().await,
                Some(Blow::KilledLate) => {
                    fuse.delay(request);
                    return std::future::pending().await;
                }
                Some(Blow::PeerAway | Blow::VmapiAway) => {
                    return Err(Error::connect(&request.method, request.target(), "refused"));
                }
                _ => {}
            }
            let lost = || Error::broken(&request.method, request.target(), "cut off");
            if let Some(cn) = self.agent(&request) {
                let answer = cn.answer(&request).await?;
                return if blow == Some(Blow::PeerLost) { Err(lost()) } else { Ok(answer) };
            }
            let (status, answer) = self.answer(&request, body.as_ref()).await?;
            if matches!(blow, Some(Blow::PeerLost | Blow::VmapiLost)) {
                return Err(lost());
            }
            if let Some(call) = self.scene().calls.get_mut(at) {
                call.status = status;
            }
            Ok(Response {
                status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
                headers: http::HeaderMap::new(),
                body: answer.map(|answer| answer.to_string()).unwrap_or_default().into(),
            })
        })
    }
}
