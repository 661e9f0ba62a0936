// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records of the mock, and the services that VMAPI asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::errors::ApiError;
use super::feed::Feed;
use super::jobs::{Hands, Work};
use super::record::{Record, kept};
use crate::clock::Clock;
use crate::faults::{Faults, Recorder};
use crate::restify::iso;
use crate::workflow;

/// The records by the key under which they were stored: the uuid, unless a PUT of a map had another key.
pub(super) type Vms = BTreeMap<String, Record>;

/// The services that VMAPI asks, and what they answer.
#[derive(Debug)]
pub struct Peers {
    /// The workflow API can be reached.
    pub workflow: bool,
    /// The storage can be reached.
    pub storage: bool,
    /// The networks that NAPI has; every one if absent.
    pub networks: Option<BTreeSet<String>>,
    /// The packages that PAPI has, with what a VM of each gets; every one, without values, if absent.
    pub packages: Option<BTreeMap<String, Map<String, Value>>>,
    /// What CNAPI answers for a VM's object: status and body; 404 for others.
    pub copies: BTreeMap<String, (u16, Value)>,
    /// CNAPI's refusal to choose a node: status and body.
    pub refuses_allocation: Option<(u16, Value)>,
    /// CNAPI reads the affinity of a creation when it chooses, and refuses what are no rules.
    pub reads_affinity: bool,
    /// The workflow API's refusal of every job: status and body.
    pub refuses_jobs: Option<(u16, Value)>,
    /// The node that CNAPI chooses.
    pub chosen: String,
    /// Where the workflow API is, as answers say it.
    pub workflow_url: String,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            workflow: true,
            storage: true,
            networks: None,
            packages: None,
            copies: BTreeMap::new(),
            refuses_allocation: None,
            reads_affinity: true,
            refuses_jobs: None,
            chosen: "dddd0001-4444-4444-8444-000000000001".to_owned(),
            workflow_url: "http://workflow.mock".to_owned(),
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    vms: Mutex<Vms>,
    /// By VM.
    role_tags: Mutex<BTreeMap<String, Vec<String>>>,
    peers: Mutex<Peers>,
    feed: Feed,
    work: Mutex<Work>,
    clock: Clock,
    faults: Faults,
    log: Recorder,
}

/// A handle on the data, rules and log of one mock VMAPI.
#[derive(Debug, Clone, Default)]
pub struct Store(Arc<Inner>);

impl Store {
    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The request log.
    pub fn log(&self) -> &Recorder {
        &self.0.log
    }

    /// The services that it asks.
    pub fn peers(&self) -> MutexGuard<'_, Peers> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn vms(&self) -> MutexGuard<'_, Vms> {
        self.0.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The roles that may act on a VM.
    pub(super) fn role_tags(&self, uuid: &str) -> Vec<String> {
        let all = self.0.role_tags.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(uuid).cloned().unwrap_or_default()
    }

    pub(super) fn set_role_tags(&self, uuid: &str, roles: Vec<String>) {
        let mut all = self.0.role_tags.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(uuid.to_owned(), roles);
    }

    /// The records, if the storage can be reached.
    pub(super) fn records(&self) -> Result<MutexGuard<'_, Vms>, ApiError> {
        if self.peers().storage {
            Ok(self.vms())
        } else {
            Err(ApiError::Storage("no active connections".to_owned()))
        }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.0.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queued job to `jobs` for each `POST /vms` and `DELETE /vms/UUID` from now on; nobody runs it.
    pub fn keep_jobs(&self, jobs: workflow::Store) {
        self.work().jobs = Some(jobs);
    }

    /// Runs the jobs of `POST /vms` and `DELETE /vms/UUID` from now on: each is one of `jobs`, and this function
    /// makes or deletes the VM. Whether the record then says so is its own affair, as on a real node; a VM that
    /// could not be made is `failed`.
    pub fn run_jobs(&self, jobs: workflow::Store, hands: Hands) {
        *self.work() = Work { jobs: Some(jobs), hands: Some(hands) };
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.0.feed
    }

    /// What was written through the service's own routes, as the changefeed publishes it: oldest first, the
    /// newest 4,096.
    pub fn published(&self) -> Vec<Value> {
        self.0.feed.items()
    }

    /// Publishes what was written this often instead of every two seconds.
    pub fn publish_every(&self, every: Duration) {
        self.0.feed.publish_every(every);
    }

    /// Cuts the connections of the changefeed's listeners; they may come back.
    pub fn cut_changefeed(&self) {
        self.0.feed.cut();
    }

    /// The mock's time in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    /// The mock's time as JSON has it.
    pub(super) fn now(&self) -> Value {
        json!(iso(self.now_ms()))
    }

    /// Sets state and node of a VM; creates a missing one. `None` removes the node. Nothing is published.
    pub fn set(&self, uuid: &str, state: &str, server_uuid: Option<&str>) {
        let mut vms = self.vms();
        let mut vm = vms.get(uuid).cloned().unwrap_or_default();
        vm.insert("uuid".to_owned(), json!(uuid));
        vm.insert("state".to_owned(), json!(state));
        vm.insert("server_uuid".to_owned(), json!(server_uuid));
        vms.insert(uuid.to_owned(), kept(&vm));
    }

    /// Stores what VMAPI keeps of a whole object. One without a uuid is ignored. Nothing is published.
    pub fn put(&self, vm: Map<String, Value>) {
        if let Some(uuid) = vm.get("uuid").and_then(Value::as_str) {
            self.vms().insert(uuid.to_owned(), kept(&vm));
        }
    }

    /// Drops a record as if it had never been. Returns false if there is none. Nothing is published.
    pub fn remove(&self, uuid: &str) -> bool {
        self.vms().remove(uuid).is_some()
    }

    /// Stores the VMs of a node as it sees them.
    pub fn seed_from_vms(&self, vms: &[Map<String, Value>], server_uuid: &str) {
        for vm in vms {
            let mut vm = vm.clone();
            vm.insert("server_uuid".to_owned(), json!(server_uuid));
            self.put(vm);
        }
    }

    /// Drops all records.
    pub fn reset(&self) {
        self.vms().clear();
        self.0.feed.clear();
    }

    /// A record: the fields that are set.
    pub fn get(&self, uuid: &str) -> Option<Record> {
        find(&self.vms(), uuid).cloned()
    }

    /// All records, by uuid.
    pub fn all(&self) -> Vec<Record> {
        self.vms().values().cloned().collect()
    }
}

/// Returns the record that has this uuid.
pub(super) fn find<'a>(vms: &'a Vms, uuid: &str) -> Option<&'a Record> {
    let has_it = |vm: &&Record| vm.get("uuid").is_some_and(|own| own == uuid);
    vms.get(uuid).filter(has_it).or_else(|| vms.values().find(has_it))
}
