// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What holds of VMAPI's record, at every moment and at the end: it never says that the VM is
//! destroyed, and ends with the node that has the VM.

use serde_json::{Value, json};

use super::scripts::{Act, Position, Script};
use super::world::{CN, OTHER, VM, World};

/// At every moment.
pub fn always(world: &World, told: &[String]) {
    for vm in [VM, OTHER[0], OTHER[1]] {
        let state = of(world, vm, "state");
        assert!(state != "destroyed" && state != "failed", "{vm} is {state}: {told:#?}");
    }
    for node in 0..2 {
        let wrongs = world.wrongs(node);
        assert!(wrongs.is_empty(), "agent {node}: {wrongs:#?}: {told:#?}");
        for line in world.asked(node) {
            let harmless = line.starts_with("GET ") || line.starts_with("PUT ");
            let asks_node = line.contains("vmapi.lab") && line.contains("sync=");
            assert!(harmless && !asks_node, "agent {node}: {line}: {told:#?}");
            assert!(!line.contains("\"destroyed\""), "agent {node}: {line}: {told:#?}");
            let others = line.contains(OTHER[1 - node]) || line.contains(CN[1 - node]);
            assert!(!others, "agent {node} writes another's: {line}: {told:#?}");
        }
    }
}

/// When nothing is left to do: the agents go on by themselves, are started anew, go on. At last those
/// are started that did not run.
pub async fn after(script: &Script, world: &World, at: Position, told: &[String]) {
    script.go_on(world).await;
    script.start_anew(world).await;
    is_right(script, world, at, told);
    (0..2).filter(|node| !world.runs(*node)).for_each(|node| world.start(node));
    script.start_anew(world).await;
    is_right(script, world, at, told);
}

fn is_right(script: &Script, world: &World, at: Position, told: &[String]) {
    always(world, told);
    let moves = |act| act == Act::Erase;
    let moved = script.acts_done(at).any(moves) && at.back.is_none();
    let node = usize::from(moved);
    // Where the node's agent does not run, nobody takes back what the other wrote last.
    let by_agent = |step: &&String| step.contains("PUT vmapi.lab");
    let last = told.iter().rfind(|step| by_agent(step) || step.ends_with("Erase"));
    if world.runs(node) || !last.is_some_and(|step| by_agent(&step)) {
        assert_eq!(of(world, VM, "server_uuid"), CN[node], "{told:#?}");
    }
    let mut shown = vec![(node, VM, world.vm(node).unwrap())];
    shown.extend((0..2).map(|node| (node, OTHER[node], world.other(node))));
    for (node, vm, object) in shown.into_iter().filter(|(node, ..)| world.runs(*node)) {
        for key in ["state", "zone_state", "last_modified", "owner_uuid", "nics", "server_uuid"] {
            assert_eq!(of(world, vm, key), object[key], "{vm}'s {key} on node {node}: {told:#?}");
        }
    }
}

fn of(world: &World, vm: &str, key: &str) -> Value {
    let record = world.vmapi.get(vm).unwrap_or_else(|| panic!("VMAPI has no {vm}"));
    record.get(key).cloned().unwrap_or(json!(null))
}
