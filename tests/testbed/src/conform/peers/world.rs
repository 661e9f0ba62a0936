// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mocks of one group, and what the recording did to the services they stand for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mocks::cnapi;
use mocks::faults::Mock as _;
use serde_json::{Map, Value, json};

use super::calls::Call;
use crate::conform::transcript::UnknownStep;
use crate::volapi::services::{Services, object};

type Record = Map<String, Value>;

/// Our mocks in the recorded world.
pub(super) struct World {
    pub(super) services: Services,
    /// The VMs by the alias under which they were ordered.
    aliases: Mutex<Record>,
}

impl World {
    /// The world of a group at its start, at a time of the recording.
    pub(super) fn begin(world: &Value, now: i64) -> anyhow::Result<World> {
        let services = Services::begin(world, cnapi::Store::at(now))?;
        Ok(World { services, aliases: Mutex::default() })
    }

    fn aliases(&self) -> MutexGuard<'_, Record> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a VM was called when it was ordered.
    pub(super) fn name(&self, call: &Call, body: &Value) {
        if let ("vmapi", Some(alias)) = (&*call.peer, call.body["alias"].as_str()) {
            self.aliases().insert(alias.to_owned(), body["vm_uuid"].clone());
        }
    }

    /// Makes one change that the recorder made.
    pub(super) async fn change(&self, change: &Value) -> anyhow::Result<()> {
        match change["do"].as_str().unwrap_or_default() {
            "peer" => {
                if change.get("tickets").is_some() || change.get("reset").is_some() {
                    self.services.cnapi.drop_tickets();
                }
                self.services.behave(object(&change["conf"]));
            }
            "job" => {
                let fields = json!({ "uuid": change["job"], "execution": change["execution"] });
                if !change["execution"].is_null() {
                    self.services.workflow.put(object(&fields));
                }
                let vm = json!({ "uuid": change["vm"], "state": change["vm_state"] });
                if !change["vm_state"].is_null() {
                    self.services.vmapi.put(object(&vm));
                }
            }
            "vm" => self.change_vm(change).await,
            // Nothing that a peer would see.
            word if ["moray", "record", "service configuration", "wait"].contains(&word)
                || word.starts_with("PUT /vms/")
                || word.starts_with("1007 running VMs") => {}
            _ => return Err(UnknownStep(change.clone()).into()),
        }
        Ok(())
    }

    /// The record of a VM, or of a volume's storage VM, with other fields.
    async fn change_vm(&self, change: &Value) {
        // A storage VM is known by the alias that it had first.
        let volume = change["storage_vm_of"].as_str().map(|it| format!("nfs-shared-volume-{it}"));
        let uuid = match volume {
            Some(alias) => self.aliases().get(&alias).cloned().unwrap_or_default(),
            None => change["uuid"].clone(),
        };
        let mut vm = self.services.vmapi.get(uuid.as_str().unwrap_or_default()).unwrap_or_default();
        vm.insert("uuid".to_owned(), uuid);
        vm.extend(object(&change["set"]));
        let state = vm.get("state").cloned().unwrap_or_default();
        vm.insert("zone_state".to_owned(), state);
        let uuid = vm.get("uuid").and_then(Value::as_str).unwrap_or_default();
        let put =
            http::Request::put(format!("/vms/{uuid}")).header("content-type", "application/json");
        // Whether it was taken shows in the calls that follow.
        if let Ok(put) = put.body(Value::Object(vm).to_string().into()) {
            drop(self.services.vmapi.handle(put).await);
        }
    }
}
