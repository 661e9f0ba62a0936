// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes, one NAPI, one VMAPI, in process. A scheduler decides when each request is answered
//! and each event is delivered: each is one step.

mod heard;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use daemon::Shutdown;
use mocks::napi::{Era, NewNic, Options, Store};
use mocks::transport::InProcess;
use mocks::vmapi;
use net_agent::agent::{Agent, clients};
use net_agent::config::Config;
use sdc_clients::http::Transport;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::Id;

use heard::Heard;
use wire::Wire;

pub const VM: &str = "8a1f3f9c-2d0b-4b52-9f0e-1c7b7a55d001";
pub const OTHER: [&str; 2] =
    ["8a1f3f9c-2d0b-4b52-9f0e-1c7b7a55d0a1", "8a1f3f9c-2d0b-4b52-9f0e-1c7b7a55d0b1"];
pub const CN: [&str; 2] =
    ["a0000000-0000-4000-8000-00000000000a", "b0000000-0000-4000-8000-00000000000b"];
pub const MAC: &str = "90:b8:d0:00:00:01";
pub const OTHER_MAC: [&str; 2] = ["90:b8:d0:00:00:0a", "90:b8:d0:00:00:0b"];
pub const OWNER: &str = "9dce1460-0c4c-4417-ab8b-25ca478c5a78";

/// A request held back.
struct Held {
    label: String,
    /// The task of the agent that asks.
    task: Id,
    /// It asks for a view of the node, and the agent has learnt of the node since it asked.
    overtaken: bool,
    go: oneshot::Sender<Answered>,
}

/// What an agent makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// It uses it.
    InTime,
    /// It asks again: the answer is older than what it has learnt since it asked.
    TooLate,
}

/// One node and its agent's wire.
#[derive(Default)]
struct Node {
    vms: BTreeMap<String, Value>,
    held: VecDeque<Held>,
    events: VecDeque<Bytes>,
    stream: Option<mpsc::Sender<Bytes>>,
    heard: Heard,
    /// Requests to NAPI that were let through, in words.
    asked: Vec<String>,
    agent: Option<(Arc<Agent>, Shutdown)>,
}

struct Inner {
    nodes: [Node; 2],
    /// Hold nothing back from this node's agent.
    free: [bool; 2],
}

/// The world of one run.
#[derive(Clone)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
    pub napi: Store,
    pub vmapi: vmapi::Store,
    dir: Arc<tempfile::TempDir>,
    min_age: &'static str,
}

impl World {
    /// The VM has been stopped on node 0, which NAPI has not heard yet, and its copy on node 1 is
    /// there and hidden: the moment of the switch. Each node has another VM besides.
    pub fn new(min_age: &'static str) -> Self {
        let napi = Store::new(Options::era(Era::Rfd58));
        let vmapi = vmapi::Store::default();
        let world = Self {
            inner: Arc::new(Mutex::new(Inner { nodes: Default::default(), free: [false; 2] })),
            napi,
            vmapi,
            dir: Arc::new(scratch()),
            min_age,
        };
        world.network();
        let day = std::time::Duration::from_secs(86_400);
        for (node, (vm, mac)) in OTHER.into_iter().zip(OTHER_MAC).enumerate() {
            world.put(node, vm, mac, "running", false);
            world.vmapi.set(vm, "running", Some(CN[node]));
            let nic = NewNic::zone(mac, vm, CN[node]).with("owner_uuid", json!(OWNER));
            world.napi.add_nic(nic.aged(day)).unwrap();
        }
        world.put(0, VM, MAC, "stopped", false);
        world.put(1, VM, MAC, "stopped", true);
        world.vmapi.set(VM, "stopped", Some(CN[0]));
        world.napi.add_nic(record(CN[0], "running").aged(day)).unwrap();
        world
    }

