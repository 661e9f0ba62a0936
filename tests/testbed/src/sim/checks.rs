// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Checks after the faults have ended: everything agrees with the truth (V7, I11), and is then
//! silent.

use sdc_clients::vminfod::{VmFields as _, VmObject};

use super::centre::Centre;
use super::judge::{PROVISIONING, age, owner};
use super::node::Cn;
use super::truth::Life;
use crate::storm::same_vms;

/// Is the cache what a load from nothing finds?
///
/// # Errors
/// What differs.
pub async fn cache_is_fresh(cn: &Cn) -> Result<(), String> {
    let fresh = cn.load().await.map_err(|e| format!("a fresh load fails: {e}"))?;
    same_vms(&cn.shown(), &fresh)
}

/// Is NAPI what the nodes are?
///
/// # Errors
/// The first record that is wrong.
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

fn shown(cn: &Cn, vm: &str) -> Option<VmObject> {
    let snapshot = cn.wire.api()?.published.snapshot();
    snapshot.vms.get(vm).map(|vm| vm.object())
}

fn has(vm: &VmObject, mac: &str) -> bool {
    vm.macs().iter().any(|own| own.to_string() == mac)
}
