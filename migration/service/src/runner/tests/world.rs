// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A data centre of two nodes in memory: everything that the service asks is answered here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use daemon::http::{call, collect};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use mocks::cnapi::{self, TaskError};
use mocks::transport::InProcess;
use sdc_clients::Error;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Http, Request, Response, Transport};
use sdc_clients::identity::Identity;
use serde_json::{Map, Value, json};
use store::{Call, Fault, Faults, Store};
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

use super::node::{Host, ONE, OWNER, TWO, VM};
use crate::asked::Asked;
use crate::clock::Clock;
use crate::front::{Upstream, adoption, router};
use crate::params::Params;
use crate::runner::{TERM, lead};
use crate::state::Service;
use crate::through::Through;
use crate::{Addresses, Agents, Known, Peers, Refused};
use migration_core::protocol::{Observe, Order, What};
use migration_core::record::{Record, State};
use migration_core::time::Time;

/// Between two heartbeats of a node.
const BEAT: Duration = Duration::from_secs(5);
/// So long after its last sign of life a node may be taken for dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(300);

/// When the service is killed: at which event, before it or after it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Before(usize),
    After(usize),
}

#[derive(Debug)]
pub struct Centre {
    pub hosts: BTreeMap<Uuid, Host>,
    /// VMAPI's record of the VM.
    pub vmapi: Map<String, Value>,
    pub reserved: bool,
    /// The NICs that NAPI was given: it has none at the beginning.
    pub nics: Vec<Value>,
    /// The events that were about tickets.
    pub of_tickets: Vec<usize>,
    pub events: usize,
    pub kill: Option<Kill>,
    /// What the promises were broken by.
    pub broken: Option<String>,
    /// How often VMAPI's record has moved to another node.
    pub moves: usize,
    pub clock: Clock,
    /// A VM that VMAPI does not have.
    pub unknown: Option<Uuid>,
    /// A node without an agent that CNAPI likes best.
    pub preferred: Option<Uuid>,
}

/// The data centre, which carries the service's requests.
pub struct World {
    centre: Arc<Mutex<Centre>>,
    /// The mock that is held to recordings of the real one.
    pub cnapi: cnapi::Store,
    pub killed: Notify,
    pub store: Store,
    /// A service for commands and for reading the record.
    plain: OnceCell<Service>,
}

/// Returns a service that asks through `transport`.
pub async fn service(transport: Arc<dyn Transport>, store: &Store, clock: Clock) -> Service {
    let at = |name: &str| format!("http://{name}.sim");
    let addresses = Addresses {
        vmapi: at("vmapi"),
        cnapi: at("cnapi"),
        napi: at("napi"),
        imgapi: at("imgapi"),
        papi: at("papi"),
    };
    let peers = Peers::new(&addresses, &transport).unwrap();
    let http = Http::with_transport("http://cnapi.sim", "t", transport.clone()).unwrap();
    let urls = [ONE, TWO].map(|cn| (cn, format!("http://{cn}.sim"))).into();
    let known = Known { port: 5314, urls };
    let agents = Agents::new(known, Cnapi::new(http), transport);
    Service::open(store, peers, agents, clock, "http://m.sim").await.unwrap()
}

impl World {
    pub fn new(is_running: bool) -> Arc<World> {
        let store = Store::in_memory().unwrap();
        let centre = Arc::new(Mutex::new(Centre::new(VM, is_running)));
        let known = Arc::clone(&centre);
        Arc::new(World {
            centre,
            cnapi: cnapi(Arc::new(move |_, work| work(&mut known.lock().unwrap()))),
            killed: Notify::new(),
            store,
            plain: OnceCell::new(),
        })
    }

    /// The same data centre, whose service has another store.
    pub fn with_store(&self, store: Store) -> Arc<World> {
        let (centre, cnapi) = (Arc::clone(&self.centre), self.cnapi.clone());
        let (killed, plain) = (Notify::new(), OnceCell::new());
        Arc::new(World { centre, cnapi, killed, store, plain })
    }

