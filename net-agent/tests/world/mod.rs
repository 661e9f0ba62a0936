// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI, VMAPI and the vminfods (the mock) of some nodes, in process, for paused time, with faults by request
//! number and a log of every request. This file is what tests use; `answers.rs` has the answers.

#![allow(dead_code, clippy::unwrap_used)] // a helper of tests: a panic is a failed test

mod answers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use daemon::Shutdown;
use mocks::faults::{Action, Rule};
use mocks::hub::Hub;
use net_agent::agent::{Agent, clients};
use net_agent::config::Config;
use sdc_clients::http::Transport;
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json};
use tokio::time::Instant;

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

/// How NAPI fails for as long as that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// It accepts requests and answers nothing.
    Hangs,
    /// It answers everything with this.
    Status(u16),
}

/// Something that happens once.
pub type Happening = Box<dyn FnOnce(&World) + Send>;

pub struct State {
    /// By bare MAC: record and etag number.
    pub nics: BTreeMap<String, (Value, u64)>,
    pub vmapi: BTreeMap<String, Value>,
    pub vmapi_down: bool,
    /// CNAPI's record of the home node.
    pub cnapi: Option<Value>,
    /// Requests to CNAPI.
    pub cnapi_asked: usize,
    /// `/search/nics` exists.
    pub search: bool,
    /// `/nics` takes cn_uuid.
    pub filters: bool,
    /// `/nics` ignores what it does not know (2015).
    pub lenient: bool,
    pub etags: bool,
    /// Commit the next write, then lose the answer.
    pub lose_next: bool,
    /// Change the record between read and next write.
    pub touch_next: u32,
    /// Before the next write to NAPI, this happens.
    pub before_write: Option<Happening>,
    /// Before vminfod is next asked for one VM, this happens.
    pub before_check: Option<Happening>,
    /// NAPI as a whole fails.
    pub outage: Option<Outage>,
    /// NAPI's clock at the start of the world.
    pub clock_base: Option<jiff::Timestamp>,
    /// By number of the request to NAPI.
    pub faults: BTreeMap<usize, Fault>,
    /// Each request to NAPI of a multiple of this number fails with 503.
    pub every: Option<usize>,
    /// Bare addresses whose records NAPI cannot serve (500 without a code).
    pub broken: Vec<String>,
    /// Deletes that were wrong when they arrived.
    pub wrong: Vec<String>,
    /// VMs of the home node that anybody was shown as hidden, and until when (if they are gone).
    pub hidden: BTreeMap<String, Option<Duration>>,
    /// Pages above this size time out.
    pub largest_page: usize,
    /// Requests to NAPI.
    pub log: Vec<(Duration, String)>,
    /// Requests to VMAPI.
    pub vmapi_log: Vec<String>,
    pub agents: Vec<String>,
    pub(crate) writes: u64,
    /// How many records a test has put at each address.
    pub(crate) made: BTreeMap<String, u64>,
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
    pub(crate) state: Arc<Mutex<State>>,
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

pub(crate) fn bare(mac: &str) -> String {
    mac.replace(':', "")
}

impl World {
    pub fn new() -> Self {
        let state = State {
            nics: BTreeMap::new(),
            vmapi: BTreeMap::new(),
            vmapi_down: false,
            cnapi: None,
            cnapi_asked: 0,
            search: false,
            filters: true,
            lenient: false,
            etags: true,
            lose_next: false,
            touch_next: 0,
            before_write: None,
            before_check: None,
            outage: None,
            clock_base: None,
            faults: BTreeMap::new(),
            every: None,
            broken: Vec::new(),
            wrong: Vec::new(),
            hidden: BTreeMap::new(),
            largest_page: 1000,
            log: Vec::new(),
            vmapi_log: Vec::new(),
            agents: Vec::new(),
            writes: 0,
            made: BTreeMap::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
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

    /// Whether vminfod was asked this.
    pub fn hub_asked(&self, target: &str) -> usize {
        let asked = self.hub(HOME).log().all();
        asked.iter().filter(|it| format!("{}?{}", it.path, it.query) == target).count()
    }

    /// The addresses of a VM of the home node are these, which no event says.
    pub fn wears(&self, uuid: &str, nics: Value) {
        self.hub(HOME).silently(|vms| {
            vms.get_mut(uuid).unwrap().insert("nics".to_owned(), nics);
        });
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn nic(&self, n: u8, vm: &str, over: Value) {
        self.nic_at(&mac(n), vm, over);
    }

    pub fn nic_at(&self, mac: &str, vm: &str, over: Value) {
        let old = "2020-01-01T00:00:00.000Z";
        let mut nic = json!({"mac": mac, "belongs_to_type": "zone", "belongs_to_uuid": vm,
            "owner_uuid": "o", "primary": false, "state": "running", "cn_uuid": CN,
            "created_timestamp": old, "modified_timestamp": old});
        for (key, value) in over.as_object().unwrap() {
            nic[key] = value.clone();
        }
        nic.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let mut state = self.state();
        // Another record never has an etag that this address had before.
        let made = state.made.entry(bare(mac)).or_insert(0);
        let etag = *made * 1_000_000 + 1;
        *made += 1;
        state.nics.insert(bare(mac), (nic, etag));
    }

    pub fn vm(&self, uuid: &str, state: &str, macs: &[u8], hidden: bool) {
        self.vm_on(HOME, uuid, state, macs, hidden);
    }

    pub fn vm_on(&self, host: &str, uuid: &str, state: &str, macs: &[u8], hidden: bool) {
        let hub = self.hub(host);
        let mut vm = vm_json(uuid, state, macs, hidden);
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
        if vm.is_none() {
            self.state().gone(uuid, self.started.elapsed());
        }
        self.hub(HOME).silently(|vms| {
            match vm {
                Some((at, macs, hidden)) => {
                    vms.insert(uuid.to_owned(), vm_json(uuid, at, macs, hidden))
                }
                None => vms.remove(uuid),
            };
        });
    }

    pub fn delete_vm(&self, uuid: &str) {
        self.delete_vm_on(HOME, uuid);
    }

    pub fn delete_vm_on(&self, host: &str, uuid: &str) {
        if host == HOME {
            self.state().gone(uuid, self.started.elapsed());
        }
        self.hub(host).remove(uuid);
    }

    /// vminfod starts anew, unless it is down.
    pub fn cut(&self) {
        if self.hub(HOME).is_up() {
            self.hub(HOME).restart();
        }
    }

    pub fn vmapi(&self, uuid: &str, state: &str, server: &str) {
        let vm = json!({"uuid": uuid, "state": state, "server_uuid": server});
        self.state().vmapi.insert(uuid.to_owned(), vm);
    }

    pub fn has(&self, n: u8) -> bool {
        self.state().nics.contains_key(&bare(&mac(n)))
    }

    pub fn field(&self, n: u8, key: &str) -> Value {
        self.state().nics.get(&bare(&mac(n))).map(|(nic, _)| nic[key].clone()).unwrap_or_default()
    }

    /// Returns the requests to NAPI whose line contains `part`.
    pub fn asked(&self, part: &str) -> Vec<(Duration, String)> {
        self.state().log.iter().filter(|(_, line)| line.contains(part)).cloned().collect()
    }

    /// Returns the requests that write to NAPI.
    pub fn writes(&self) -> Vec<String> {
        let state = self.state();
        let lines = state.log.iter().map(|(_, line)| line);
        lines.filter(|line| !line.starts_with("GET ")).cloned().collect()
    }

    /// Returns the records without `modified_timestamp`.
    pub fn records(&self) -> Vec<Value> {
        let state = self.state();
        let records = state.nics.values().map(|(nic, _)| {
            let mut nic = nic.clone();
            nic.as_object_mut().unwrap().remove("modified_timestamp");
            nic
        });
        records.collect()
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
    let vm = json!({"uuid": uuid, "zonename": uuid, "state": state, "owner_uuid": "o",
        "do_not_inventory": hidden, "nics": nics});
    vm.as_object().cloned().unwrap()
}
