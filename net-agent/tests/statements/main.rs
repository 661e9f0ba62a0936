// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The statements of the contract, under paused time, against services in process. Each test has its
//! numbers in a comment. `sources` reads the sources.

#![allow(clippy::unwrap_used)] // tests: a panic is a failed test

#[path = "../world/mod.rs"]
mod world;

mod durable;
mod events;
mod faults;
mod moves;
mod peers;
mod permit;
mod reap;
mod sources;
mod start;
mod storm;
mod trust;
mod unlisted;
mod witness;

use std::time::Duration;

use world::World;

const SEC: Duration = Duration::from_secs(1);
const MIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A leaked NIC (2) of a destroyed VM beside a live one (1).
fn leak() -> World {
    leak_in(World::new())
}

fn leak_in(world: World) -> World {
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", serde_json::json!({}));
    world.nic(2, "gone", serde_json::json!({}));
    world.vmapi("live", "running", world::CN);
    world.vmapi("gone", "destroyed", world::CN);
    world
}

/// What must hold in every run: VMAPI and vminfod are only read, VMAPI never with `sync`; writes
/// to NAPI go to one NIC each, and every delete is conditional.
fn lawful(world: &World) {
    for it in world.vmapi.log().all() {
        let is_read = it.method == "GET" && it.path.starts_with("/vms");
        assert!(is_read && !it.query.contains("sync"), "{it:?}");
    }
    for host in [world::HOME, "target"] {
        let asked = world.hub(host).log().all();
        assert!(asked.iter().all(|it| it.method == "GET"), "{asked:?}");
    }
    for (_, line) in world.log() {
        let read = line.starts_with("GET /nics") || line.starts_with("GET /search/nics");
        let put = line.starts_with("PUT /nics/");
        let delete = line.starts_with("DELETE /nics/") && line.contains("Some(\"");
        assert!(read || put || delete, "{line}");
        assert!(!line.contains("\"ip\"") && !line.contains("reserved"), "{line}");
    }
    for it in world.napi.log().all() {
        assert!(it.headers["user-agent"].starts_with("net-agent/"), "{it:?}");
        let is_empty = it.query.split('&').any(|pair| pair.ends_with('='));
        assert!(!is_empty, "an empty filter: {it:?}");
    }
}