    pub fn centre(&self) -> MutexGuard<'_, Centre> {
        self.centre.lock().unwrap()
    }

    /// The nodes that have power and are not cut off send CNAPI their heartbeats.
    fn beat(&self) {
        for (cn, host) in &self.centre().hosts {
            if !host.is_dead && !host.is_silent {
                self.cnapi.beat(&cn.to_string());
            }
        }
    }

    pub async fn beats(&self) {
        loop {
            self.beat();
            tokio::time::sleep(BEAT).await;
        }
    }

    /// CNAPI is about to be asked.
    fn prepare(&self, request: &Request) {
        self.beat();
        let mut centre = self.centre();
        if request.url.path().contains("tickets") {
            let event = centre.events;
            centre.of_tickets.push(event);
        } else if let Some(preferred) = centre.preferred {
            self.cnapi.put_server(server(preferred, 32768));
        }
    }

    /// CNAPI's tickets that somebody holds or waits for.
    pub fn tickets(&self) -> Vec<Value> {
        let is_open = |it: &Value| it["status"] == "queued" || it["status"] == "active";
        self.cnapi.all_tickets().into_iter().filter(is_open).collect()
    }

    /// Counts an event; returns true if the service is killed at it.
    fn is_killed(&self, kill: fn(usize) -> Kill) -> bool {
        let centre = self.centre();
        let is_now = centre.kill == Some(kill(centre.events));
        drop(centre);
        if is_now {
            self.centre().kill = None;
            self.killed.notify_one();
        }
        is_now
    }

    /// Returns a service that uses this store, which may be one with faults.
    pub async fn service(self: &Arc<World>, store: &Store) -> Service {
        let clock = self.centre().clock;
        service(self.clone(), store, clock).await
    }

    /// Runs a service whose store and requests can kill it, until it is killed.
    pub async fn run(self: &Arc<World>) {
        let faults: Arc<dyn Faults> = Arc::new(Killing(self.clone()));
        let store = self.store.with_faults(faults);
        let running = self.service(&store).await;
        tokio::select! {
            () = lead(running, store, TERM) => {}
            () = self.beats() => {}
            () = self.killed.notified() => {}
        }
    }

    /// Asks the service over HTTP, as the clients of VMAPI do. Returns the status and the body.
    pub async fn ask(self: &Arc<World>, method: &str, path: &str, body: Value) -> (u16, Value) {
        let upstream = Upstream::new("http://vmapi.sim", self.clone()).unwrap();
        let service = self.plain().await.clone();
        let routes = adoption(service.clone()).merge(router(service, upstream));
        let request = http::Request::builder().method(method).uri(path.replace(' ', "%20"));
        let request = request.header("content-type", "application/json");
        let request = request.header("user-agent", "sdc-migrate/1.0.0 (ops)");
        let answer = call(routes, request.body(Body::from(body.to_string())).unwrap()).await;
        let status = answer.status().as_u16();
        let bytes = collect(answer.into_body(), 1 << 20, Duration::from_secs(60)).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Orders an action over HTTP, which may have further parameters.
    pub async fn act(self: &Arc<World>, action: &str) -> (u16, Value) {
        let path = format!("/vms/{VM}?action=migrate&migration_action={action}");
        self.ask("POST", &path, json!({})).await
    }

    /// Begins, and syncs once.
    pub async fn synced(self: &Arc<World>) {
        for action in ["begin", "sync"] {
            let (status, body) = self.act(action).await;
            assert_eq!(status, 202, "{action}: {body}");
            assert_eq!(self.settled().await.unwrap().state, State::Paused, "{action}");
        }
    }

    /// Declares a node dead, when its last signs of life are old enough.
    pub async fn declare(self: &Arc<World>, action: &str) -> (u16, Value) {
        tokio::time::sleep(DEAD_AFTER).await;
        self.act(action).await
    }

    /// A node is cut off, and runs on.
    pub fn cut_off(&self, cn: Uuid) {
        self.cnapi.beat(&cn.to_string());
        self.centre().hosts.get_mut(&cn).unwrap().is_silent = true;
    }

    /// A node loses its power, or has it again.
    pub fn power(&self, cn: Uuid, is_on: bool) {
        self.cnapi.beat(&cn.to_string());
        let mut centre = self.centre();
        let host = centre.hosts.get_mut(&cn).unwrap();
        host.is_dead = !is_on;
        if let Some(copy) = host.copy.as_mut().filter(|_| !is_on) {
            copy.running = false;
        }
    }

    /// A service that clients reach without its rounds.
    pub async fn plain(self: &Arc<World>) -> &Service {
        self.plain.get_or_init(|| self.service(&self.store)).await
    }

    /// Gives a command through a service of its own.
    pub async fn command(self: &Arc<World>, query: &str) -> Result<(), Refused> {
        let service = self.plain().await;
        let params = Params::of_query(Some(query));
        let asked = Asked::read(&params)?;
        let vm = service.vm(VM).await?;
        let target = crate::asked::overrides(&params)?;
        Box::pin(service.command(&vm, asked.action.unwrap(), &asked, target)).await.map(drop)
    }

    /// Sets how many migrations a node may have.
    pub async fn limit(self: &Arc<World>, most: u32) {
        let values = json!({"max_running_migrations_per_cn": most});
        let (plain, through) = (self.plain().await, Through::default());
        let (values, now) = (values.as_object().unwrap(), plain.clock.now());
        plain.settings.change(None, values, &through, now).await.unwrap();
    }

    /// Returns the newest record.
    pub async fn record(self: &Arc<World>) -> Option<Record> {
        let all = self.plain().await.records.all().await.unwrap();
        all.into_iter().map(|kept| kept.record).max_by_key(|record| record.created_timestamp)
    }

    /// Waits until nothing runs any more, at most an hour.
    pub async fn settled(self: &Arc<World>) -> Option<Record> {
        for _ in 0..3600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let record = self.record().await;
            if record
                .as_ref()
                .is_none_or(|it| !crate::runner::is_busy(it) && it.state != State::Queued)
            {
                return record;
            }
        }
        panic!("it does not end: {:?}", self.record().await);
    }
}

