// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two nodes, one NAPI, one VMAPI, in process. A scheduler decides when each request is answered
//! and each event is delivered: each is one step.

mod agents;
mod heard;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use daemon::Shutdown;
use mocks::napi::{Era, NewNic, Options, Store};
use mocks::vmapi;
use net_agent::holds::HoldsFile;
use serde_json::{Value, json};
use testbed::place::place;
use tokio::sync::{mpsc, oneshot};
use tokio::task::Id;

pub use agents::Kind;
use agents::Running;
use heard::Heard;

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
    /// Was the agent told that the VM is hidden? If the VM goes, it stays so.
    hidden: bool,
    /// The agent's requests, in words, and what was wrong with some.
    asked: Vec<String>,
    wrongs: Vec<String>,
    agent: Option<(Running, Shutdown)>,
    /// What the agent knew when it was stopped.
    left: Option<String>,
}

struct Inner {
    nodes: [Node; 2],
    /// The changes of VMs so far.
    changes: u32,
    /// The operator held both nodes on the way.
    held: bool,
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
    kind: Kind,
}

impl World {
    /// The VM is on node 0, and its copy on node 1 is there and hidden: the moment of the switch.
    /// For net-agents it has been stopped, which NAPI has not heard yet. Each node has another VM.
    pub fn new(kind: Kind) -> Self {
        let nodes = Default::default();
        let world = Self {
            inner: Arc::new(Mutex::new(Inner { nodes, changes: 0, held: false, free: [false; 2] })),
            napi: Store::new(Options::era(Era::Rfd58)),
            vmapi: vmapi::Store::default(),
            dir: Arc::new(place().unwrap()),
            kind,
        };
        world.network();
        let day = std::time::Duration::from_secs(86_400);
        for (node, (vm, mac)) in OTHER.into_iter().zip(OTHER_MAC).enumerate() {
            world.put(node, vm, mac, "running", false);
            let nic = NewNic::zone(mac, vm, CN[node]).with("owner_uuid", json!(OWNER));
            world.napi.add_nic(nic.aged(day)).unwrap();
        }
        let state = if kind == Kind::Net { "stopped" } else { "running" };
        world.put(0, VM, MAC, state, false);
        world.put(1, VM, MAC, "stopped", true);
        for vm in [world.other(0), world.other(1), world.vm(0).unwrap()] {
            world.vmapi.put(vm.as_object().unwrap().clone());
        }
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
        let mut inner = self.lock();
        inner.changes += 1;
        let at = format!("2026-01-01T00:{:02}:00.000Z", inner.changes);
        drop(inner);
        let zone_state = if state == "running" { "running" } else { "installed" };
        let vm = json!({"uuid": uuid, "zonename": uuid, "state": state, "owner_uuid": OWNER,
            "brand": "joyent", "do_not_inventory": hidden, "zone_state": zone_state,
            "zonepath": format!("/zones/{uuid}"), "customer_metadata": {}, "tags": {},
            "internal_metadata": {}, "snapshots": [], "last_modified": at,
            "server_uuid": CN[node], "nics": [{"mac": mac, "primary": true}]});
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

    /// The node's other VM.
    pub fn other(&self, node: usize) -> Value {
        self.lock().nodes[node].vms[OTHER[node]].clone()
    }

    /// Returns true if both copies are hidden.
    pub fn both_hidden(&self) -> bool {
        (0..2).all(|node| self.vm(node).is_some_and(|vm| vm["do_not_inventory"] == true))
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
        let shutdown = Shutdown::new();
        let agent = Running::start(self, node, &shutdown);
        self.lock().nodes[node].agent = Some((agent, shutdown));
    }

    /// Stops a node's agent, whatever it is doing.
    pub fn stop(&self, node: usize) {
        let mut inner = self.lock();
        let node = &mut inner.nodes[node];
        if let Some((agent, shutdown)) = node.agent.take() {
            node.left = Some(agent.known());
            shutdown.trigger();
        }
        (node.stream, node.events, node.held) = Default::default();
    }

    /// Returns true if the node's agent was stopped.
    pub fn was_stopped(&self, node: usize) -> bool {
        self.lock().nodes[node].left.is_some()
    }

    /// Returns true if the node's agent runs.
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

    /// Returns true if there is an event that the node's agent has not read.
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
            stream.try_send(event.clone()).expect("the agent keeps up");
            node.learns(&event);
            node.overtake();
        }
    }

    /// Requests of a node's agent so far.
    pub fn asked(&self, node: usize) -> Vec<String> {
        self.lock().nodes[node].asked.clone()
    }

    /// Requests of a node's agent that it should not have made, and why.
    pub fn wrongs(&self, node: usize) -> Vec<String> {
        self.lock().nodes[node].wrongs.clone()
    }

    /// The operator holds the VM on both nodes.
    pub fn hold(&self, nodes: &[usize]) {
        for node in nodes {
            let holds = HoldsFile::new(&self.state_dir(*node));
            let now = jiff::Timestamp::now();
            let (vm, reason) = (Some(VM.to_owned()), "migration".to_owned());
            holds.hold(vm, None, reason, "root".to_owned(), now).unwrap();
        }
        self.lock().held = nodes.len() == 2;
    }

    /// The operator's holds end.
    pub fn release(&self) {
        for node in 0..2 {
            HoldsFile::new(&self.state_dir(node)).release(Some(VM)).unwrap();
        }
        self.lock().held = false;
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
            node.agent.as_ref().map(|(agent, _)| agent.known()).hash(&mut hasher);
            (&node.left, node.hidden, &node.events).hash(&mut hasher);
            Value::from_iter(node.vms.clone()).to_string().hash(&mut hasher);
        }
        hasher.finish()
    }
}

const NETWORK: &str = "f0000000-0000-4000-8000-0000000000f0";
const IP: &str = "10.9.0.7";

/// The VM's record as a data centre has it.
fn record(cn: &str, state: &str) -> NewNic {
    NewNic::zone(MAC, VM, cn)
        .with("owner_uuid", json!(OWNER))
        .with("state", json!(state))
        .with("primary", json!(true))
        .with("network_uuid", json!(NETWORK))
        .with("ip", json!(IP))
        .with("check_owner", json!(false))
}

impl Node {
    /// The agent has learnt of the node: a view that it asked for earlier is older than that.
    fn overtake(&mut self) {
        // A vm-agent uses each view, and leaves out of it what it has learnt since.
        if matches!(self.agent, Some((Running::Vm(_), _))) {
            return;
        }
        let views = self.held.iter_mut().filter(|held| is_view(&held.label));
        views.for_each(|held| held.overtaken = true);
    }

    fn deliver(&mut self) {
        while let (Some(event), Some(stream)) = (self.events.pop_front(), &self.stream) {
            let _gone = stream.try_send(event.clone());
            self.learns(&event);
        }
    }

    /// The agent is told an event, or is answered with a VM.
    fn learns(&mut self, text: &[u8]) {
        let Ok(told) = serde_json::from_slice::<Value>(text) else { return };
        let vm = told.get("vm").unwrap_or(&told);
        if vm["uuid"] == VM {
            self.hidden = vm["do_not_inventory"] == true;
        }
    }
}

/// Returns true if this request asks for a view of the node.
fn is_view(label: &str) -> bool {
    label.contains("/vms?sync=zones")
}