    fn network(&self) {
        let seed = json!({
            "nic_tags": [{"name": "external"}],
            "networks": [{"uuid": NETWORK, "name": "n", "nic_tag": "external", "vlan_id": 0,
                "subnet": "10.9.0.0/24", "provision_start_ip": "10.9.0.5",
                "provision_end_ip": "10.9.0.250"}],
        });
        self.napi.seed(&serde_json::from_value(seed).unwrap()).unwrap();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Puts a VM on a node, or changes it there; the node tells its agent.
    pub fn put(&self, node: usize, uuid: &str, mac: &str, state: &str, hidden: bool) {
        let vm = json!({"uuid": uuid, "zonename": uuid, "state": state, "owner_uuid": OWNER,
            "brand": "joyent", "do_not_inventory": hidden,
            "nics": [{"mac": mac, "primary": true}]});
        let old = self.lock().nodes[node].vms.insert(uuid.to_owned(), vm.clone());
        let kind = if old.is_some() { "modify" } else { "create" };
        let mut event = json!({"type": kind, "date": "2026-01-01T00:00:00.000Z",
            "zonename": uuid, "uuid": "e", "vm": vm});
        if old.is_some() {
            event["changes"] = json!([{"prettyPath": "state", "path": ["state"],
                "action": "changed", "oldValue": "a", "newValue": "b"}]);
        }
        self.tell(node, &event);
    }

    /// Takes a VM off a node.
    pub fn take(&self, node: usize, uuid: &str) {
        self.lock().nodes[node].vms.remove(uuid);
        self.tell(
            node,
            &json!({"type": "delete", "date": "2026-01-01T00:00:00.000Z",
            "zonename": uuid, "uuid": "e"}),
        );
    }

    /// What the VM is on this node, if it is there.
    pub fn vm(&self, node: usize) -> Option<Value> {
        self.lock().nodes[node].vms.get(VM).cloned()
    }

    fn tell(&self, node: usize, event: &Value) {
        let mut inner = self.lock();
        let free = inner.free[node];
        let node = &mut inner.nodes[node];
        // A node whose agent does not listen yet tells by its first snapshot.
        if node.stream.is_some() {
            node.events.push_back(Bytes::from(format!("{event}\n")));
            if free {
                node.deliver();
            }
        }
    }

    /// Starts a node's agent.
    pub fn start(&self, node: usize) {
        let dir = self.state_dir(node);
        let short = |low: &str, high: &str| json!({"min": low, "max": high});
        let config = json!({
            "napi": {"url": "http://napi.lab"}, "vmapi": {"url": "http://vmapi.lab"},
            "cn_uuid": CN[node], "seed": 7 + node, "log_level": "off", "state_dir": dir,
            "startup_delay": short("20ms", "20ms"), "server_nic_delay": short("0s", "0s"),
            "settle": "20ms", "second_look": "20ms", "min_age": self.min_age,
            "provisioning_age": "1ms", "resync": "60s", "relist": "0s",
            "verdict_retry": ["50ms", "100ms", "20s"], "retry": short("20s", "30s"),
            "conflict_retry": short("10ms", "20ms"), "pace": {"per_second": 1000, "in_flight": 8},
        });
        let config = Config::from_json(&config.to_string()).unwrap();
        let wire: Arc<dyn Transport> = Arc::new(Wire {
            world: self.clone(),
            node,
            napi: InProcess::new(self.napi.clone()),
            vmapi: InProcess::new(self.vmapi.clone()),
        });
        let made = clients(&config, Arc::clone(&wire), wire).unwrap();
        let agent = Agent::with_clients(config, made);
        let shutdown = Shutdown::new();
        tokio::spawn(Arc::clone(&agent).run(shutdown.clone()));
        self.lock().nodes[node].agent = Some((agent, shutdown));
    }

    /// Stops a node's agent, whatever it is doing.
    pub fn stop(&self, node: usize) {
        let mut inner = self.lock();
        let node = &mut inner.nodes[node];
        if let Some((_, shutdown)) = node.agent.take() {
            shutdown.trigger();
        }
        (node.stream, node.events, node.held) = Default::default();
    }

    /// Does the node's agent run?
    pub fn runs(&self, node: usize) -> bool {
        self.lock().nodes[node].agent.is_some()
    }

    /// The directory of a node's agent: its holds are there, running or not.
    pub fn state_dir(&self, node: usize) -> std::path::PathBuf {
        self.dir.path().join(CN[node])
    }

    /// Lets everything of a node's agent through, or nothing any more.
    pub fn set_free(&self, node: usize, free: bool) {
        let mut inner = self.lock();
        inner.free[node] = free;
        if free {
            let node = &mut inner.nodes[node];
            node.deliver();
            for held in node.held.drain(..) {
                // An agent that no longer waits has nothing to be told.
                let _gone = held.go.send(Answered::InTime);
            }
        }
    }

    /// Requests held back, by node.
    pub fn held(&self) -> [usize; 2] {
        let mut inner = self.lock();
        // One whose agent gave up waiting is no step any more.
        inner.nodes.iter_mut().for_each(|node| node.held.retain(|held| !held.go.is_closed()));
        [inner.nodes[0].held.len(), inner.nodes[1].held.len()]
    }

    /// The requests held back of a node's agent, in words.
    pub fn labels(&self, node: usize) -> Vec<String> {
        self.lock().nodes[node].held.iter().map(|held| held.label.clone()).collect()
    }

    /// Is there an event that the node's agent has not heard?
    pub fn untold(&self, node: usize) -> bool {
        !self.lock().nodes[node].events.is_empty()
    }

    /// Lets one request through.
    pub fn let_through(&self, node: usize, which: usize) -> String {
        let held = self.lock().nodes[node].held.remove(which).expect("a request is held back");
        let answered = if held.overtaken { Answered::TooLate } else { Answered::InTime };
        let _gone = held.go.send(answered);
        held.label
    }

    /// Lets the node tell its agent one event.
    pub fn tell_one(&self, node: usize) {
        let mut inner = self.lock();
        let node = &mut inner.nodes[node];
        if let (Some(event), Some(stream)) = (node.events.pop_front(), &node.stream) {
            node.heard.told(&event);
            stream.try_send(event).expect("the agent keeps up");
            node.overtake();
        }
    }

    /// Requests of a node's agent to NAPI so far.
    pub fn asked(&self, node: usize) -> Vec<String> {
        self.lock().nodes[node].asked.clone()
    }

    /// A task that asks nothing has nothing half done: what its agent knows is all that is left of
    /// what the task was answered.
    pub fn rest(&self) {
        for node in &mut self.lock().nodes {
            let busy: Vec<Id> = node.held.iter().map(|held| held.task).collect();
            node.heard.forget_all_but(&busy);
        }
    }

    /// Everything that what comes next depends on, but for the time. With `in_order`, states that
    /// answers to different tasks led to in different orders differ.
    pub fn key(&self, at: impl Hash, in_order: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        at.hash(&mut hasher);
        for mut nic in self.napi.nics() {
            for stamp in ["created_timestamp", "modified_timestamp"] {
                nic.as_object_mut().unwrap().remove(stamp);
            }
            nic.to_string().hash(&mut hasher);
        }
        for vm in self.vmapi.all() {
            Value::Object(vm).to_string().hash(&mut hasher);
        }
        for node in &self.lock().nodes {
            node.heard.hash_into(&mut hasher, &node.held, in_order);
            node.agent.as_ref().map(|(agent, _)| known_to(agent)).hash(&mut hasher);
            node.events.hash(&mut hasher);
            Value::from_iter(node.vms.clone()).to_string().hash(&mut hasher);
        }
        hasher.finish()
    }
}

pub const NETWORK: &str = "f0000000-0000-4000-8000-0000000000f0";
pub const IP: &str = "10.9.0.7";

/// The VM's record as a data centre has it.
pub fn record(cn: &str, state: &str) -> NewNic {
    NewNic::zone(MAC, VM, cn)
        .with("owner_uuid", json!(OWNER))
        .with("state", json!(state))
        .with("primary", json!(true))
        .with("network_uuid", json!(NETWORK))
        .with("ip", json!(IP))
        .with("check_owner", json!(false))
}

/// In memory where the system has such a place: thousands of runs each have their own.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

/// What an agent knows and means to do, without the times.
fn known_to(agent: &Agent) -> String {
    let parts = &agent.parts;
    let departures: Vec<String> = parts
        .departures
        .all()
        .iter()
        .map(|(mac, d)| format!("{mac} {} {:?} {} {:?} {}", d.vm, d.left, d.tries, d.waits, d.why))
        .collect();
    let all = format!(
        "{} {:?} {:?} {:?}",
        parts.node.look(|inventory| format!("{inventory:?}")),
        departures,
        parts.status.waiting_for(),
        parts.schedule
    );
    let timeless = |word: &&str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        word.len() == unit.len() || !matches!(unit, "s" | "ms" | "µs" | "ns")
    };
    all.split(|c: char| !c.is_alphanumeric() && c != '.').filter(timeless).collect()
}

impl Node {
    /// The agent has learnt of the node: a view that it asked for earlier is older than that.
    fn overtake(&mut self) {
        let views = self.held.iter_mut().filter(|held| is_view(&held.label));
        views.for_each(|held| held.overtaken = true);
    }

    fn deliver(&mut self) {
        while let (Some(event), Some(stream)) = (self.events.pop_front(), &self.stream) {
            let _gone = stream.try_send(event);
        }
    }
}

/// Does this request ask for a view of the node?
fn is_view(label: &str) -> bool {
    label.contains("/vms?sync=zones")
}