impl Centre {
    /// A VM on the first of two nodes.
    pub fn new(vm: Uuid, is_running: bool) -> Centre {
        let source = Host::with_vm(vm, is_running);
        let vmapi = source.object(ONE).unwrap();
        let target = Host { vm, ..Host::default() };
        Centre {
            hosts: BTreeMap::from([(ONE, source), (TWO, target)]),
            vmapi,
            reserved: false,
            of_tickets: Vec::new(),
            events: 0,
            kill: None,
            nics: Vec::new(),
            broken: None,
            moves: 0,
            unknown: None,
            preferred: None,
            clock: Clock::simulated(Time::parse("2026-03-01T00:00:00Z").unwrap()),
        }
    }

    /// Finds what P13 forbids.
    pub fn check(&mut self) {
        let live = || self.hosts.values().filter(|host| !host.is_dead);
        let copies = || live().filter_map(|host| host.copy.as_ref());
        let running = copies().filter(|copy| copy.running).count();
        let shown = copies().filter(|copy| !copy.hidden).count();
        if running > 1 || shown > 1 {
            self.broken.get_or_insert(format!("{running} run, {shown} are shown"));
        }
    }

    pub fn answer(&mut self, request: &Request) -> (u16, Value) {
        let body: Value =
            serde_json::from_slice(request.body.as_deref().unwrap_or_default()).unwrap_or_default();
        let path = request.url.path().to_owned();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let host = request.url.host_str().unwrap_or_default();
        let host = host.strip_suffix(".sim").unwrap_or_default();
        match (host, &request.method, parts.as_slice()) {
            ("vmapi", &Method::GET, ["vms", vm])
                if self.unknown.is_some_and(|it| it.to_string() == *vm) =>
            {
                (404, json!({"code": "ResourceNotFound", "message": "VM not found"}))
            }
            ("vmapi", &Method::GET, ["vms"]) => {
                let of = request.url.query_pairs().find(|(name, _)| name == "server_uuid");
                let is_there = of.is_none_or(|(_, cn)| self.vmapi["server_uuid"] == json!(cn));
                (200, is_there.then(|| Value::Object(self.vmapi.clone())).into_iter().collect())
            }
            ("vmapi", &Method::GET, ["vms", _]) => (200, Value::Object(self.vmapi.clone())),
            ("vmapi", &Method::POST | &Method::DELETE, ["vms", vm]) => {
                (202, json!({"vm_uuid": vm, "job_uuid": Uuid::from_u128(6)}))
            }
            ("vmapi", &Method::PUT, ["vms", _]) => {
                self.moves += usize::from(self.vmapi["server_uuid"] != body["server_uuid"]);
                self.vmapi = body.as_object().cloned().unwrap();
                (200, body)
            }
            ("napi", &Method::GET, ["networks", _, "ips", ip]) => {
                (200, json!({"ip": ip, "reserved": self.reserved, "free": false}))
            }
            ("napi", &Method::PUT, ["networks", _, "ips", ip]) => {
                self.reserved = body["reserved"] == json!(true);
                (200, json!({"ip": ip, "reserved": self.reserved}))
            }
            ("napi", &Method::GET, ["nics", mac]) => {
                let has = |nic: &&Value| nic["mac"].as_str().unwrap().replace(':', "") == *mac;
                match self.nics.iter().find(has) {
                    Some(nic) => (200, nic.clone()),
                    None => (404, json!({"code": "ResourceNotFound", "message": "nic not found"})),
                }
            }
            ("napi", &Method::POST, ["nics"]) => {
                self.nics.push(body.clone());
                (200, body)
            }
            ("napi", &Method::GET, ["network_pools", uuid]) => (200, json!({"uuid": uuid})),
            ("imgapi", _, ["images", uuid]) => {
                let files = json!([{"compression": "gzip", "size": 1000, "sha1": ""}]);
                (200, json!({"uuid": uuid, "name": "i", "state": "active", "files": files}))
            }
            (cn, _, route) => self.agent(cn.parse().unwrap(), route, &body),
        }
    }

