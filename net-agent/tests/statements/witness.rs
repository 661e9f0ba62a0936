// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What counts as a witness that a NIC is nobody's: the words of other nodes, of something in
//! between, and other spellings.

use std::time::Duration;

use mocks::faults::{Action, Rule};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, TARGET, World, id, mac};
use crate::{HOUR, MIN, lawful, leak};

#[tokio::test(start_paused = true)] // G8
async fn another_nodes_destroyed_deletes_nothing_here() {
    for state in ["destroyed", "failed"] {
        let world = leak();
        world.vm("left", "running", &[3], false);
        world.nic(3, "left", json!({}));
        world.vmapi("gone", state, TARGET);
        let (agent, _) = world.start(json!({}));
        sleep(HOUR).await;
        world.vmapi("left", state, TARGET);
        world.delete_vm("left");
        sleep(50 * HOUR).await;
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        let plan = agent.plan_json().to_string();
        assert!(plan.contains(&format!("VMAPI says {state} on {TARGET}")), "{plan}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // G1, G4
async fn records_of_the_node_itself_stay() {
    let world = leak();
    let own = json!({"e0": {"MAC Address": mac(9)}, "e1": {"MAC Address": mac(10)}});
    world.hub(HOME).set_sysinfo(json!({"UUID": CN, "Network Interfaces": own}));
    world.nic(9, "gone", json!({}));
    world.nic(10, "gone", json!({"cn_uuid": null}));
    world.nic(11, CN, json!({}));
    world.nic(12, CN, json!({"cn_uuid": null}));
    // VMAPI would have them go.
    world.vmapi(CN, "destroyed", CN);
    world.start(json!({}));
    sleep(50 * HOUR).await;
    assert!([9, 10, 11, 12].iter().all(|n| world.has(*n)), "{:?}", world.writes());
    assert!(!world.has(2) && world.writes().len() == 1, "the other leak of that VM goes");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F69
async fn uuids_are_values_in_objects_and_records() {
    const VM: &str = "c0ffee00-0000-4000-8000-00000000000a";
    const GONE: &str = "c0ffee00-0000-4000-8000-00000000000b";
    let caps = |uuid: &str| uuid.to_uppercase();
    for (shown, recorded) in [(VM.to_owned(), caps(VM)), (caps(VM), VM.to_owned())] {
        let world = World::new();
        world.vm(&shown, "running", &[], false);
        world.vm("other", "running", &[], false);
        // Not in the VM (yet): only the uuid says whose they are.
        world.nic(1, &recorded, json!({}));
        world.nic(2, &recorded, json!({"cn_uuid": caps(CN)}));
        world.nic(3, &caps(GONE), json!({"cn_uuid": caps(CN)}));
        world.vmapi(VM, "destroyed", CN);
        world.vmapi(GONE, "destroyed", &caps(CN));
        world.vmapi("other", "running", CN);
        world.start(json!({}));
        sleep(50 * HOUR).await;
        assert!(world.has(1) && world.has(2), "{:?}", world.writes());
        assert!(!world.has(3), "{:?}", world.writes());
        // The VM goes: its records are found under either spelling.
        world.delete_vm(&shown);
        sleep(50 * HOUR).await;
        assert!(!world.has(1) && !world.has(2), "{:?}", world.writes());
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // G3
async fn only_vminfods_own_404_counts_as_absence() {
    let html = "<html>404 Not Found</html>";
    for page in [html, "", r#"{"code":"ResourceNotFound","message":"no"}"#, "VM Not Found: x"] {
        let world = leak();
        world.breaks("/vms/*", 404, page);
        world.start(json!({}));
        sleep(50 * HOUR).await;
        assert!(world.writes().is_empty(), "{page}: {:?}", world.writes());
        world.hub(HOME).faults().clear();
        sleep(10 * MIN).await;
        assert!(!world.has(2), "{page}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // F70
async fn a_zone_that_was_never_read_defers_deletes_and_is_named() {
    let world = leak();
    world.unread(&["z9"]);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    world.vm("left", "running", &[3], false);
    world.nic(3, "left", json!({}));
    world.vmapi("left", "destroyed", CN);
    world.delete_vm("left");
    sleep(30 * HOUR).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    let status = agent.status_json().await;
    assert!(status["waiting_for"].to_string().contains(&format!("zone {}", id("z9"))), "{status}");
    assert_eq!(status["unread_zones"], json!([id("z9")]));
    world.unread(&[]);
    sleep(HOUR).await;
    assert!(!world.has(2) && !world.has(3));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F151
async fn an_xml_without_a_zone_holds_its_own_records_alone() {
    let world = leak();
    world.nic(3, "z9", json!({}));
    world.vmapi("z9", "destroyed", CN);
    world.hub(HOME).strays(&[&id("z9")]);
    let (agent, _) = world.start(json!({}));
    sleep(30 * HOUR).await;
    assert!(!world.has(2) && world.has(3), "{}", agent.plan_json());
    let status = agent.status_json().await;
    assert!(!status["waiting_for"].to_string().contains("nothing is deleted"), "{status}");
    assert_eq!(status["unread_zones"], json!([id("z9")]));
    // Somebody removes the XML.
    world.hub(HOME).strays(&[]);
    sleep(30 * HOUR).await;
    assert!(!world.has(3), "{}", agent.plan_json());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F70
async fn a_zone_read_earlier_keeps_its_addresses_and_stops_nothing() {
    let world = leak();
    world.vm("odd", "running", &[3], false);
    // Its address is recorded for an earlier owner, long destroyed.
    world.nic(3, "former", json!({}));
    world.vmapi("former", "destroyed", CN);
    let (agent, _) = world.start(json!({"startup_delay": {"min": "1h", "max": "1h"}}));
    sleep(10 * MIN).await;
    // vminfod restarts and cannot read that zone.
    world.quietly("odd", None);
    world.unread(&["odd"]);
    world.cut();
    sleep(2 * HOUR).await;
    assert!(!world.has(2), "the leak elsewhere goes: {}", agent.plan_json());
    world.vm("left", "running", &[4, 5], false);
    world.nic(4, "left", json!({}));
    world.vmapi("left", "destroyed", CN);
    world.delete_vm("left");
    sleep(30 * HOUR).await;
    assert!(!world.has(4) && world.has(3), "{:?}", world.writes());
    let status = agent.status_json().await;
    assert_eq!(status["zones_as_read_earlier"], json!([id("odd")]), "{status}");
    assert!(status["departed"].as_array().unwrap().is_empty(), "{status}");
    lawful(&world);
}

#[test] // F70
fn a_zone_read_in_the_last_run_keeps_its_addresses() {
    let world = leak();
    world.vm("odd", "running", &[3], false);
    world.nic(3, "former", json!({}));
    world.vmapi("former", "destroyed", CN);
    world.live_and_crash(json!({"startup_delay": {"min": "9h", "max": "9h"}}), MIN, |_| {});
    // Everything restarts.
    world.quietly("odd", None);
    world.unread(&["odd"]);
    for _ in 0..2 {
        world.live_and_crash(json!({}), 2 * HOUR, |_| {});
        assert!(!world.has(2) && world.has(3), "{:?}", world.writes());
    }
    // The zone is gone for good.
    world.unread(&[]);
    world.live_and_crash(json!({}), 2 * HOUR, |_| {});
    assert!(!world.has(3), "{:?}", world.writes());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // F70
async fn an_event_does_not_outrun_a_zone_that_cannot_be_read() {
    let world = leak();
    world.vm("old", "running", &[3], false);
    world.nic(3, "old", json!({}));
    world.start(json!({"startup_delay": {"min": "9h", "max": "9h"}}));
    sleep(10 * MIN).await;
    // The address goes to a new zone whose XML is broken: no event says so.
    world.vmapi("old", "destroyed", CN);
    world.unread(&["new"]);
    world.delete_vm("old");
    sleep(3 * MIN).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    world.vm("new", "running", &[3], false);
    world.unread(&[]);
    sleep(2 * HOUR).await;
    assert!(world.has(3), "{:?}", world.writes());
    lawful(&world);
}

/// A node with so many running VMs of one NIC each that all know, and an agent whose first pass is over.
async fn at_rest(vms: u8) -> (World, std::sync::Arc<net_agent::agent::Agent>) {
    let world = World::new();
    for n in 1..=vms {
        let vm = format!("v{n}");
        world.vm(&vm, "running", &[n], false);
        world.vmapi(&vm, "running", CN);
        world.nic(n, &vm, json!({}));
    }
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    (world, agent)
}

/// The VM is destroyed, and VMAPI hears of it.
fn destroy(world: &World, n: u8) {
    let vm = format!("v{n}");
    world.vmapi(&vm, "destroyed", CN);
    world.delete_vm(&vm);
}

#[tokio::test(start_paused = true)] // G10
async fn vms_that_moved_away_leave_the_brake() {
    for server in [TARGET, CN] {
        let (world, agent) = at_rest(7).await;
        for n in 1..=5 {
            let vm = format!("v{n}");
            world.nic(n, &vm, json!({"cn_uuid": TARGET}));
            world.vmapi(&vm, "running", server);
            world.delete_vm(&vm);
        }
        sleep(2 * HOUR).await;
        destroy(&world, 6);
        sleep(HOUR).await;
        let has_moved = server == TARGET;
        let status = agent.status_json().await;
        assert_eq!(!world.has(6), has_moved, "{status}");
        assert_eq!(status["brake"].is_null(), has_moved, "{status}");
        assert!((1..=5).all(|n| world.has(n)));
        lawful(&world);
    }
}

#[test] // G10
fn vms_that_left_hidden_leave_the_brake_at_once_and_after_a_restart() {
    let world = World::new();
    for n in 1..=7 {
        let vm = format!("v{n}");
        world.vm(&vm, "running", &[n], false);
        world.vmapi(&vm, "running", CN);
        world.nic(n, &vm, json!({}));
    }
    world.live_and_crash(json!({}), HOUR, |_| {});
    // The node is evacuated by migrations, and its agent ends in the minute of the last.
    world.live_and_crash(json!({}), Duration::ZERO, |world| {
        for n in 1..=5 {
            let vm = format!("v{n}");
            world.vm(&vm, "stopped", &[n], true);
            world.nic(n, &vm, json!({"cn_uuid": TARGET}));
            world.vmapi(&vm, "running", TARGET);
        }
    });
    world.live_and_crash(json!({}), MIN, |world| {
        (1..=5).for_each(|n| world.delete_vm(&format!("v{n}")));
    });
    world.live_and_crash(json!({}), 3 * MIN, |world| destroy(world, 6));
    assert!(!world.has(6), "{:?}", world.writes());
    assert!((1..=5).all(|n| world.has(n)));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // G10
async fn what_left_in_the_last_day_counts_together() {
    // With the second, the last pass has taken the node as it was with ten: VMAPI's word counts, but for the day.
    for together in [&[1; 10][..], &[4, 4, 2]] {
        let (world, agent) = at_rest(20).await;
        let mut gone = 0;
        for more in together {
            (gone + 1..=gone + more).for_each(|n| destroy(&world, n));
            gone += more;
            sleep(2 * HOUR).await;
            assert!(!world.has(gone), "{gone}: {}", agent.status_json().await);
        }
        destroy(&world, 11);
        sleep(50 * HOUR).await;
        let status = agent.status_json().await;
        assert!(world.has(11), "{status}");
        assert!(status["brake"].to_string().contains("fewer than half"), "{status}");
        // They were given away after all.
        (1..=10).for_each(|n| world.vmapi(&format!("v{n}"), "running", TARGET));
        sleep(HOUR).await;
        assert!(!world.has(11), "{}", agent.status_json().await);
        lawful(&world);
    }
}

/// NAPI refuses a write: this field, for this reason.
fn refuses(world: &World, method: &str, field: &str, code: &str, times: u64) {
    let error = json!({"field": field, "code": code, "message": "IP 10.0.0.1 exists on network n"});
    let body =
        json!({"code": "InvalidParameters", "message": "Invalid parameters", "errors": [error]});
    let action = Action::Status { status: 422, body: Some(body), retry_after: None };
    world.napi.faults().add(Rule::new(method, "/nics/*", action).times(times));
}

#[tokio::test(start_paused = true)] // C42, F152
async fn a_write_that_meets_another_is_a_conflict_and_a_refusal_is_looked_at_again() {
    // What is refused, how often, and when the record is right.
    for (field, code, times, by) in [
        ("ip", "Duplicate", 3, MIN),
        ("state", "Duplicate", 1, 2 * MIN),
        ("owner_uuid", "InvalidParameter", 1, 2 * MIN),
        ("owner_uuid", "InvalidParameter", 3, 37 * MIN),
    ] {
        let world = World::new();
        world.vm("v", "stopped", &[1], false);
        world.nic(1, "v", json!({"state": "stopped"}));
        world.vmapi("v", "stopped", CN);
        world.start(json!({"startup_delay": {"min": "20h", "max": "20h"}}));
        sleep(MIN).await;
        refuses(&world, "PUT", field, code, times);
        world.vm("v", "running", &[1], false);
        sleep(by).await;
        let (puts, nic) = (world.asked("PUT").len() as u64, world.napi.nic(&mac(1)).unwrap());
        assert_eq!((puts, &nic["state"]), (times + 1, &json!("running")), "{field} {code} {times}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C43, F151
async fn a_dataset_that_is_left_holds_a_vm_that_nobody_saw_go() {
    for is_seen in [false, true] {
        let world = World::new();
        world.vm("v", "stopped", &[1], false);
        world.vm("w", "running", &[2], false);
        world.nic(1, "v", json!({"state": "stopped"}));
        world.nic(2, "w", json!({}));
        world.vmapi("v", "stopped", CN);
        world.vmapi("w", "running", CN);
        world.start(json!({}));
        sleep(HOUR).await;
        world.vmapi("v", "destroyed", CN);
        let hub = world.hub(HOME);
        hub.dataset(&id("v"), true);
        if is_seen {
            hub.remove(&id("v"))
        } else {
            hub.lose(&id("v"))
        }
        sleep(50 * HOUR).await;
        assert_eq!(world.has(1), !is_seen);
        hub.dataset(&id("v"), false);
        sleep(50 * HOUR).await;
        assert!(!world.has(1));
        lawful(&world);
    }
}
