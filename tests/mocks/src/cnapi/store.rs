// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The data of the mock CNAPI, and the function that carries out its tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::servers::Server;
use super::tickets::Tickets;
use crate::clock::Clock;
use crate::faults::{Faults, Recorder};

/// Tasks that are kept.
const MOST_TASKS: usize = 10_000;
/// Where nothing is known to happen, a wait looks again after this time.
const LOOK: Duration = Duration::from_secs(60);

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

/// Carries out an order: the event of its `finish`, or why it failed.
pub type Hands = Arc<dyn Fn(Order) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

struct Inner {
    servers: Mutex<BTreeMap<String, Server>>,
    tickets: Mutex<Tickets>,
    /// By id, in no order; the oldest ids are in `order`.
    tasks: Mutex<Vec<(String, Map<String, Value>)>>,
    hands: Mutex<Option<Hands>>,
    changed: Notify,
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
            servers: Mutex::default(),
            tickets: Mutex::default(),
            tasks: Mutex::default(),
            hands: Mutex::default(),
            changed: Notify::new(),
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

    pub(super) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    pub(super) fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Server>> {
        held(&self.0.servers)
    }

    /// Adds or replaces a node. One without a uuid is ignored.
    pub fn put_server(&self, server: Map<String, Value>) {
        if let Some(uuid) = server.get("uuid").and_then(Value::as_str) {
            self.servers().insert(uuid.to_owned(), server);
        }
    }

    /// Adds or replaces the node that this sysinfo is of.
    pub fn put_sysinfo(&self, sysinfo: &Map<String, Value>) {
        let server = json!({
            "uuid": sysinfo.get("UUID"),
            "hostname": sysinfo.get("Hostname"),
            "status": "running",
            "setup": true,
            "reserved": false,
            "current_platform": sysinfo.get("Live Image"),
            "sysinfo": sysinfo,
        });
        self.put_server(server.as_object().cloned().unwrap_or_default());
    }

    /// Carries out tasks with this function; without one they end well at once and do nothing.
    pub fn set_hands(&self, hands: Hands) {
        *held(&self.0.hands) = Some(hands);
    }

    pub(super) fn hands(&self) -> Option<Hands> {
        held(&self.0.hands).clone()
    }

    /// Looks at or changes the tickets, and wakes who waits for one.
    pub(super) fn tickets<T>(&self, work: impl FnOnce(&mut Tickets, i64) -> T) -> T {
        let result = work(&mut held(&self.0.tickets), self.now_ms());
        self.0.changed.notify_waiters();
        result
    }

    /// The tickets, oldest first.
    pub fn all_tickets(&self) -> Vec<Value> {
        self.tickets(|tickets, now| tickets.list(None, now))
    }

    /// Sets the status of a ticket: `queued`, `active`, `expired` or `finished`. Returns false if there is none.
    pub fn set_ticket(&self, uuid: &str, status: &str) -> bool {
        self.tickets(|tickets, now| tickets.set(uuid, status, now))
    }

    /// Drops all tickets.
    pub fn drop_tickets(&self) {
        self.tickets(|tickets, _| tickets.clear());
    }

    /// Waits until a ticket no longer waits for its turn; returns false if there is none.
    pub(super) async fn turn(&self, uuid: &str) -> bool {
        loop {
            let changed = self.0.changed.notified();
            let (queued, next) = {
                let now = self.now_ms();
                let mut tickets = held(&self.0.tickets);
                let queued = tickets.is_queued(uuid, now);
                (queued, tickets.next_expiry().map(|at| at.saturating_sub(now)))
            };
            match queued {
                None => return false,
                Some(false) => return true,
                Some(true) => {}
            }
            let wait =
                next.and_then(|ms| u64::try_from(ms).ok()).map_or(LOOK, Duration::from_millis);
            // Either is a reason to look again.
            drop(tokio::time::timeout(wait, changed).await);
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

    /// Drops nodes, tickets and tasks.
    pub fn reset(&self) {
        self.servers().clear();
        self.drop_tickets();
        held(&self.0.tasks).clear();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cnapi::Store")
    }
}
