// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The record of one VM: read, replaced, moved; and what each write publishes.

use serde_json::{Value, json};

use super::errors::{ApiError, missing};
use super::record::{Record, as_get, kept, text, with_fields};
use super::store::{Store, find};
use crate::faults::Action;
use crate::restify::{Params, falsy, is_uuid};

impl Store {
    /// The record of a VM, if its owner is the one that was asked for.
    pub(super) fn known(&self, uuid: &str, given: &Params) -> Result<Record, ApiError> {
        check_uuids(uuid, given)?;
        let owner = given.get("owner_uuid").filter(|owner| !falsy(owner));
        let vms = self.records()?;
        let found =
            find(&vms, uuid).filter(|vm| owner.is_none_or(|it| vm.get("owner_uuid") == Some(it)));
        found.cloned().ok_or(ApiError::NotFound("VM"))
    }

    pub(super) fn read(&self, uuid: &str, given: &Params) -> Result<Value, ApiError> {
        let mut vm = self.known(uuid, given)?;
        if given.get("sync").is_some_and(|sync| sync == "true") {
            let copy = self.peers().copies.get(uuid).cloned();
            match copy {
                // The answer is the old record.
                Some((200, copy)) => {
                    let copy = copy.as_object().map(kept).unwrap_or_default();
                    self.write(uuid, Some(&vm), copy)?;
                }
                Some((status, body)) => return Err(ApiError::Passed(status, body)),
                None => {
                    let provisioning = vm.get("state").is_some_and(|state| state == "provisioning");
                    // What it stores is what it shows, defaults included.
                    let old = kept(&as_get(&vm));
                    vm.clone_from(&old);
                    self.end(&mut vm, if provisioning { "failed" } else { "destroyed" });
                    self.write(uuid, Some(&old), kept(&vm))?;
                }
            }
        }
        let roles = self.role_tags(uuid);
        Ok(with_fields(&vm, given.get("fields").and_then(Value::as_str), &roles))
    }

    pub(super) fn end(&self, vm: &mut Record, state: &str) {
        vm.insert("state".to_owned(), json!(state));
        vm.insert("zone_state".to_owned(), json!(state));
        if state == "destroyed" {
            vm.insert("destroyed".to_owned(), self.now());
        }
    }

    /// Replaces a record; `destroyed` is the server's time, whatever was sent.
    pub(super) fn put_one(&self, given: &Params) -> Result<Record, ApiError> {
        check_uuids(given.get("uuid").and_then(Value::as_str).unwrap_or_default(), given)?;
        let mut vm = kept(given);
        let uuid = vm.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let old = if vm.get("state").is_some_and(|state| state == "destroyed") {
            // The old copy is the new one: only what is stamped on it differs.
            let old = vm.clone();
            self.end(&mut vm, "destroyed");
            Some(old)
        } else {
            self.known(&uuid, given).ok().map(|old| kept(&old))
        };
        self.write(&uuid, old.as_ref(), vm.clone())?;
        Ok(vm)
    }

    /// Stores a record under its key, and notes for the changefeed how it differs from the old copy.
    pub(super) fn write(
        &self,
        key: &str,
        old: Option<&Record>,
        vm: Record,
    ) -> Result<(), ApiError> {
        let mut vms = self.records()?;
        self.feed().wrote(old, &vm);
        vms.insert(key.to_owned(), vm);
        Ok(())
    }

    /// Writes exactly the VMs of the map, as they were sent and one after another. The server in the query
    /// is checked and changes nothing.
    pub(super) fn put_all(
        &self,
        query: &Params,
        given: &Params,
        actions: &[Action],
    ) -> Result<(), ApiError> {
        match query.get("server_uuid").and_then(Value::as_str) {
            None | Some("") => return Err(ApiError::parameters(vec![missing("server_uuid")])),
            Some(server) if is_uuid(server) => {}
            Some(_) => return Err(ApiError::uuid("server_uuid")),
        }
        let Some(vms) = given.get("vms").filter(|vms| !falsy(vms)) else {
            return Err(ApiError::parameters(vec![missing("vms")]));
        };
        let empty = Record::new();
        let vms = match vms {
            Value::Object(vms) => vms,
            // Neither has keys, so that there is nothing to write.
            Value::Number(_) | Value::Bool(_) => &empty,
            Value::Array(none) if none.is_empty() => &empty,
            _ => return Err(ApiError::Died),
        };
        let most = actions.iter().find_map(|action| match action {
            Action::FailWrite { after } => Some(*after),
            _ => None,
        });
        for (at, (key, vm)) in vms.iter().enumerate() {
            if most.is_some_and(|most| at >= most) {
                return Err(ApiError::Storage("no active connections".to_owned()));
            }
            let (true, Some(vm)) = (is_uuid(key), vm.as_object()) else {
                return Err(ApiError::Died);
            };
            let vm = kept(vm);
            let uuid = vm.get("uuid").and_then(Value::as_str).map(str::to_owned);
            // Old copies are looked for among the live VMs of the server in the query.
            let is_old = |vm: &&Record| {
                vm.get("server_uuid") == query.get("server_uuid")
                    && !matches!(text(vm, "state"), "destroyed" | "failed")
            };
            let old = uuid.as_deref();
            let old =
                old.and_then(|uuid| find(&*self.records().ok()?, uuid).filter(is_old).cloned());
            self.write(key, old.as_ref(), vm)?;
            if uuid.is_none() {
                return Err(ApiError::Died);
            }
        }
        Ok(())
    }

    /// The step of a switch that replaces the whole record with the node's uuid, which it has set in the old
    /// copy before.
    pub(super) fn move_vm(&self, uuid: &str, given: &Params) -> Result<Record, ApiError> {
        let server = given.get("server_uuid").and_then(Value::as_str).unwrap_or_default();
        let old = find(&*self.records()?, uuid).cloned();
        let (true, Some(mut old)) = (is_uuid(server), old) else { return Err(ApiError::Died) };
        old.insert("server_uuid".to_owned(), json!(server));
        let vm = json!({ "uuid": uuid, "server_uuid": server });
        let vm = vm.as_object().map(kept).unwrap_or_default();
        self.write(uuid, Some(&old), vm.clone())?;
        Ok(vm)
    }
}

/// Checks the uuid of a VM, and that of its owner where one is given.
pub(super) fn check_uuids(uuid: &str, given: &Params) -> Result<(), ApiError> {
    if !is_uuid(uuid) {
        return Err(ApiError::uuid("uuid"));
    }
    match given.get("owner_uuid").filter(|owner| !falsy(owner)) {
        Some(owner) if !owner.as_str().is_some_and(is_uuid) => Err(ApiError::uuid("owner_uuid")),
        _ => Ok(()),
    }
}
