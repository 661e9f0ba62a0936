// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The data of the mock CNAPI, the functions that stand for its peers, and its deaths.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::node::{Node, empty_status, object};
use super::refusal::{Params, Refusal, word};
use super::tickets::{Seen, Tickets};
use crate::clock::Clock;
use crate::faults::{Faults, Recorder};

/// Tasks that are kept.
const MOST_TASKS: usize = 10_000;
/// Tickets are looked at so often.
const LOOK: Duration = Duration::from_millis(500);
/// A wait for a ticket of which nobody is told any more.
const NEVER: Duration = Duration::from_secs(3600);
/// The default server, which has tickets and nothing else.
pub(super) const DEFAULT: &str = "default";

/// Work for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The node.
    pub server_uuid: String,
    /// `create`, `delete`, `load` (the VM's object is the result), or the last part of the address, as `migrate`.
    pub verb: String,
    /// The VM.
    pub vm_uuid: String,
    /// The body of the request.
    pub body: Map<String, Value>,
    /// The parameters of the request.
    pub params: Map<String, Value>,
}

/// Why a node's agent did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    /// What it says.
    pub text: String,
    /// `VmNotFound` for a VM that is not there.
    pub rest_code: Option<String>,
}

impl TaskError {
    /// The VM is not there.
    pub fn no_vm(text: impl Into<String>) -> TaskError {
        TaskError { text: text.into(), rest_code: Some("VmNotFound".to_owned()) }
    }
}

impl From<String> for TaskError {
    fn from(text: String) -> TaskError {
        TaskError { text, rest_code: None }
    }
}

impl From<&str> for TaskError {
    fn from(text: &str) -> TaskError {
        text.to_owned().into()
    }
}

/// Carries out an order: the event of its `finish`, or why it failed.
pub type Hands = Arc<dyn Fn(Order) -> BoxFuture<'static, Result<Value, TaskError>> + Send + Sync>;
/// All VMs that VMAPI has; nothing while it does not answer.
pub type Vms = Arc<dyn Fn() -> Option<Vec<Map<String, Value>>> + Send + Sync>;
/// Whether IMGAPI has an image.
pub type HasImage = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
struct Peers {
    hands: Option<Hands>,
    vms: Option<Vms>,
    has_image: Option<HasImage>,
}

struct Inner {
    nodes: Mutex<BTreeMap<String, Node>>,
    tickets: Mutex<Tickets>,
    /// By id, the oldest first.
    tasks: Mutex<Vec<(String, Map<String, Value>)>>,
    peers: Mutex<Peers>,
    changed: Notify,
    is_down: AtomicBool,
    deaths: AtomicUsize,
    clock: Clock,
    faults: Faults,
    log: Recorder,
}

