// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A second machine with the node's uuid, and a machine that had another uuid.

use mocks::faults::{Action, Rule};
use mocks::napi::NewNic;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{CN, OTHER, World};
use crate::{HOUR, MIN, lawful};

/// The node's sysinfo, CNAPI's record of the node with that of another machine, and NAPI's server NICs.
fn two_machines(world: &World, nics: &[&str]) {
    world.hub.set_sysinfo(json!({"UUID": CN, "Serial Number": "S1"}));
    let links = json!({"igb0": {"MAC Address": "02:00:00:00:00:92", "NIC Names": ["admin"]}});
    let sysinfo = json!({"UUID": CN, "Serial Number": "S2", "Network Interfaces": links});
    server(world, CN, &sysinfo);
    for mac in nics {
        world.napi.add_nic(NewNic::server(mac, CN)).unwrap();
    }
}

fn server(world: &World, uuid: &str, sysinfo: &Value) {
    let server = json!({"uuid": uuid, "sysinfo": sysinfo});
    world.cnapi.put_server(server.as_object().unwrap().clone());
}

#[tokio::test(start_paused = true)] // W29
async fn a_second_machine_of_this_uuid_stops_all_writing_until_an_operator_decides() {
    for is_second in [true, false] {
        let world = World::of(0..9);
        two_machines(&world, if is_second { &["02:00:00:00:00:92"] } else { &[] });
        world.quietly(0, None);
        world.vm(1, &json!({"alias": "changed"}));
        let (agent, _) = world.start(&json!({}));
        sleep(HOUR).await;
        assert_eq!(world.writes().is_empty(), is_second, "{:?}", world.writes());
        if !is_second {
            continue;
        }
        let status = agent.status_json();
        assert!(status["mute"].to_string().contains("serial number S2"), "{status:#}");
        assert!(status["waiting_for"].to_string().contains("second machine"), "{status:#}");
        agent.parts.claim(CN, "root", false).await.unwrap();
        sleep(3 * HOUR).await;
        assert_eq!(world.stored(0)["state"], "destroyed");
        assert_eq!(world.stored(1)["alias"], "changed");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // W29
async fn a_second_machine_is_remembered_over_a_restart_beside_a_cnapi_that_hangs() {
    let world = World::of(0..9);
    two_machines(&world, &["02:00:00:00:00:92"]);
    let (_, shutdown) = world.start(&json!({}));
    sleep(HOUR).await;
    shutdown.trigger();
    sleep(MIN).await;
    world.cut();
    world.vm(1, &json!({"alias": "changed"}));
    world.cnapi.faults().add(Rule::any(Action::Delay { ms: 3_600_000 }));
    let (agent, shutdown) = world.start(&json!({}));
    sleep(HOUR).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    agent.parts.claim(CN, "root", false).await.unwrap();
    shutdown.trigger();
    sleep(MIN).await;
    // What was decided is remembered, too.
    world.cut();
    world.start(&json!({}));
    sleep(HOUR).await;
    assert_eq!(world.stored(1)["alias"], "changed");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W29
async fn where_cnapi_shows_another_machine_a_napi_that_fails_or_hangs_lets_nobody_write() {
    let fails = Action::Status { status: 500, body: None, retry_after: None };
    for action in [fails, Action::Delay { ms: 25_000 }, Action::Delay { ms: 3_600_000 }] {
        let world = World::of(0..9);
        two_machines(&world, &["02:00:00:00:00:92"]);
        world.vm(1, &json!({"alias": "changed"}));
        world.napi.faults().add(Rule::any(action.clone()));
        let (agent, _) = world.start(&json!({}));
        sleep(HOUR).await;
        assert!(world.writes().is_empty(), "{action:?}: {:?}", world.writes());
        let mute = agent.status_json()["mute"].to_string();
        assert!(mute.contains("until NAPI says"), "{action:?}: {mute}");
        world.napi.faults().clear();
        sleep(HOUR).await;
        let mute = agent.status_json()["mute"].to_string();
        assert!(mute.contains("until an operator says"), "{action:?}: {mute}");
        assert!(world.writes().is_empty(), "{action:?}: {:?}", world.writes());
    }
}

#[tokio::test(start_paused = true)] // W29
async fn a_cnapi_that_hangs_keeps_nobody_from_writing() {
    let world = World::of(0..9);
    two_machines(&world, &[]);
    world.vm(1, &json!({"alias": "changed"}));
    world.cnapi.faults().add(Rule::any(Action::Delay { ms: 3_600_000 }));
    world.start(&json!({}));
    sleep(HOUR).await;
    assert_eq!(world.stored(1)["alias"], "changed");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W29
async fn the_machine_that_cnapi_knows_stops_too_where_a_vm_and_a_nic_of_the_uuid_were_never_here() {
    for nics in [&["02:00:00:00:00:92"][..], &[]] {
        let world = World::of(0..9);
        world.hub.set_sysinfo(json!({"UUID": CN, "Serial Number": "S1"}));
        server(&world, CN, &json!({"UUID": CN, "Serial Number": "S1"}));
        for mac in nics {
            world.napi.add_nic(NewNic::server(mac, CN)).unwrap();
        }
        // The other machine's, which runs there.
        world.quietly(0, None);
        let (agent, _) = world.start(&json!({}));
        sleep(3 * HOUR).await;
        assert_eq!(world.stored(0)["state"] == "destroyed", nics.is_empty(), "{nics:?}");
        if nics.is_empty() {
            continue;
        }
        world.vm(1, &json!({"alias": "changed"}));
        sleep(3 * HOUR).await;
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        let status = agent.status_json();
        assert!(status["mute"].to_string().contains("never here"), "{status:#}");
        agent.parts.claim(CN, "root", false).await.unwrap();
        sleep(3 * HOUR).await;
        assert_eq!(world.stored(0)["state"], "destroyed");
        assert_eq!(world.stored(1)["alias"], "changed");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // W28, W29
async fn without_cnapi_no_vm_that_was_never_here_is_told_destroyed() {
    let away = Action::Status { status: 503, body: None, retry_after: None };
    let hangs = Action::Delay { ms: 3_600_000 };
    for (over, fault) in [
        (json!({"cnapi": {"url": "none"}}), None),
        (json!({}), Some(away)),
        (json!({}), Some(hangs)),
    ] {
        // A clone of the disk: two of the six VMs came to the other machine later.
        let world = World::of(0..6);
        world.hub.set_sysinfo(json!({"UUID": CN, "Serial Number": "S1"}));
        (0..2).for_each(|n| world.quietly(n, None));
        fault.iter().for_each(|fault| world.cnapi.faults().add(Rule::any(fault.clone())));
        let (agent, _) = world.start(&over);
        sleep(3 * HOUR).await;
        let told = (0..2).filter(|n| world.stored(*n)["state"] == "destroyed").count();
        assert_eq!(told, 0, "{over} {fault:?}");
        match fault {
            Some(_) => world.cnapi.faults().clear(),
            None => {
                let plan = agent.offer();
                let id = plan["approval"]["id"].as_str().unwrap_or_else(|| panic!("{plan:#}"));
                assert_eq!(agent.parts.approve(id, "root"), Ok(2));
            }
        }
        sleep(3 * HOUR).await;
        let told = (0..2).filter(|n| world.stored(*n)["state"] == "destroyed").count();
        assert_eq!(told, 2, "{over} {fault:?}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // W30
async fn stopped_vms_of_a_claimed_node_are_told_to_be_here() {
    for is_known in [false, true] {
        let world = World::of(0..3);
        let stopped = json!({"state": "stopped", "zone_state": "installed"});
        let mut elsewhere = stopped.clone();
        elsewhere["server_uuid"] = OTHER.into();
        for n in 0..3 {
            world.quietly(n, Some(&stopped));
            world.knows(n, &elsewhere);
        }
        if is_known {
            server(&world, OTHER, &json!({"UUID": OTHER}));
        }
        let (agent, shutdown) = world.started(&json!({})).await;
        sleep(HOUR).await;
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        let claimed = agent.parts.claim(OTHER, "root", false).await;
        assert_eq!(claimed.is_err(), is_known, "{claimed:?}");
        if is_known {
            assert!(claimed.unwrap_err().to_string().contains("CNAPI knows node"));
            sleep(MIN).await;
            assert!(world.writes().is_empty(), "{:?}", world.writes());
            agent.parts.claim(OTHER, "root", true).await.unwrap();
        }
        sleep(MIN).await;
        (0..3).for_each(|n| assert_eq!(world.stored(n)["server_uuid"], CN));
        // A restart knows it.
        shutdown.trigger();
        sleep(MIN).await;
        world.knows(0, &elsewhere);
        world.cut();
        world.start(&json!({}));
        sleep(HOUR).await;
        assert_eq!(world.stored(0)["server_uuid"], CN);
        lawful(&world);
    }
}
