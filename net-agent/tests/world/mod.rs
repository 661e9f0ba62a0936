// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mocks of NAPI, VMAPI and CNAPI and the vminfods of some nodes, in process, for paused time, with faults by
//! request number. Tests name VMs and owners by words, of which [`id`] makes uuids. This file has the
//! nodes and the agents, `services.rs` the records and failures of the services, `wire.rs` the way of the agent's
//! requests.

#![allow(dead_code, clippy::unwrap_used)] // a helper of tests: a panic is a failed test

mod services;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use daemon::Shutdown;
use mocks::faults::{Action, Rule};
use mocks::hub::Hub;
use mocks::napi::Options;
use mocks::{cnapi, napi, vmapi};
use net_agent::agent::{Agent, clients};
use net_agent::config::Config;
use sdc_clients::http::Transport;
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

pub const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
pub const TARGET: &str = "b829c448-085b-4138-adbc-583ac96881c3";
pub const ADMIN: &str = "930896af-bf8c-48d4-885c-6573a94b1853";

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is served, and its answer is lost.
    LoseAnswer,
    /// The connection is refused.
    Refuse,
    /// The connection breaks before anything was done.
    Reset,
    /// 503.
    Unavailable,
}

/// How NAPI fails until [`World::heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// It accepts requests and answers nothing.
    Hangs,
    /// It answers everything with this.
    Status(u16),
}

/// Something that happens once.
pub type Happening = Box<dyn FnOnce(&World) + Send>;

#[derive(Default)]
pub struct State {
    /// Commit the next write, then lose the answer.
    pub lose_next: bool,
    /// Change the record between read and next write.
    pub touch_next: u32,
    /// Before the next write to NAPI, this happens.
    pub before_write: Option<Happening>,
    /// Before vminfod is next asked for one VM, this happens.
    pub before_check: Option<Happening>,
    /// By number of the request to NAPI.
    pub faults: BTreeMap<usize, Fault>,
    /// Requests that were to go to NAPI, also those that were refused.
    pub sent: usize,
    /// Deletes that were wrong when they arrived.
    pub wrong: Vec<String>,
    /// VMs of the home node that anybody was shown as hidden, and until when (if they are gone).
    pub hidden: BTreeMap<String, Option<Duration>>,
}

impl State {
    /// The home node has shown somebody this VM as it is.
    fn show(&mut self, vm: &VmObject) {
        let uuid = vm["uuid"].as_str().unwrap();
        if vm["do_not_inventory"] == true {
            self.hidden.insert(uuid.to_owned(), None);
        } else {
            self.hidden.remove(uuid);
        }
    }

    /// A VM of the home node is gone.
    fn gone(&mut self, uuid: &str, now: Duration) {
        if let Some(until) = self.hidden.get_mut(uuid) {
            *until = until.or(Some(now + Duration::from_secs(300)));
        }
    }
}

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    pub napi: napi::Store,
    pub vmapi: vmapi::Store,
    pub cnapi: cnapi::Store,
    hubs: Arc<BTreeMap<&'static str, Hub>>,
    pub(crate) started: Instant,
    pub dir: Arc<tempfile::TempDir>,
}

/// Events that a vminfod keeps.
const EVENTS: usize = 1000;

/// The node that tests mean when they name none.
pub const HOME: &str = "127.0.0.1";

pub fn mac(n: u8) -> String {
    mac_of(u32::from(n))
}

pub fn mac_of(n: u32) -> String {
    let [_, a, b, c] = n.to_be_bytes();
    format!("f2:00:00:{a:02x}:{b:02x}:{c:02x}")
}

/// The uuid that stands for a name: its bytes. A uuid stands for itself.
pub fn id(name: &str) -> String {
    if Uuid::try_parse(name).is_ok() {
        return name.to_owned();
    }
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Uuid::from_bytes(bytes).to_string()
}

/// NAPI's clock at the start of a world.
const START: &str = "2027-01-15T08:00:00Z";
impl World {
    pub fn new() -> Self {
        Self::at(START.parse().unwrap())
    }

    /// One in which NAPI's clock shows this.
    pub fn at(now: jiff::Timestamp) -> Self {
        Self {
            state: Arc::default(),
            napi: napi::Store::at(Options::default(), now.as_millisecond()),
            vmapi: vmapi::Store::default(),
            cnapi: cnapi::Store::default(),
            hubs: Arc::new(
                [(HOME, Hub::new(CN, EVENTS)), ("target", Hub::new(TARGET, EVENTS))].into(),
            ),
            started: Instant::now(),
            dir: Arc::new(folder()),
        }
    }

    /// The vminfod of a node.
    pub fn hub(&self, host: &str) -> &Hub {
        &self.hubs[host]
    }

    /// The home node has shown somebody these VMs as they are.
    fn show(&self, which: impl Fn(&str) -> bool) {
        let vms = self.hub(HOME).vms();
        let mut state = self.state();
        vms.iter().filter(|(name, _)| which(name)).for_each(|(_, vm)| state.show(vm));
    }

