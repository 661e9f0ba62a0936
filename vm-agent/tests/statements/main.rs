// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The statements of `docs/contract/vmapi.md` (A, H) and of `docs/contract/vm-agent.md` (W), under paused
//! time, against services in process.

#![allow(clippy::unwrap_used)] // tests: a panic is a failed test

#[path = "../world/mod.rs"]
mod world;

mod events;
mod gone;
mod hidden;
mod machine;
mod start;

use std::time::Duration;

use world::World;

const SEC: Duration = Duration::from_secs(1);
const MIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What must hold in every run (W1): VMAPI is never told to ask the node, writes are whole objects of this
/// node, and nobody else's user agent is used.
fn lawful(world: &World) {
    for asked in &world.asked("") {
        assert!(!asked.line.contains("sync"), "{}", asked.line);
        let is_known = ["GET /vms", "PUT /vms/", "PUT /vms?server_uuid="];
        assert!(is_known.iter().any(|it| asked.line.starts_with(it)), "{}", asked.line);
    }
    for put in world.asked("PUT /vms/") {
        whole(&put.body, &put.line);
    }
    for put in world.batches() {
        for (uuid, vm) in put.body["vms"].as_object().unwrap() {
            assert_eq!(vm["uuid"], *uuid);
            whole(vm, &put.line);
        }
    }
    let agent = format!("vm-agent/{} server/{}", env!("CARGO_PKG_VERSION"), world::CN);
    assert!(world.state().agents.iter().all(|it| *it == agent));
}

fn whole(vm: &serde_json::Value, line: &str) {
    for key in ["uuid", "owner_uuid", "brand", "state", "zone_state", "nics", "customer_metadata"] {
        assert!(!vm[key].is_null(), "{line} has no {key}");
    }
    assert_eq!(vm["server_uuid"], world::CN, "{line}");
    assert!(!["unknown", "rebooting"].iter().any(|state| vm["state"] == *state), "H5: {line}");
}
