// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VM records of the mock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::faults::{Faults, Recorder};

/// A VM record: any object, keyed by its uuid.
pub(super) type Vms = BTreeMap<String, Map<String, Value>>;

#[derive(Debug, Default)]
struct Inner {
    vms: Mutex<Vms>,
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

    pub(super) fn vms(&self) -> MutexGuard<'_, Vms> {
        self.0.vms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets state and node of a VM; creates a missing one. `None` removes the node.
    pub fn set(&self, uuid: &str, state: &str, server_uuid: Option<&str>) {
        let mut vms = self.vms();
        let vm = vms.entry(uuid.to_owned()).or_default();
        vm.insert("uuid".to_owned(), json!(uuid));
        vm.insert("state".to_owned(), json!(state));
        match server_uuid {
            Some(server) => vm.insert("server_uuid".to_owned(), json!(server)),
            None => vm.remove("server_uuid"),
        };
    }

    /// Stores a whole record. One without a uuid is ignored.
    pub fn put(&self, vm: Map<String, Value>) {
        if let Some(uuid) = vm.get("uuid").and_then(Value::as_str).map(str::to_owned) {
            self.vms().insert(uuid, vm);
        }
    }

    /// Stores the VMs of a node as it sees them.
    pub fn seed_from_vms(&self, vms: &[Map<String, Value>], server_uuid: &str) {
        for vm in vms {
            let mut vm = vm.clone();
            vm.insert("server_uuid".to_owned(), json!(server_uuid));
            self.put(vm);
        }
    }

    /// A record.
    pub fn get(&self, uuid: &str) -> Option<Map<String, Value>> {
        self.vms().get(uuid).cloned()
    }

    /// All records, by uuid.
    pub fn all(&self) -> Vec<Map<String, Value>> {
        self.vms().values().cloned().collect()
    }
}