    /// vminfod answers this, whatever it is asked at this path.
    pub fn breaks(&self, path: &str, status: u16, text: &str) {
        let body = Some(text.into());
        let action = Action::Status { status, body, retry_after: None };
        self.hub(HOME).faults().add(Rule::new("GET", path, action));
    }

    /// These zones of the home node cannot be read.
    pub fn unread(&self, zones: &[&str]) {
        let zones: Vec<String> = zones.iter().map(|zone| id(zone)).collect();
        self.hub(HOME).incomplete(&zones.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Whether vminfod was asked this.
    pub fn hub_asked(&self, target: &str) -> usize {
        let asked = self.hub(HOME).log().all();
        asked.iter().filter(|it| format!("{}?{}", it.path, it.query) == target).count()
    }

    /// The addresses of a VM of the home node are these, which no event says.
    pub fn wears(&self, uuid: &str, nics: Value) {
        self.hub(HOME).silently(|vms| {
            vms.get_mut(&id(uuid)).unwrap().insert("nics".to_owned(), nics);
        });
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn vm(&self, uuid: &str, state: &str, macs: &[u8], hidden: bool) {
        self.vm_on(HOME, uuid, state, macs, hidden);
    }

    pub fn vm_on(&self, host: &str, uuid: &str, state: &str, macs: &[u8], hidden: bool) {
        let hub = self.hub(host);
        let mut vm = vm_json(uuid, state, macs, hidden);
        let uuid = &id(uuid);
        if hub.vms().get(uuid) == Some(&vm) {
            // Something else of it changes.
            vm.insert("alias".to_owned(), hub.position().1.into());
        }
        let is_heard = hub.listeners() > 0;
        hub.put(vm);
        if host == HOME && is_heard {
            self.show(|name| name == uuid);
        }
    }

    /// Changes the node without any event.
    pub fn quietly(&self, uuid: &str, vm: Option<(&str, &[u8], bool)>) {
        let uuid = id(uuid);
        if vm.is_none() {
            self.state().gone(&uuid, self.started.elapsed());
        }
        self.hub(HOME).silently(|vms| {
            match vm {
                Some((at, macs, hidden)) => {
                    vms.insert(uuid.clone(), vm_json(&uuid, at, macs, hidden))
                }
                None => vms.remove(&uuid),
            };
        });
    }

    pub fn delete_vm(&self, uuid: &str) {
        self.delete_vm_on(HOME, uuid);
    }

    pub fn delete_vm_on(&self, host: &str, uuid: &str) {
        let uuid = id(uuid);
        if host == HOME {
            self.state().gone(&uuid, self.started.elapsed());
        }
        self.hub(host).remove(&uuid);
    }

    /// vminfod starts anew, unless it is down.
    pub fn cut(&self) {
        if self.hub(HOME).is_up() {
            self.hub(HOME).restart();
        }
    }

    pub fn config(&self, host: &str, over: Value) -> Config {
        let cn = self.hub(host).sysinfo()["UUID"].clone();
        let mut config = json!({"napi": {"url": "http://napi.lab"}, "cn_uuid": cn, "seed": 1,
            "vminfod": {"url": format!("http://{host}:9090"), "trust_tcp": true}, "admin_uuid": ADMIN,
            "state_dir": self.dir.path().join(host), "log_level": "off"});
        for (key, value) in over.as_object().unwrap() {
            config[key] = value.clone();
        }
        Config::from_json(&config.to_string()).unwrap()
    }

    pub fn agent(&self, host: &str, over: Value) -> Arc<Agent> {
        let config = self.config(host, over);
        let transport: Arc<dyn Transport> = Arc::new(self.clone());
        let made = clients(&config, Arc::clone(&transport), transport).unwrap();
        Agent::with_clients(config, made)
    }

    pub fn start(&self, over: Value) -> (Arc<Agent>, Shutdown) {
        self.start_on(HOME, over)
    }

    pub fn start_on(&self, host: &str, over: Value) -> (Arc<Agent>, Shutdown) {
        let agent = self.agent(host, over);
        let shutdown = Shutdown::new();
        tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
        (agent, shutdown)
    }

    /// Runs an agent for a while in a runtime of its own, then drops everything, as a crash does.
    pub fn live_and_crash(&self, over: Value, span: Duration, meanwhile: impl FnOnce(&Self)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = self.clone();
            world.started = Instant::now();
            let _running = world.start(over);
            tokio::time::sleep(Duration::from_secs(60)).await;
            meanwhile(&world);
            tokio::time::sleep(span).await;
        });
        runtime.shutdown_timeout(Duration::ZERO);
        self.cut();
    }
}

/// In memory if possible: hundreds of runs flush their state file here.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn vm_json(uuid: &str, state: &str, macs: &[u8], hidden: bool) -> VmObject {
    let nics: Vec<_> = macs.iter().map(|n| json!({"mac": mac(*n)})).collect();
    let vm = json!({"uuid": id(uuid), "zonename": id(uuid), "state": state, "owner_uuid": id("o"),
        "do_not_inventory": hidden, "nics": nics});
    vm.as_object().cloned().unwrap()
}
