// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Checks after the faults have ended: everything agrees with the truth (V7, I11, M1), and is then
//! silent.

use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value};

use super::centre::Centre;
use super::judge::{PROVISIONING, age, owner};
use super::node::Cn;
use super::truth::Life;
use crate::changes::same_vms;
use mocks::vmapi::kept;

/// Compares the cache with a fresh load of the node.
pub async fn cache_is_fresh(cn: &Cn) -> Result<(), String> {
    let fresh = cn.load().await.map_err(|e| format!("a fresh load fails: {e}"))?;
    same_vms(&cn.shown(), &fresh)
}

/// Compares NAPI's records with the nodes.
pub fn napi_is_right(centre: &Centre, nodes: &[Cn]) -> Result<(), String> {
    for nic in centre.napi.nics() {
        let text = |key: &str| nic[key].as_str().unwrap_or_default();
        let (mac, vm, state) = (text("mac"), owner(&nic), text("state"));
        let vm = vm.as_str();
        if text("belongs_to_type") != "zone" {
            continue;
        }
        let claimed = nodes.iter().find(|cn| cn.uuid == text("cn_uuid"));
        match centre.truth.life(vm) {
            Some(Life::On(on)) => {
                let Some(cn) = nodes.iter().find(|cn| cn.uuid == on) else { continue };
                let Some(shown) = shown(cn, vm) else {
                    return Err(format!("{vm} is not shown by the vminfod of its node"));
                };
                // Nothing is written for what the operator hides, or does not know.
                if shown.is_hidden() || !has(&shown, mac) {
                    continue;
                }
                if text("cn_uuid") != on {
                    return Err(format!("{mac} of {vm} has no cn_uuid"));
                }
                let lives = shown.state().unwrap_or_default();
                if matches!(lives, "running" | "stopped") && state != lives {
                    return Err(format!("{mac} is {state}, its VM {vm} is {lives}"));
                }
            }
            // One that is being provisioned may go when it is old; no seed lets one become old
            // by waiting alone.
            // An address that is in use is never deleted, whosever it is said to be.
            Some(Life::Gone(..)) | None
                if nodes.iter().any(|cn| cn.outside.judge().is_in_use(mac)) => {}
            Some(Life::Gone(..)) | None
                if claimed.is_some_and(|cn| !centre.truth.is_braked(&cn.uuid))
                    && (state != "provisioning" || age(&centre.napi, &nic) >= PROVISIONING) =>
            {
                return Err(format!("{mac} of {vm}, which is gone, is still there ({state})"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compares VMAPI's records with the nodes.
pub fn vmapi_is_right(centre: &Centre, nodes: &[Cn]) -> Result<(), String> {
    for cn in nodes {
        for vm in cn.shown().iter().filter(|vm| vm.get("do_not_inventory") != Some(&true.into())) {
            let uuid = vm.get("uuid").and_then(Value::as_str).unwrap_or_default();
            // A copy that stays behind says nothing.
            if centre.truth.life(uuid) != Some(Life::On(cn.uuid.clone())) {
                continue;
            }
            let known = centre.vmapi.get(uuid).unwrap_or_default();
            let differ = differing(&known, &kept(vm));
            if !differ.is_empty() {
                return Err(format!("VMAPI has another {} of {uuid}", differ.join(", ")));
            }
        }
    }
    for record in centre.vmapi.all() {
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
        let (vm, state, server) = (text("uuid"), text("state"), text("server_uuid"));
        let is_over = matches!(state, "destroyed" | "failed");
        match centre.truth.life(vm) {
            // One that went before VMAPI was told that it came is left alone for two hours (H1).
            Some(Life::Gone(_, on)) if on == server && !is_over && state != "provisioning" => {
                return Err(format!("{vm} is gone, VMAPI says {state}"));
            }
            // A hidden VM is nobody's to speak of.
            Some(Life::On(on)) if on != server && !centre.truth.is_secret(vm) => {
                return Err(format!("{vm} is on {on}, VMAPI says {server}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The fields in which records differ. What is not set is like what is empty, and the order of a list
/// does not matter.
fn differing(one: &Map<String, Value>, two: &Map<String, Value>) -> Vec<String> {
    let value = |record: &Map<String, Value>, key: &str| match record.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Array(list)) => {
            let mut list: Vec<String> = list.iter().map(Value::to_string).collect();
            list.sort();
            (!list.is_empty()).then(|| list.join(" "))
        }
        Some(Value::Object(map)) if map.is_empty() => None,
        Some(value) => Some(value.to_string()),
    };
    let keys = one.keys().chain(two.keys().filter(|key| !one.contains_key(*key)));
    keys.filter(|key| value(one, key) != value(two, key)).cloned().collect()
}

fn shown(cn: &Cn, vm: &str) -> Option<VmObject> {
    let snapshot = cn.wire.api()?.published.snapshot();
    snapshot.vms.get(vm).map(|vm| vm.object())
}

fn has(vm: &VmObject, mac: &str) -> bool {
    vm.macs().iter().any(|own| own.to_string() == mac)
}
