// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What outlives a restart, the brake, and approvals.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, World, id};
use crate::{HOUR, MIN, lawful};

fn memory(world: &World) -> std::path::PathBuf {
    world.dir.path().join(HOME).join("memory.json")
}

fn read(world: &World) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(memory(world)).unwrap()).unwrap()
}

#[test]
fn departure_survives_a_crash() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.vm("w", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "running", CN);
    // No list in either run: only the queue on the disk can know.
    let over = || json!({"startup_delay": {"min": "20h", "max": "20h"}});
    world.live_and_crash(over(), HOUR, |world| world.delete_vm("v"));
    assert!(world.has(1));
    world.vmapi("v", "destroyed", CN);
    world.live_and_crash(over(), 10 * MIN, |_| {});
    assert!(!world.has(1), "settled");
    world.live_and_crash(over(), HOUR, |_| {});
    assert_eq!(world.asked("DELETE").len(), 1);
    lawful(&world);
}

#[test]
fn remembered_departure_is_judged_by_the_present() {
    // What changed while nobody looked: the VM is back, is hidden, or its record was just written.
    for case in ["back", "hidden", "written", "elsewhere"] {
        let world = World::new();
        world.vm("v", "running", &[1], false);
        world.vm("w", "running", &[], false);
        world.nic(1, "v", json!({}));
        world.vmapi("v", "running", CN);
        let over = || {
            json!({"startup_delay": {"min": "20h", "max": "20h"}, "vmapi": "none",
            "settle": "50m"})
        };
        world.live_and_crash(over(), MIN, |world| world.delete_vm("v"));
        match case {
            "back" => world.quietly("v", Some(("running", &[1], false))),
            "hidden" => world.quietly("v", Some(("running", &[1], true))),
            "written" => {
                world.nic(1, "v", json!({"age_s": 0}));
            }
            _ => world.nic(1, "v", json!({"cn_uuid": crate::world::TARGET})),
        }
        let over = json!({"startup_delay": {"min": "20h", "max": "20h"}, "vmapi": "none"});
        world.live_and_crash(over, 10 * MIN, |_| {});
        assert!(world.has(1) && world.asked("DELETE").is_empty(), "{case}");
    }
}

#[test]
fn remembers_hidden_vms_across_runs() {
    // Hidden here when the agent died, deleted while it was off: it may have gone a moment ago.
    let world = World::new();
    world.vm("v", "running", &[1], true);
    world.vm("w", "running", &[], false);
    world.nic(1, "v", json!({}));
    let over = |min: &str| {
        json!({"vmapi": "none", "startup_delay": {"min": min, "max": min},
        "second_look": "1s"})
    };
    world.live_and_crash(over("20h"), MIN, |_| {});
    world.quietly("v", None);
    world.live_and_crash(over("10s"), 3 * MIN, |_| {});
    assert!(world.has(1) && world.writes().is_empty(), "within its five minutes");
    world.live_and_crash(over("10s"), 30 * MIN, |_| {});
    assert!(!world.has(1), "and not for ever");
}

#[test]
fn damaged_state_file_means_the_worst() {
    let damages: [&dyn Fn(&std::path::Path); 4] = [
        &|path| std::fs::write(path, "{").unwrap(),
        &|path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, &text[..text.len() / 2]).unwrap();
        },
        &|path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, text.replace("\"version\": 1", "\"version\": 9")).unwrap();
        },
        &|path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(path, text.replace(CN, crate::world::TARGET)).unwrap();
        },
    ];
    for (n, damage) in damages.iter().enumerate() {
        let world = World::new();
        world.vm("v", "running", &[1], false);
        world.nic(1, "v", json!({}));
        world.nic(2, "gone", json!({}));
        let over = || json!({"startup_delay": {"min": "10s", "max": "10s"}, "second_look": "1s"});
        world.live_and_crash(json!({"startup_delay": {"min": "20h", "max": "20h"}}), MIN, |_| {});
        damage(&memory(&world));
        world.vmapi("gone", "destroyed", CN);
        world.live_and_crash(over(), MIN, |_| {});
        assert!(world.has(2), "{n}: what was hidden is not known");
        // A restart does not make it good.
        world.live_and_crash(over(), 20 * MIN, |_| {});
        assert!(world.has(2), "{n}: neither the deletes of the last hour nor the VMs are known");
        let mut file = read(&world);
        file["lost"] = json!("2020-01-01T00:00:00.000Z");
        std::fs::write(memory(&world), file.to_string()).unwrap();
        world.live_and_crash(over(), 20 * MIN, |_| {});
        assert!(!world.has(2), "{n}: an hour later");
        assert!(memory(&world).with_extension("damaged").exists());
        lawful(&world);
    }
}

