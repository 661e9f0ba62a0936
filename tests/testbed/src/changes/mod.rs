// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that changes at random, the hub that shows it, and whether all who look at it agree.

// Blank lines keep the modules in layer order.

pub mod hub; // a node and the whole daemon in this process

pub mod history; // what listeners and readers saw, as digests

pub mod mutate; // one random change

use rand::RngExt;
use rand::rngs::StdRng;
use sdc_clients::vminfod::{VmObject, key_of};
use serde_json::Value;
use simnode::{NodeError, Verbs};

use self::mutate::Mutation;

/// Does something random to one of the node's VMs; without any, creates one. Returns what was done to which VM.
pub async fn change(verbs: &Verbs, rng: &mut StdRng) -> Result<String, NodeError> {
    let zones = verbs.node().zones()?;
    let names: Vec<&str> = zones.iter().map(|zone| zone.zonename.as_str()).collect();
    let (mutation, vm) = match names.len() {
        0 => (Mutation::Create("joyent-minimal", rng.random()), ""),
        count => (Mutation::draw(rng), names[rng.random_range(0..count)]),
    };
    mutation.perform(verbs, vm).await.map(|()| format!("{mutation:?} {vm}"))
}

/// Compares two lists of VMs, in any order; the error names the first difference.
pub fn same_vms(cached: &[VmObject], fresh: &[VmObject]) -> Result<(), String> {
    if cached.len() != fresh.len() {
        return Err(format!("{} VMs are cached, a fresh load finds {}", cached.len(), fresh.len()));
    }
    for vm in fresh {
        let name = key_of(vm).unwrap_or_default();
        let Some(other) = cached.iter().find(|other| key_of(other) == Some(name)) else {
            return Err(format!("{name} is not cached"));
        };
        if other != vm {
            let keys = vm.keys().chain(other.keys());
            let differing = keys.into_iter().find(|key| vm.get(*key) != other.get(*key));
            let show = |vm: &VmObject| differing.and_then(|key| vm.get(key)).map(Value::to_string);
            return Err(format!(
                "{name}: {} is cached as {:?}, a fresh load finds {:?}",
                differing.map_or("?", String::as_str),
                show(other),
                show(vm)
            ));
        }
    }
    Ok(())
}
