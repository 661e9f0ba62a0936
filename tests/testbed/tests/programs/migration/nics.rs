// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What holds of the NIC's record, at every moment and at the end: it survives, and ends where the
//! VM is.

use serde_json::json;

use super::scripts::Script;
use super::world::{CN, MAC, OTHER, OTHER_MAC, VM, World};

/// At every moment.
pub fn always(script: &Script, world: &World, told: &[String]) {
    let row = world.napi.nic(MAC);
    assert!(row.is_some(), "the NIC's record is gone: {told:#?}");
    for vm in OTHER {
        let here = world.napi.nics().iter().any(|nic| nic["belongs_to_uuid"] == vm);
        assert!(here, "a NIC of {vm} is gone: {told:#?}");
    }
    for node in 0..2 {
        let wrongs = world.wrongs(node);
        assert!(wrongs.is_empty(), "agent {node}: {wrongs:#?}: {told:#?}");
        for line in world.asked(node) {
            let harmless = line.starts_with("GET ") || line.starts_with("PUT ");
            assert!(harmless, "agent {node}: {line}: {told:#?}");
            let held = script.held.contains(&node) && line.starts_with("PUT ");
            assert!(!held, "agent {node} is held: {line}: {told:#?}");
            let others = OTHER_MAC[1 - node].replace(':', "");
            assert!(!line.contains(&others), "agent {node}: {line}: {told:#?}");
        }
    }
}

/// When nothing is left to do: a vm-agent reports, the agents go on by themselves, are started anew,
/// go on.
pub async fn after(script: &Script, world: &World, told: &[String]) {
    let shown = |vm: &serde_json::Value| vm["do_not_inventory"] != true;
    for vm in (0..2).filter_map(|node| world.vm(node)).filter(shown) {
        world.vmapi.put(vm.as_object().unwrap().clone());
    }
    script.go_on(world).await;
    script.start_anew(world).await;
    let unheld = Script { held: &[], ..script.clone() };
    always(&unheld, world, told);
    let row = world.napi.nic(MAC).expect("the NIC survives");
    for node in [0, 1] {
        let shown = world.vm(node).filter(|vm| vm["do_not_inventory"] != true);
        let Some(vm) = shown.filter(|_| world.runs(node)) else { continue };
        assert_eq!(row["cn_uuid"], json!(CN[node]), "the VM is on node {node}: {told:#?}");
        assert_eq!(row["state"], vm["state"], "the VM is on node {node}: {told:#?}");
    }
    assert_eq!(row["belongs_to_uuid"], json!(VM));
}