    fn agent(&mut self, cn: Uuid, route: &[&str], body: &Value) -> (u16, Value) {
        let old = || (409, json!({"code": "OldOrder", "message": "a later round was received"}));
        match route {
            ["ping"] => (200, json!({"ping": "pong"})),
            ["observe"] if self.hosts[&cn].is_unwell => (
                503,
                json!({"code": "ServiceUnavailable", "message": "vminfod: no answer in time"}),
            ),
            ["observe"] => {
                let asked: Observe = serde_json::from_value(body.clone()).unwrap();
                let host = self.hosts.get_mut(&cn).unwrap();
                if !host.over.contains(&asked.about.migration) && !host.hears(&asked.about) {
                    return old();
                }
                (200, json!(host.observe(cn, asked.about.migration)))
            }
            ["orders"] => {
                let order: Order = serde_json::from_value(body.clone()).unwrap();
                let host = self.hosts.get_mut(&cn).unwrap();
                if host.over.contains(&order.about.migration) {
                    let over = json!({"code": "MigrationOver", "message": "the migration is over"});
                    return match order.order {
                        What::Over => (200, json!(host.order(&order))),
                        _ => (409, over),
                    };
                }
                if !host.hears(&order.about) {
                    return old();
                }
                let doing = host.order(&order);
                if let (What::Send { to, .. }, migration_core::protocol::State::Done) =
                    (&order.order, &doing.state)
                {
                    let from = host.clone();
                    self.hosts.get_mut(to).unwrap().receive(&from);
                }
                (200, json!(doing))
            }
            ["rate"] => (200, json!({})),
            ["migrations"] => (200, self.hosts[&cn].open()),
            ["node"] => (
                200,
                json!({
                    "cn": cn, "version": 1, "cpu": "x", "platform": "20260101T000000Z",
                    "now_ms": self.clock.now().millis(), "can_resume": true,
                    "has_bookmarks": true, "free_bytes": 1_000_000, "mbps": 1,
                    "vms": if self.hosts[&cn].copy.is_some() { vec![VM] } else { vec![] },
                }),
            ),
            ["vms", _] => match self.hosts[&cn].object(cn) {
                Some(object) => (200, Value::Object(object)),
                None => (404, json!({"code": "ResourceNotFound", "message": "no such VM"})),
            },
            ["vms", _, "size"] => (200, json!({"bytes": 1000})),
            _ => (404, json!({"code": "ResourceNotFound", "message": "no such route"})),
        }
    }

    fn is_silent(&self, request: &Request) -> bool {
        let cn = cn_of(request);
        cn.is_some_and(|cn| self.hosts.get(&cn).is_none_or(|host| host.is_silent || host.is_dead))
    }

    fn is_stuck(&self, request: &Request) -> bool {
        cn_of(request).and_then(|cn| self.hosts.get(&cn)).is_some_and(|host| host.is_stuck)
    }
}

/// Checks that an agent has to prove that it is its node's, and nobody else has to prove anything.
pub fn is_for_its_peer(request: &Request) {
    assert_eq!(request.peer, cn_of(request).map(Identity::Agent), "{}", request.url);
}

