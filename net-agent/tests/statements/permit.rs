// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What happens after the last check of the node and before the delete: the permit is made after it,
//! so nothing is deleted. Each case runs for a departure (the worker deletes) and a leak (the pass).

use mocks::faults::{Action, Rule};
use net_agent::holds::HoldsFile;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, Happening, World, id};
use crate::{HOUR, MIN, SEC, lawful, leak};

/// A world in which NIC 2 is about to be deleted, with this in the way of the delete.
async fn about_to_delete(
    departs: bool,
    happens: impl FnOnce(&World, &daemon::Shutdown) -> Happening,
) -> (World, daemon::Shutdown) {
    let world = leak();
    if departs {
        world.vm("gone", "running", &[2], false);
        world.vmapi("gone", "running", CN);
    }
    let (_, shutdown) = world.start(json!({}));
    sleep(MIN).await;
    let happens = happens(&world, &shutdown);
    world.state().before_check = Some(happens);
    if departs {
        world.vmapi("gone", "destroyed", CN);
        world.delete_vm("gone");
    }
    while world.state().before_check.is_some() {
        sleep(SEC / 10).await;
    }
    (world, shutdown)
}

#[tokio::test(start_paused = true)]
async fn hold_after_the_last_check_stops_the_delete() {
    for departs in [true, false] {
        let place = |world: &World, _: &daemon::Shutdown| -> Happening {
            let holds = HoldsFile::new(&world.dir.path().join(HOME));
            Box::new(move |_| {
                let (vm, now) = (Some(id("gone")), jiff::Timestamp::now());
                holds.hold(vm, None, "migration".to_owned(), "root".to_owned(), now).unwrap();
            })
        };
        let (world, shutdown) = about_to_delete(departs, place).await;
        sleep(3 * HOUR).await;
        assert!(world.has(2) && world.writes().is_empty(), "{departs}: {:?}", world.writes());
        let holds = HoldsFile::new(&world.dir.path().join(HOME));
        holds.release(Some(&id("gone"))).unwrap();
        sleep(HOUR).await;
        assert!(!world.has(2), "{departs}");
        lawful(&world);
        shutdown.trigger();
    }
}

#[tokio::test(start_paused = true)]
async fn stream_lost_after_the_last_check_stops_the_delete() {
    for departs in [true, false] {
        let lose = |_: &World, _: &daemon::Shutdown| -> Happening {
            Box::new(|world| {
                // The check itself is still answered.
                world.cut();
                world.breaks("/vms", 503, "{}");
                world.hub(HOME).faults().add(Rule::new("GET", "/events", Action::Cut));
            })
        };
        let (world, shutdown) = about_to_delete(departs, lose).await;
        sleep(HOUR).await;
        assert!(world.has(2) && world.writes().is_empty(), "{departs}: {:?}", world.writes());
        world.hub(HOME).faults().clear();
        sleep(HOUR).await;
        assert!(!world.has(2), "{departs}");
        lawful(&world);
        shutdown.trigger();
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_after_the_last_check_stops_the_delete() {
    for departs in [true, false] {
        let end = |_: &World, shutdown: &daemon::Shutdown| -> Happening {
            let shutdown = shutdown.clone();
            Box::new(move |_| shutdown.trigger())
        };
        let (world, _) = about_to_delete(departs, end).await;
        sleep(MIN).await;
        assert!(world.has(2) && world.writes().is_empty(), "{departs}: {:?}", world.writes());
        // The next run decides by itself: the VM is back.
        world.cut();
        world.vm("gone", "running", &[2], false);
        let (_, shutdown) = world.start(json!({}));
        sleep(HOUR).await;
        assert!(world.has(2) && world.asked("DELETE").is_empty(), "{departs}");
        lawful(&world);
        shutdown.trigger();
    }
}
