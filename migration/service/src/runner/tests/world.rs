// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A data centre of two nodes in memory: everything that the service asks is answered here.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use daemon::http::{call, collect};
use futures_util::future::BoxFuture;
use sdc_clients::Error;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Http, Request, Response, Transport};
use serde_json::{Map, Value, json};
use store::{Call, Fault, Faults, Store};
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

use super::centre::{Centre, Find, Kill, Services, is_for_its_peer, server};
use super::node::{NETWORK, ONE, TWO, VM, ip};
use crate::action_params::ActionParams;
use crate::clock::Clock;
use crate::front::{Upstream, adoption, router};
use crate::params::Params;
use crate::runner::{TERM, lead};
use crate::state::Service;
use crate::through::Through;
use crate::{Addresses, Agents, Known, Peers, Refused};
use migration_core::record::{Record, State};

/// Between two heartbeats of a node.
const BEAT: Duration = Duration::from_secs(5);
/// So long after its last sign of life a node may be taken for dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(300);

/// The data centre, which carries the service's requests.
pub struct World {
    centre: Arc<Mutex<Centre>>,
    pub services: Services,
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
        let centre = Arc::new(Mutex::new(Centre::new(VM, is_running)));
        let known = Arc::clone(&centre);
        let find: Find = Arc::new(move |_, work| work(&mut known.lock().unwrap()));
        let services = Services::new(find, std::iter::once(&*centre.lock().unwrap()));
        World::of(centre, services, Store::in_memory().unwrap())
    }

    fn of(centre: Arc<Mutex<Centre>>, services: Services, store: Store) -> Arc<World> {
        let (killed, plain) = (Notify::new(), OnceCell::new());
        Arc::new(World { centre, services, killed, store, plain })
    }

    /// The same data centre, whose service has another store.
    pub fn with_store(&self, store: Store) -> Arc<World> {
        World::of(Arc::clone(&self.centre), self.services.clone(), store)
    }

    pub fn centre(&self) -> MutexGuard<'_, Centre> {
        self.centre.lock().unwrap()
    }

    /// VMAPI's record of the VM.
    pub fn record_in_vmapi(&self) -> Map<String, Value> {
        self.services.vmapi.get(&VM.to_string()).unwrap()
    }

    /// Returns true if NAPI has the VM's address reserved.
    pub fn is_reserved(&self) -> bool {
        self.services.napi.ip(&NETWORK.to_string(), &ip(VM)).unwrap()["reserved"] == true
    }

    /// The nodes that have power and are not cut off send CNAPI their heartbeats.
    fn beat(&self) {
        for (cn, host) in &self.centre().hosts {
            if !host.is_dead && !host.is_silent {
                self.services.cnapi.beat(&cn.to_string());
            }
        }
    }

    pub async fn beats(&self) {
        loop {
            self.beat();
            tokio::time::sleep(BEAT).await;
        }
    }

    /// A service is about to be asked.
    fn prepare(&self, request: &Request) {
        self.beat();
        let mut centre = self.centre();
        if request.url.path().contains("tickets") {
            let event = centre.events;
            centre.of_tickets.push(event);
        } else if let Some(preferred) = centre.preferred {
            self.services.cnapi.put_server(server(preferred, 32768));
        }
    }

    /// CNAPI's tickets that are held or waited for.
    pub fn tickets(&self) -> Vec<Value> {
        let is_open = |it: &Value| it["status"] == "queued" || it["status"] == "active";
        self.services.cnapi.all_tickets().into_iter().filter(is_open).collect()
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
        self.services.cnapi.beat(&cn.to_string());
        self.centre().hosts.get_mut(&cn).unwrap().is_silent = true;
    }

    /// A node loses its power, or has it again.
    pub fn power(&self, cn: Uuid, is_on: bool) {
        self.services.cnapi.beat(&cn.to_string());
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
        let asked = ActionParams::read(&params)?;
        let vm = service.vm(VM).await?;
        let target = crate::action_params::overrides(&params)?;
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
            let answer = match self.services.mock(&request) {
                Some(mock) => {
                    self.prepare(&request);
                    mock.send(request.clone()).await?
                }
                None => self.centre().answer(&request),
            };
            if self.is_killed(Kill::After) {
                return std::future::pending().await;
            }
            // An agent answers early only when it is done.
            let is_order = request.url.path().ends_with("/orders");
            let is_running =
                is_order && String::from_utf8_lossy(&answer.body).contains(r#""state":"running""#);
            tokio::time::sleep(Duration::from_millis(if is_running { 1000 } else { 1 })).await;
            Ok(answer)
        })
    }
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