/// A handle on the data, rules and log of one mock CNAPI.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl Default for Store {
    fn default() -> Self {
        Self::with_clock(Clock::default())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    fn with_clock(clock: Clock) -> Self {
        Self(Arc::new(Inner {
            nodes: Mutex::default(),
            tickets: Mutex::default(),
            tasks: Mutex::default(),
            peers: Mutex::default(),
            changed: Notify::new(),
            is_down: AtomicBool::new(false),
            deaths: AtomicUsize::new(0),
            clock,
            faults: Faults::default(),
            log: Recorder::default(),
        }))
    }

    /// One whose clock shows so many milliseconds since 1970.
    pub fn at(now_ms: i64) -> Self {
        Self::with_clock(Clock::at(now_ms))
    }

    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The request log.
    pub fn log(&self) -> &Recorder {
        &self.0.log
    }

    /// Moves its clock.
    pub fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
        self.0.changed.notify_waiters();
    }

    /// What its clock shows: milliseconds since 1970.
    pub fn shown_ms(&self) -> i64 {
        self.now_ms()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    pub(super) fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Node>> {
        held(&self.0.nodes)
    }

    /// Returns whether a server is known.
    pub(super) fn require(&self, uuid: &str) -> Result<(), Refusal> {
        if uuid == DEFAULT || self.nodes().contains_key(uuid) {
            Ok(())
        } else {
            Err(Refusal::no_server(uuid))
        }
    }

    /// Adds or replaces a node: it tells the sysinfo of this record, reports that it has no VMs, and has the record's
    /// other fields set. One without a uuid is ignored. It runs without heartbeats.
    pub fn put_server(&self, server: Map<String, Value>) {
        let uuid = word(&server, "uuid").to_owned();
        if uuid.is_empty() {
            return;
        }
        let mut sysinfo = server.get("sysinfo").map(object).unwrap_or_default();
        let usual = json!({
            "UUID": uuid, "Setup": "true", "MiB of Memory": "65536", "CPU Total Cores": 16, "CPU Count": 16,
            "Zpool Size in GiB": 1776, "VM Capable": true, "Bhyve Capable": true, "Bhyve Max Vcpus": 32,
            "SDC Version": "7.0",
        });
        for (name, value) in object(&usual) {
            sysinfo.entry(name).or_insert(value);
        }
        let mut node = Node::new(&uuid);
        node.tell(&sysinfo, self.now_ms());
        node.report(&empty_status(&sysinfo));
        for (name, value) in server {
            if !matches!(name.as_str(), "sysinfo" | "status") {
                node.fields.insert(name, value);
            }
        }
        self.nodes().insert(uuid, node);
    }

    /// A node sends a heartbeat, as its agent does every few seconds while it runs and reaches CNAPI.
    pub fn beat(&self, uuid: &str) {
        let now = self.now_ms();
        if let Some(node) = self.nodes().get_mut(uuid) {
            node.heartbeat = Some(now);
        }
    }

    /// Adds or replaces the node that this sysinfo is of.
    pub fn put_sysinfo(&self, sysinfo: &Map<String, Value>) {
        self.put_server(object(&json!({ "uuid": sysinfo.get("UUID"), "sysinfo": sysinfo })));
    }

    /// Carries out tasks with this function; without one they end well at once and do nothing.
    pub fn set_hands(&self, hands: Hands) {
        held(&self.0.peers).hands = Some(hands);
    }

    /// Asks this function for VMAPI's VMs; without one they are those that the nodes have reported.
    pub fn set_vms(&self, vms: Vms) {
        held(&self.0.peers).vms = Some(vms);
    }

    /// Asks this function for the origins of images; without one IMGAPI has them all.
    pub fn set_images(&self, has_image: HasImage) {
        held(&self.0.peers).has_image = Some(has_image);
    }

    pub(super) fn hands(&self) -> Option<Hands> {
        held(&self.0.peers).hands.clone()
    }

    pub(super) fn has_image(&self, uuid: &str) -> bool {
        let asked = held(&self.0.peers).has_image.clone();
        asked.is_none_or(|has| has(uuid))
    }

    /// The VMs that count: neither gone nor still on their way.
    pub(super) fn vms(&self) -> Option<Vec<Params>> {
        let asked = held(&self.0.peers).vms.clone();
        let all = match asked {
            Some(vms) => vms()?,
            None => {
                let nodes = self.nodes();
                let of = |(uuid, node): (&String, &Node)| {
                    let mut vms = node.own_vms();
                    for vm in &mut vms {
                        vm.insert("server_uuid".to_owned(), json!(uuid));
                    }
                    vms
                };
                nodes.iter().flat_map(of).collect()
            }
        };
        let counts =
            |vm: &Params| !matches!(word(vm, "state"), "destroyed" | "failed" | "provisioning");
        Some(all.into_iter().filter(counts).collect())
    }

    /// How often the process has ended on a request.
    pub fn deaths(&self) -> usize {
        self.0.deaths.load(Ordering::SeqCst)
    }

    /// The process ends: all connections close, and it is down until it is started again.
    pub(super) fn die(&self) {
        self.0.deaths.fetch_add(1, Ordering::SeqCst);
        self.0.is_down.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    pub(super) fn is_down(&self) -> bool {
        self.0.is_down.load(Ordering::SeqCst)
    }

    /// Starts it again after its process has ended, as SMF does: the waits are lost, and the heartbeats start anew.
    pub fn restart(&self) {
        for node in self.nodes().values_mut().filter(|node| node.status(self.now_ms()) == "running")
        {
            node.heartbeat = None;
        }
        self.0.is_down.store(false, Ordering::SeqCst);
    }

    /// Looks at or changes the tickets, and wakes who waits for one.
    pub(super) fn tickets<T>(&self, work: impl FnOnce(&mut Tickets, i64) -> T) -> T {
        let result = work(&mut held(&self.0.tickets), self.now_ms());
        self.0.changed.notify_waiters();
        result
    }

    /// The tickets, oldest first.
    pub fn all_tickets(&self) -> Vec<Value> {
        self.tickets(Tickets::all)
    }

    /// Sets the status of a ticket: `queued`, `active`, `expired` or `finished`. Returns false if there is none.
    pub fn set_ticket(&self, uuid: &str, status: &str) -> bool {
        self.tickets(|tickets, now| tickets.set(uuid, status, now))
    }

    /// Drops all tickets.
    pub fn drop_tickets(&self) {
        self.tickets(|tickets, _| tickets.clear());
    }

    /// Waits until it is a ticket's turn.
    pub(super) async fn turn(&self, uuid: &str) -> Result<(), Refusal> {
        let mut is_first = true;
        loop {
            let changed = self.0.changed.notified();
            let seen = held(&self.0.tickets).seen(uuid, self.now_ms());
            match seen {
                Seen::Active => return Ok(()),
                Seen::Missing if is_first => {
                    return Err(Refusal::not_found(format!("no such ticket {uuid}")));
                }
                Seen::Expired if is_first => {
                    return Err(Refusal::internal(format!("ticket {uuid} is expired")));
                }
                Seen::Expired => return Err(Refusal::internal("ticket has expired")),
                Seen::Finished | Seen::Missing => {
                    tokio::time::sleep(NEVER).await;
                    return Err(Refusal::Dies);
                }
                Seen::Queued => {}
            }
            is_first = false;
            // Either is a reason to look again.
            drop(tokio::time::timeout(LOOK, changed).await);
        }
    }

    /// Sets the fields of a task, as `status` and `history`; an unknown one is made. An `http` is the status of
    /// the answers about it.
    pub fn set_task(&self, id: &str, fields: Map<String, Value>) {
        let mut tasks = held(&self.0.tasks);
        match tasks.iter_mut().find(|(known, _)| known == id) {
            Some((_, task)) => task.extend(fields),
            None => {
                let mut task = Map::from_iter([("id".to_owned(), json!(id))]);
                task.extend(fields);
                tasks.push((id.to_owned(), task));
            }
        }
        if tasks.len() > MOST_TASKS {
            tasks.remove(0);
        }
        drop(tasks);
        self.0.changed.notify_waiters();
    }

    /// Ends the task of an order; one that a test has set meanwhile stays as it was set.
    pub(super) fn end_task(&self, id: &str, order: &Value, fields: Map<String, Value>) {
        let mut tasks = held(&self.0.tasks);
        let is_its = |task: &Map<String, Value>| {
            task.get("req_id") == Some(order) && task.get("status").is_some_and(|it| it == "active")
        };
        if let Some((_, task)) = tasks.iter_mut().find(|(known, task)| known == id && is_its(task))
        {
            task.extend(fields);
        }
        drop(tasks);
        self.0.changed.notify_waiters();
    }

    /// Drops what a task was; it is as `fields` say.
    pub fn replace_task(&self, id: &str, fields: Map<String, Value>) {
        held(&self.0.tasks).retain(|(known, _)| known != id);
        self.set_task(id, fields);
    }

    /// A task.
    pub fn task(&self, id: &str) -> Option<Map<String, Value>> {
        held(&self.0.tasks).iter().find(|(known, _)| known == id).map(|(_, task)| task.clone())
    }

    /// Waits until a task has ended; nothing if there is none.
    pub(super) async fn ended(&self, id: &str) -> Option<Map<String, Value>> {
        loop {
            let changed = self.0.changed.notified();
            let task = self.task(id)?;
            if task.get("status").is_none_or(|status| status != "active") {
                return Some(task);
            }
            changed.await;
        }
    }

    /// Waits until the process ends.
    pub(super) async fn end(&self) {
        let before = self.deaths();
        loop {
            let changed = self.0.changed.notified();
            if self.deaths() > before {
                return;
            }
            changed.await;
        }
    }

    /// Drops nodes, tickets and tasks, and starts it again.
    pub fn reset(&self) {
        self.nodes().clear();
        self.drop_tickets();
        held(&self.0.tasks).clear();
        self.restart();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cnapi::Store")
    }
}
