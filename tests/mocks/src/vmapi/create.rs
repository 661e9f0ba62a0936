// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! POST /vms: the checks, the record of the VM that is to be, and the refusals of the other services.

use serde_json::{Map, Value, json};

use super::errors::{ApiError, element, missing};
use super::list::check_brand;
use super::record::kept;
use super::store::{Store, find};
use crate::cnapi::against_affinity;
use crate::restify::{Params, falsy, is_uuid};

impl Store {
    /// Creates a VM in state provisioning; returns its uuid.
    pub(super) fn create(&self, given: &Params) -> Result<String, ApiError> {
        let text = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default();
        let owner = text("owner_uuid").to_owned();
        if !owner.is_empty() && !is_uuid(&owner) {
            return Err(ApiError::Died);
        }
        let (uuid, fresh) = match text("uuid") {
            "" => (uuid::Uuid::new_v4().to_string(), true),
            uuid => (uuid.to_owned(), false),
        };
        let mut errors = check(given);
        if errors.is_empty() {
            let vms = self.records()?;
            if !fresh && find(&vms, &uuid).is_some() {
                errors.push(taken("uuid", "Already exists"));
            }
            let alias = text("alias");
            let has_alias = |vm: &Map<String, Value>| {
                let is = |name: &str, value: &str| vm.get(name).is_some_and(|it| it == value);
                is("alias", alias) && is("owner_uuid", &owner) && !is("state", "destroyed")
            };
            if !alias.is_empty() && vms.values().any(has_alias) {
                errors.push(taken("alias", "Already exists for this owner_uuid"));
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::Invalid("Invalid VM parameters", errors));
        }
        self.check_networks(given)?;
        let mut vm = given.clone();
        self.take_package(&mut vm)?;
        vm.insert("uuid".to_owned(), json!(uuid));
        vm.insert("state".to_owned(), json!("provisioning"));
        vm.insert("create_timestamp".to_owned(), self.now());
        vm.insert("server_uuid".to_owned(), json!(self.peers().chosen));
        let refusal = self.unplaced(given);
        if let Some((status, body)) = refusal {
            let state = json!("destroyed");
            let refused = json!({ "uuid": uuid, "state": state, "zone_state": state, "destroyed": self.now() });
            let mut refused = refused.as_object().map(kept).unwrap_or_default();
            refused.insert("server_uuid".to_owned(), json!(""));
            self.feed().wrote(None, &refused);
            self.records()?.insert(uuid, refused);
            return Err(ApiError::Passed(status, body));
        }
        let vm = kept(&vm);
        self.feed().wrote(None, &vm);
        self.records()?.insert(uuid.clone(), vm);
        match self.peers().refuses_jobs.clone() {
            Some((status, body)) => Err(ApiError::Passed(status, body)),
            None => Ok(uuid),
        }
    }

    fn check_networks(&self, given: &Params) -> Result<(), ApiError> {
        let networks = match given.get("networks") {
            Some(Value::Array(networks)) => networks.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        for network in networks {
            let uuid =
                network.as_str().or(network["uuid"].as_str()).or(network["ipv4_uuid"].as_str());
            let Some(uuid) = uuid.filter(|uuid| is_uuid(uuid)) else {
                let bad = element("networks", "Invalid uuid undefined");
                return Err(ApiError::Invalid("Invalid network parameters", vec![bad]));
            };
            if self.peers().networks.as_ref().is_some_and(|known| !known.contains(uuid)) {
                let message = format!("No such Network or Pool with id/name: \"{uuid}\"");
                return Err(ApiError::Plain(422, "UnprocessableEntityError", message));
            }
        }
        Ok(())
    }

    /// Returns what CNAPI answers instead of a node.
    fn unplaced(&self, given: &Params) -> Option<(u16, Value)> {
        let peers = self.peers();
        let rules = given.get("affinity").filter(|rules| peers.reads_affinity && !rules.is_null());
        let against = rules.and_then(against_affinity).map(|why| {
            let error = element("vm", &format!("VM \"affinity{why}"));
            let message = "Request parameters failed validation";
            (500, json!({"code": "InvalidParameters", "message": message, "errors": [error]}))
        });
        peers.refuses_allocation.clone().or(against)
    }

    /// Adds what the package gives a VM.
    pub(super) fn take_package(&self, vm: &mut Params) -> Result<(), ApiError> {
        let package = vm.get("billing_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let peers = self.peers();
        let Some(packages) = peers.packages.as_ref().filter(|_| !package.is_empty()) else {
            return Ok(());
        };
        let Some(values) = packages.get(&package) else {
            let bad = element("billing_id", &format!("Package {package} does not exist"));
            return Err(ApiError::Invalid("Invalid VM parameters", vec![bad]));
        };
        for (name, value) in values {
            vm.entry(name).or_insert_with(|| value.clone());
        }
        Ok(())
    }
}

fn taken(field: &str, message: &str) -> Value {
    json!({ "field": field, "code": "Duplicate", "message": message })
}

/// Checks the parameters that need no other service.
fn check(given: &Params) -> Vec<Value> {
    let mut errors = Vec::new();
    let mut need = |name: &str, other: &str| {
        let absent = |name: &str| given.get(name).is_none_or(falsy);
        if absent(name) && absent(other) {
            errors.push(missing(name));
        }
    };
    need("brand", "");
    need("networks", "");
    need("owner_uuid", "");
    need("ram", "billing_id");
    need("image_uuid", "disks");
    if let Some(message) = given.get("brand").and_then(Value::as_str).and_then(check_brand) {
        errors.push(element("brand", &message));
    }
    match given.get("volumes") {
        None => {}
        Some(Value::Array(volumes)) => errors.extend(volumes.iter().flat_map(check_volume)),
        Some(_) => errors.push(element("volumes", "volumes must be an array of objects")),
    }
    let tags = given.get("tags").and_then(Value::as_object).into_iter().flatten();
    for (tag, _) in
        tags.filter(|(tag, _)| tag.starts_with("triton.") && !tag.starts_with("triton.cns."))
    {
        errors.push(element("tags", &format!("Unrecognized special triton tag \"{tag}\"")));
    }
    errors
}

fn check_volume(volume: &Value) -> Vec<Value> {
    let shown = volume.as_object().into_iter().flatten().map(|(key, value)| {
        format!(
            "{key}: {}",
            value.as_str().map_or_else(|| value.to_string(), |it| format!("'{it}'"))
        )
    });
    let shown = format!("volume {{ {} }}", shown.collect::<Vec<_>>().join(", "));
    let text = |name: &str| volume[name].as_str().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let name = text("name").as_bytes();
    let is_name =
        name.len() > 1 && name[0].is_ascii_alphanumeric() && name.iter().copied().all(plain);
    let mut wrong = Vec::new();
    if !is_name {
        wrong.push(format!("Invalid volume name for {shown}"));
    }
    if !matches!(text("mode"), "" | "ro" | "rw") {
        wrong.push(format!("volume mode for {shown} must be one of ro, rw"));
    }
    if !text("mountpoint").starts_with('/') {
        wrong.push(format!("Invalid volume mount point for {shown}"));
    }
    wrong.iter().map(|message| element("volumes", message)).collect()
}
