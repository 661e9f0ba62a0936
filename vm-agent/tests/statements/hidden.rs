// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Hidden VMs (`do_not_inventory`): no request names one.

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, OTHER, World, uuid};
use crate::{HOUR, MIN, lawful};

#[tokio::test(start_paused = true)] // A4
async fn no_request_names_a_hidden_vm() {
    let world = World::of(0..5);
    let hidden = json!({"do_not_inventory": true});
    world.quietly(8, Some(&hidden));
    world.started(&json!({})).await;
    world.vm(8, &json!({"do_not_inventory": true, "alias": "x"}));
    sleep(MIN).await;
    world.vm(9, &json!({"do_not_inventory": "true"}));
    sleep(HOUR).await;
    world.delete(8);
    world.delete(9);
    for _ in 0..4 {
        sleep(MIN).await;
        // Several delete events can arrive.
        world.delete(8);
        assert!(world.naming(8).is_empty() && world.naming(9).is_empty());
    }
    sleep(HOUR).await;
    assert!(world.naming(8).is_empty() && world.naming(9).is_empty());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // A4, W17
async fn a_hidden_vm_that_vanishes_with_most_of_the_node_stays_secret() {
    let world = World::of(0..5);
    world.started(&json!({"relist": "30m"})).await;
    (3..5).for_each(|n| world.vm(n, &json!({"do_not_inventory": true})));
    sleep(MIN).await;
    world.forget();
    (1..5).for_each(|n| world.delete(n));
    sleep(3 * HOUR).await;
    assert_eq!((world.naming(3).len(), world.naming(4).len()), (0, 0));
    // They are back, and one of them is deleted in earnest: it is forgotten as ever.
    (1..5).for_each(|n| world.vm(n, &json!({})));
    sleep(MIN).await;
    world.vm(3, &json!({"do_not_inventory": true}));
    world.delete(3);
    sleep(HOUR).await;
    assert_eq!(world.stored(3)["state"], "destroyed");
}

#[tokio::test(start_paused = true)] // A5, H2
async fn a_known_vm_that_is_hidden_stays_as_it_is_until_it_is_shown() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.forget();
    world.vm(2, &json!({"do_not_inventory": true, "alias": "hidden"}));
    sleep(HOUR).await;
    assert!(world.naming(2).is_empty());
    world.vm(2, &json!({"alias": "shown"}));
    sleep(MIN).await;
    assert_eq!((world.puts(2).len(), &world.stored(2)["alias"]), (1, &json!("shown")));
    lawful(&world);
}

#[test] // H2, A4, W17
fn a_restart_in_the_window_of_a_migration_says_nothing() {
    // The source: hidden, and VMAPI still says that it is here.
    let world = World::of(0..5);
    world.live_and_crash(MIN, |world| world.vm(2, &json!({"do_not_inventory": true})));
    world.live_and_crash(MIN, |world| {
        assert!(world.writes().is_empty());
        world.delete(2);
    });
    // Deleted a short while ago: the memory of it outlives the process.
    world.live_and_crash(4 * MIN, |world| assert!(world.asked("PUT").is_empty()));
    assert_eq!(world.stored(2)["state"], "running");
    // Deleted while the agent was away.
    let world = World::of(0..5);
    world.live_and_crash(MIN, |world| world.vm(2, &json!({"do_not_inventory": true})));
    world.quietly(2, None);
    world.live_and_crash(4 * MIN, |world| assert!(world.naming(2).is_empty()));
    assert_eq!(world.stored(2)["state"], "running");
}

#[tokio::test(start_paused = true)] // W4, H3
async fn the_switch_of_a_migration_never_shows_the_vm_destroyed() {
    // The target: hidden here, then VMAPI's record is emptied, then shown.
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.knows(9, &json!({"server_uuid": OTHER}));
    world.vm(9, &json!({"do_not_inventory": true, "state": "stopped", "zone_state": "installed"}));
    sleep(MIN).await;
    let bare = json!({"uuid": uuid(9), "server_uuid": CN});
    world.vmapi.put(bare.as_object().unwrap().clone());
    sleep(MIN).await;
    assert!(world.naming(9).is_empty());
    world.vm(9, &json!({"state": "stopped", "zone_state": "installed"}));
    sleep(MIN).await;
    assert_eq!((world.puts(9).len(), &world.stored(9)["state"]), (1, &json!("stopped")));
    // The source: it goes after VMAPI names the target.
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.vm(2, &json!({"do_not_inventory": true}));
    world.knows(2, &json!({"server_uuid": OTHER}));
    world.delete(2);
    sleep(HOUR).await;
    assert!(world.puts(2).is_empty());
}

#[tokio::test(start_paused = true)] // A4, W31
async fn a_hidden_vm_that_went_while_the_agent_was_away_counts_for_no_day_and_is_never_named() {
    let world = World::of(0..9);
    let (_, shutdown) = world.started(&json!({})).await;
    (5..9).for_each(|n| world.vm(n, &json!({"do_not_inventory": true})));
    sleep(MIN).await;
    world.forget();
    shutdown.trigger();
    sleep(MIN).await;
    (5..9).for_each(|n| world.quietly(n, None));
    world.cut();
    world.started(&json!({})).await;
    // It is forgotten that they were hidden.
    sleep(HOUR).await;
    world.delete(0);
    sleep(MIN).await;
    (5..9).for_each(|n| assert!(world.naming(n).is_empty(), "{:?}", world.naming(n)));
    assert_eq!(world.stored(0)["state"], "destroyed", "4 of 5 are here");
}