/// The node whose agent is asked.
fn cn_of(request: &Request) -> Option<Uuid> {
    request.url.host_str()?.strip_suffix(".sim")?.parse().ok()
}

impl Transport for World {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            is_for_its_peer(&request);
            if self.centre().is_stuck(&request) {
                return std::future::pending().await;
            }
            if self.centre().is_silent(&request) {
                tokio::time::sleep(Duration::from_secs(5)).await;
                return Err(Error::connect(&request.method, request.target(), "no route"));
            }
            self.centre().events += 1;
            if self.is_killed(Kill::Before) {
                return std::future::pending().await;
            }
            let (status, body) = match request.url.host_str() == Some("cnapi.sim") {
                true => {
                    self.prepare(&request);
                    ask(&self.cnapi, &request).await?
                }
                false => self.centre().answer(&request),
            };
            self.centre().check();
            if self.is_killed(Kill::After) {
                return std::future::pending().await;
            }
            let status = StatusCode::from_u16(status).unwrap();
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let headers = HeaderMap::new();
            // An agent answers early only when it is done.
            let is_order = request.url.path().ends_with("/orders");
            let is_running = is_order && body.contains(r#""state":"running""#);
            tokio::time::sleep(Duration::from_millis(if is_running { 1000 } else { 1 })).await;
            Ok(Response { status, headers, body: body.into() })
        })
    }
}

/// Works on the data centre of a VM.
pub type Find = Arc<dyn Fn(Uuid, &mut dyn FnMut(&mut Centre)) + Send + Sync>;

/// A node with this much memory in MiB.
pub(super) fn server(cn: Uuid, ram: u32) -> Map<String, Value> {
    let nics = json!({"net0": {"NIC Names": ["admin", "external"]}});
    let sysinfo = json!({"MiB of Memory": ram.to_string(), "Network Interfaces": nics});
    json!({"uuid": cn, "sysinfo": sysinfo}).as_object().cloned().unwrap()
}

/// CNAPI with the two nodes, and one on which nothing has room.
pub fn cnapi(find: Find) -> cnapi::Store {
    let now = Time::parse("2026-03-01T00:00:00Z").unwrap().millis();
    let store = cnapi::Store::at(now);
    for (cn, ram) in [(ONE, 65536), (TWO, 65536), (Uuid::nil(), 10)] {
        store.put_server(server(cn, ram));
    }
    store.set_hands(Arc::new(move |order: cnapi::Order| {
        let mut done: Result<Value, TaskError> = Err(TaskError::no_vm("no such zone configured"));
        let body = &order.body;
        find(order.vm_uuid.parse().unwrap(), &mut |centre| {
            let host = centre.hosts.get_mut(&order.server_uuid.parse().unwrap()).unwrap();
            match order.verb.as_str() {
                "create" if host.is_dead => done = Err("connect ECONNREFUSED".into()),
                "create" => {
                    assert_eq!(body["do_not_inventory"], json!(true));
                    assert!(body["nics"].is_array() && body.get("networks").is_none());
                    let copy = migration_core::machine::Copy { hidden: true, ..Default::default() };
                    host.copy.get_or_insert(copy);
                    body["alias"].as_str().unwrap().clone_into(&mut host.alias);
                    host.created = "2026-03-01T00:00:00.000Z".into();
                    done = Ok(json!({}));
                }
                "delete" if host.copy.take().is_some() => done = Ok(json!({})),
                "load" if host.copy.is_some() => done = Ok(json!({"uuid": order.vm_uuid})),
                _ => {}
            }
            centre.check();
        });
        Box::pin(std::future::ready(done))
    }));
    store
}

/// Asks the mock; returns status and body.
pub async fn ask(store: &cnapi::Store, request: &Request) -> Result<(u16, Value), Error> {
    let answer = InProcess::new(store.clone()).send(request.clone()).await?;
    Ok((answer.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// Kills the service at a write of the store.
struct Killing(Arc<World>);

impl std::fmt::Debug for Killing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Killing")
    }
}

impl Faults for Killing {
    fn next(&self, call: Call) -> Fault {
        if call != Call::Commit {
            return Fault::None;
        }
        self.0.centre().events += 1;
        if self.0.is_killed(Kill::Before) { Fault::Never } else { Fault::None }
    }
}

/// The owner of the VM, for those who read the record.
pub fn owner() -> Uuid {
    OWNER
}