#[test]
fn brake_survives_a_crash() {
    let world = World::new();
    for n in 1..=14 {
        world.vm(&format!("v{n}"), "running", &[n], false);
        world.nic(n, &format!("v{n}"), json!({}));
    }
    let soon = || json!({"startup_delay": {"min": "10s", "max": "10s"}});
    world.live_and_crash(soon(), MIN, |_| {});
    // A pool is missing after the boot: most VMs are not there, and VMAPI has never heard of them.
    for n in 1..=8 {
        world.quietly(&format!("v{n}"), None);
    }
    world.live_and_crash(soon(), 30 * HOUR, |_| {});
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    for n in 2..=8 {
        world.quietly(&format!("v{n}"), Some(("running", &[n], false)));
    }
    world.live_and_crash(soon(), 2 * HOUR, |_| {});
    assert!(!world.has(1) && world.has(2), "the pool is back; one VM really went");
    assert_eq!(world.writes().len(), 1);
    // Five in the hour are let go, across crashes; the sixth waits.
    for n in 2..=7 {
        world.live_and_crash(soon(), 9 * MIN, |world| world.delete_vm(&format!("v{n}")));
    }
    assert_eq!(world.writes().len(), 6);
    assert!(world.has(7));
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn deletes_nothing_without_a_disk() {
    let world = crate::leak();
    let state = world.dir.path().join(HOME);
    // The new file cannot be made: something is in its place.
    std::fs::create_dir_all(state.join(format!("memory.new.{}", std::process::id()))).unwrap();
    let (agent, _) = world.start(json!({"hidden_memory": "5m"}));
    sleep(3 * HOUR).await;
    assert!(world.has(2) && world.asked("DELETE").is_empty());
    let status = agent.status_json().await;
    assert!(status["memory"].as_str().unwrap().contains("memory"), "{status}");
    lawful(&world);
}

/// Eight leaks that VMAPI has never heard of, on a node with one VM.
fn braked() -> World {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    for n in 2..=9 {
        world.nic(n, &format!("gone{n}"), json!({}));
    }
    world
}

#[tokio::test(start_paused = true)]
async fn approved_plan_goes_as_it_was_listed() {
    let world = braked();
    let (agent, _) = world.start(json!({}));
    sleep(30 * HOUR).await;
    assert!(world.writes().is_empty(), "time alone never takes it off");
    let page = agent.plan_json();
    assert!(page["braked"].as_str().unwrap().contains("8 candidates"), "{page}");
    assert!(page["approval"].is_null(), "nobody asked for an offer");
    let page = agent.offer().await;
    let id = page["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(page["approval"]["nics"].as_array().unwrap().len(), 8);
    assert!(agent.approve("0123456789abcdef", "root").is_err());
    // Between the list and the approval: one record changed, one VM is here after all, one is held.
    world.touch("f20000000002");
    world.vm("gone3", "running", &[3], false);
    let now = jiff::Timestamp::now();
    let gone = crate::world::id("gone4");
    agent.parts.holds.hold(Some(gone.clone()), None, "x".into(), "root".into(), now).unwrap();
    world.nic(10, "gone10", json!({}));
    assert_eq!(agent.approve(&id, "root"), Ok(8));
    sleep(14 * MIN).await;
    let left: Vec<u8> = (1..=10).filter(|n| world.has(*n)).collect();
    assert_eq!(left, [1, 2, 3, 4, 10], "only what was listed, as it was; every guard still ran");
    sleep(2 * MIN).await;
    agent.parts.holds.release(Some(&gone)).unwrap();
    sleep(HOUR).await;
    assert!(world.has(4) || agent.parts.brake.sentence().is_none(), "the approval ran out");
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn offer_lasts_15_minutes() {
    let world = braked();
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    let id = agent.offer().await["approval"]["id"].as_str().unwrap().to_owned();
    sleep(15 * MIN + Duration::from_secs(1)).await;
    assert!(agent.approve(&id, "root").is_err() && agent.plan_json()["approval"].is_null());
    assert_eq!(agent.offer().await["approval"]["id"], json!(id), "the same list, the same id");
    assert_eq!(agent.approve(&id, "root"), Ok(8));
    sleep(10 * MIN).await;
    assert_eq!((1..=9).filter(|n| world.has(*n)).count(), 1);
    assert!(agent.parts.brake.sentence().is_none() && agent.parts.brake.blocked().is_empty());
    lawful(&world);
}

/// A node of which `vms` VMs have a NIC each, and `more` others three each.
fn node(vms: u8, more: u8) -> World {
    let world = World::new();
    for n in 1..=vms + more {
        let vm = format!("v{n}");
        let macs: &[u8] = if n > vms { &[n, n + 50, n + 100] } else { &[n] };
        world.vm(&vm, "running", macs, false);
        macs.iter().for_each(|mac| world.nic(*mac, &vm, json!({})));
        world.vmapi(&vm, "running", CN);
    }
    world
}

#[test] // G10, F68
fn vmapis_word_lifts_no_brake_after_a_restart_of_everything() {
    let world = node(10, 0);
    let soon = || json!({"startup_delay": {"min": "10s", "max": "10s"}});
    world.live_and_crash(soon(), 5 * MIN, |_| {});
    assert_eq!(read(&world)["reference"].as_array().unwrap().len(), 10);
    // The hub shows two of ten after the boot, and its node tells VMAPI that the others are gone.
    for n in 3..=10 {
        world.quietly(&format!("v{n}"), None);
        world.vmapi(&format!("v{n}"), "destroyed", CN);
    }
    world.live_and_crash(soon(), 50 * HOUR, |_| {});
    world.live_and_crash(soon(), 50 * HOUR, |_| {});
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    // Most of it comes back, and the operator has a look.
    for n in 4..=10 {
        world.quietly(&format!("v{n}"), Some(("running", &[n], false)));
    }
    world.live_and_crash(soon(), HOUR, |_| {});
    assert_eq!(world.writes().len(), 1, "one of ten: few, and 90 % are here");
    assert!(!world.has(3));
    lawful(&world);
}

#[test] // G10, F68
fn a_restart_counts_vms_without_nics_although_there_was_no_reference_view() {
    let world = node(4, 0);
    for n in 11..=13 {
        world.vm(&format!("v{n}"), "running", &[], false);
        world.vmapi(&format!("v{n}"), "running", CN);
    }
    // It is being provisioned: no pass leaves nothing undecided.
    world.nic(200, "v200", json!({"state": "provisioning"}));
    world.vmapi("v200", "provisioning", CN);
    let soon = || json!({"startup_delay": {"min": "10s", "max": "10s"}});
    world.live_and_crash(soon(), 5 * MIN, |_| {});
    assert!(read(&world)["reference"].is_null());
    for n in [1, 2, 11, 12] {
        world.quietly(&format!("v{n}"), None);
        world.vmapi(&format!("v{n}"), "destroyed", CN);
    }
    world.live_and_crash(soon(), 50 * HOUR, |_| {});
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // G10, F68
async fn vmapis_word_lifts_no_brake_while_the_node_shows_less() {
    // A hub that loses VMs may say so in events, or not.
    for by_events in [true, false] {
        let world = node(10, 0);
        let (agent, _) = world.start(json!({}));
        sleep(HOUR).await;
        for n in 3..=10 {
            let vm = format!("v{n}");
            world.vmapi(&vm, "destroyed", CN);
            if by_events { world.delete_vm(&vm) } else { world.quietly(&vm, None) }
        }
        sleep(50 * HOUR).await;
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        let brake = agent.parts.brake.sentence().unwrap();
        assert!(brake.contains("2 of the 10 VMs that the node had"), "{brake}");
        let id = agent.offer().await["approval"]["id"].as_str().unwrap().to_owned();
        assert_eq!(agent.approve(&id, "root"), Ok(8));
        sleep(20 * MIN).await;
        assert_eq!(world.writes().len(), 8, "{brake}");
        // The operator has accepted the node as it is.
        assert!(agent.parts.brake.sentence().is_none());
        assert_eq!(agent.parts.brake.reference().unwrap().len(), 2);
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // G10
async fn confirmed_deletes_pass_the_brake_at_a_pace() {
    // Eight of a hundred VMs go with 24 NICs, which is more than the limit of 11.
    let world = node(42, 8);
    for n in 51..=92 {
        world.vm(&format!("x{n}"), "running", &[], false);
    }
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    for n in 43..=50 {
        let state = if n == 50 { "running" } else { "destroyed" };
        world.vmapi(&format!("v{n}"), state, CN);
        world.delete_vm(&format!("v{n}"));
    }
    sleep(HOUR).await;
    let deletes: Vec<_> = world.asked("DELETE").into_iter().map(|(at, _)| at).collect();
    assert_eq!(deletes.len(), 21, "{}", agent.plan_json());
    for (n, at) in deletes.iter().enumerate().skip(10) {
        assert!(*at - deletes[n - 10] >= 10 * MIN, "{deletes:?}");
    }
    // VMAPI's word on the last comes late; meanwhile it held nothing back.
    assert!(world.has(50));
    world.vmapi("v50", "destroyed", CN);
    sleep(HOUR).await;
    assert_eq!(world.asked("DELETE").len(), 24);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // G10
async fn undecided_candidates_hold_back_no_confirmed_one() {
    let world = node(20, 0);
    for n in 101..=108 {
        world.nic(n, &format!("gone{n}"), json!({}));
    }
    let (agent, _) = world.start(json!({"startup_delay": {"min": "2h", "max": "2h"}}));
    agent.parts.brake.refer_to((1..=20).map(|n| id(&format!("v{n}"))).collect());
    sleep(3 * HOUR).await;
    assert!(world.writes().is_empty(), "VMAPI knows of none");
    for n in 102..=108 {
        world.vmapi(&format!("gone{n}"), "destroyed", CN);
    }
    world.vmapi("gone101", "running", CN);
    sleep(HOUR).await;
    assert_eq!(world.writes().len(), 7, "{}", agent.plan_json());
    // Only VMAPI holds back the eighth: there is nothing to approve.
    assert!(world.has(101) && agent.parts.brake.sentence().is_none());
    assert!(agent.offer().await["approval"].is_null());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // G10
async fn a_node_that_shrinks_over_days_needs_no_operator() {
    let world = node(20, 0);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    // Four VMs per round, each as usual; the reference view follows, and within two days the day is over.
    for round in 0..4u8 {
        for n in 1..=4 {
            let vm = format!("v{}", round * 4 + n);
            world.delete_vm(&vm);
            world.vmapi(&vm, "destroyed", CN);
        }
        sleep(50 * HOUR).await;
        assert_eq!(world.writes().len(), usize::from(round + 1) * 4);
        let vms = agent.parts.brake.reference().unwrap().len();
        assert_eq!(vms, usize::from(16 - round * 4), "{round}");
    }
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn brake_covers_witnessed_deletes() {
    let world = World::new();
    for n in 1..=20 {
        world.vm(&format!("v{n}"), "running", &[n], false);
        world.nic(n, &format!("v{n}"), json!({}));
    }
    let (agent, _) = world.start(json!({"vmapi": "none"}));
    sleep(HOUR).await;
    // Something tells of eight deletes at once: above five, so none goes.
    for n in 1..=8 {
        world.delete_vm(&format!("v{n}"));
    }
    sleep(3 * HOUR).await;
    assert!(world.writes().is_empty());
    assert!(agent.parts.brake.sentence().unwrap().contains("8 candidates"));
    let page = agent.offer().await;
    let id = page["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(agent.approve(&id, "root"), Ok(8));
    sleep(3 * MIN).await;
    assert_eq!(world.writes().len(), 8);
    sleep(10 * MIN).await;
    assert!(agent.parts.brake.sentence().is_none());
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn candidates_placed_elsewhere_count_for_the_brake() {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    // Seven candidates: three are other nodes' by VMAPI's word, and of four it knows nothing.
    for n in 2..=8 {
        world.nic(n, &format!("gone{n}"), json!({}));
        if n <= 4 {
            world.vmapi(&format!("gone{n}"), "running", crate::world::TARGET);
        }
    }
    let (agent, _) = world.start(json!({}));
    sleep(20 * HOUR).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    assert!(agent.parts.brake.sentence().unwrap().contains("7 candidates"));
    lawful(&world);
}
