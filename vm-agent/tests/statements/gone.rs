// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is reported destroyed, and what never.

use std::time::Duration;

use mocks::faults::{Action, Rule};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, OTHER, World, object, shown, uuid};
use crate::{HOUR, MIN, SEC, lawful};

#[tokio::test(start_paused = true)] // A6
async fn a_deleted_vm_is_reported_as_it_was_seen_last() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    let seen = json!({"alias": "seen", "last_modified": "2026-01-03T00:00:00.000Z"});
    // VMAPI is away while it changes.
    world.state().vmapi_away = true;
    world.vm(2, &seen);
    sleep(MIN).await;
    world.delete(2);
    world.state().vmapi_away = false;
    sleep(2 * MIN).await;
    let put = world.puts(2).last().unwrap().body.clone();
    let mut want = object(2, &seen);
    (want["state"], want["zone_state"]) = (json!("destroyed"), json!("destroyed"));
    let fields = want.as_object().unwrap();
    assert!(fields.iter().all(|(key, value)| put[key] == *value), "{put:#}");
    // One that VMAPI never knew, and one that was never seen.
    world.vm(30, &json!({"do_not_inventory": true}));
    world.delete(30);
    world.delete(31);
    sleep(MIN).await;
    assert!(world.naming(30).is_empty() && world.naming(31).is_empty());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W18
async fn what_a_vm_lost_before_it_went_stays_in_its_record() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.vm(2, &json!({"alias": "last", "quota": "ABSENT", "zfs_filesystem": "ABSENT"}));
    world.delete(2);
    sleep(MIN).await;
    let stored = world.stored(2);
    assert_eq!((&stored["state"], &stored["alias"]), (&json!("destroyed"), &json!("last")));
    assert_eq!((&stored["quota"], stored["zfs_filesystem"].is_string()), (&json!(10), true));
}

#[tokio::test(start_paused = true)] // H3, A14
async fn a_vm_that_moved_or_is_known_to_be_over_is_not_reported() {
    for record in [
        json!({"server_uuid": OTHER}),
        json!({"state": "destroyed"}),
        json!({"state": "failed"}),
        json!({"server_uuid": ""}),
    ] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        world.knows(2, &record);
        world.delete(2);
        sleep(HOUR).await;
        assert!(world.puts(2).is_empty(), "{record}");
    }
}

#[tokio::test(start_paused = true)] // H1
async fn a_vm_that_is_being_provisioned_here_is_left_alone_for_two_hours() {
    let world = World::of(0..5);
    let young = (daemon::wall::now() - jiff::SignedDuration::from_mins(90)).to_string();
    world.knows(9, &json!({"state": "provisioning", "create_timestamp": young}));
    world.knows(
        10,
        &json!({"state": "provisioning", "create_timestamp": "2020-01-01T00:00:00.000Z"}),
    );
    world.knows(11, &json!({"state": "provisioning", "create_timestamp": null}));
    let (agent, _) = world.started(&json!({})).await;
    sleep(MIN).await;
    assert!(world.puts(9).is_empty() && world.puts(11).is_empty());
    assert_eq!(world.stored(10)["state"], "destroyed");
    assert_eq!(agent.status_json()["held"], 2);
    // It arrives.
    world.vm(9, &json!({}));
    sleep(MIN).await;
    assert_eq!(world.stored(9)["state"], "running");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // H4, A13, W14
async fn a_view_that_is_empty_halved_or_failing_reports_nobody() {
    let all = || (0..10).map(|n| (uuid(n), shown(n, &json!({}))));
    type Wrap<'a> = (&'a str, Box<dyn Fn(&World)>);
    let wraps: [Wrap<'_>; 8] = [
        ("empty", Box::new(|world| world.hub.lie(Some([].into())))),
        ("halved", Box::new(move |world| world.hub.lie(Some(all().take(4).collect())))),
        (
            "six of ten, two of them as they were earlier",
            Box::new(move |world| {
                world.hub.lie(Some(all().take(6).collect()));
                world.hub.incomplete(&[&uuid(0), &uuid(1)]);
            }),
        ),
        ("failing", Box::new(move |world| world.breaks("/vms", 500, "zoneadm"))),
        ("garbage", Box::new(move |world| world.breaks("/vms", 200, "[{"))),
        ("null", Box::new(move |world| world.breaks("/vms", 200, "null"))),
        (
            "incomplete",
            Box::new(|world| {
                world.hub.lie(Some([].into()));
                world.hub.incomplete(&["*"]);
            }),
        ),
        (
            "another's 404",
            Box::new(|world| {
                world.hub.lie(Some([].into()));
                world.breaks("/vms/*", 404, "<html>not found</html>");
            }),
        ),
    ];
    for (name, wrap) in &wraps {
        for is_start in [true, false] {
            let world = World::of(0..10);
            if is_start {
                wrap(&world);
                world.start(&json!({}));
            } else {
                world.started(&json!({})).await;
                wrap(&world);
                world.cut();
            }
            sleep(3 * HOUR).await;
            assert!(world.writes().is_empty(), "{name} at start {is_start}: {:?}", world.writes());
            // The truth is back.
            world.hub.lie(None);
            world.hub.faults().clear();
            world.hub.incomplete(&[]);
            world.cut();
            sleep(HOUR).await;
            assert!(world.writes().is_empty(), "{name} at start {is_start}: {:?}", world.writes());
        }
    }
}

#[tokio::test(start_paused = true)] // W14
async fn vmapis_word_lifts_no_brake() {
    let few = || (0..3).map(|n| (uuid(n), shown(n, &json!({})))).collect();
    for is_restart in [false, true] {
        let world = World::of(0..7);
        let (_, shutdown) = world.started(&json!({})).await;
        // The list lacks at once what the stream tells one by one.
        world.hub.lie(Some(few()));
        world.delete(3);
        sleep(MIN).await;
        (4..7).for_each(|n| world.delete(n));
        if is_restart {
            sleep(MIN).await;
            shutdown.trigger();
            sleep(MIN).await;
        }
        // Somebody asked VMAPI, and VMAPI asked this node.
        [3, 4, 5].iter().for_each(|n| world.knows(*n, &json!({"state": "destroyed"})));
        if is_restart {
            world.started(&json!({})).await;
        }
        sleep(3 * HOUR).await;
        assert!(world.writes().is_empty(), "restart {is_restart}: {:?}", world.writes());
        // They are back.
        world.hub.lie(None);
        (3..7).for_each(|n| world.vm(n, &json!({})));
        sleep(MIN).await;
        assert!((0..7).all(|n| world.stored(n)["state"] == "running"));
        // One of them goes, and nothing blocks it.
        world.delete(5);
        sleep(MIN).await;
        assert_eq!(world.stored(5)["state"], "destroyed", "restart {is_restart}");
    }
}

#[tokio::test(start_paused = true)] // W14
async fn hidden_vms_that_leave_with_others_count() {
    let world = World::of(0..6);
    world.started(&json!({})).await;
    (0..4).for_each(|n| world.vm(n, &json!({"do_not_inventory": true})));
    sleep(MIN).await;
    world.forget();
    (0..5).for_each(|n| world.delete(n));
    sleep(3 * HOUR).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
}

#[tokio::test(start_paused = true)] // H4, W14
async fn many_that_leave_at_once_are_looked_at_twice() {
    let world = World::of(0..20);
    world.started(&json!({})).await;
    world.forget();
    (0..6).for_each(|n| world.delete(n));
    sleep(50 * SEC).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    // One is back.
    world.vm(3, &json!({}));
    sleep(3 * MIN).await;
    for n in [0, 1, 2, 4, 5] {
        assert_eq!(world.stored(n)["state"], "destroyed", "{n}");
    }
    assert_eq!(world.stored(3)["state"], "running");
    // One after another they are reported at once, as long as half are left.
    for n in 6..11 {
        world.delete(n);
        sleep(2 * SEC).await;
        assert_eq!(world.stored(n)["state"], "destroyed", "{n}");
    }
}

#[tokio::test(start_paused = true)] // W15
async fn the_operator_approves_what_the_brake_blocks() {
    let world = World::of(0..10);
    let (agent, _) = world.started(&json!({})).await;
    (0..8).for_each(|n| world.delete(n));
    sleep(HOUR).await;
    assert!(world.writes().is_empty());
    let status = agent.status_json();
    assert!(status["brake"].as_str().unwrap().contains("fewer than half"), "{status:#}");
    assert!(agent.parts.approve("nonsense", "root").is_err());
    let plan = agent.offer();
    assert_eq!(plan["approval"]["vms"].as_array().unwrap().len(), 8, "{plan:#}");
    assert_eq!(agent.parts.approve(plan["approval"]["id"].as_str().unwrap(), "root"), Ok(8));
    sleep(MIN).await;
    assert!((0..8).all(|n| world.stored(n)["state"] == "destroyed"));
    assert!(agent.status_json()["brake"].is_null());
    assert_eq!(world.stored(8)["state"], "running");
}

#[tokio::test(start_paused = true)] // W16
async fn what_comes_back_or_is_hidden_between_reading_and_writing_is_not_reported() {
    for hidden in [false, true] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        world.state().after_reading = Some(Box::new(move |world: &World| {
            world.vm(2, &json!({"do_not_inventory": hidden}));
        }));
        world.delete(2);
        sleep(MIN).await;
        assert!(world.puts(2).is_empty(), "{:?}", world.puts(2));
        assert_eq!(world.stored(2)["state"], "running");
    }
    // The other way round: it is hidden after it was read, and may be gone by then.
    for goes in [false, true] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        world.forget();
        world.state().after_reading = Some(Box::new(move |world: &World| {
            world.vm(2, &json!({"do_not_inventory": true}));
            if goes {
                world.delete(2);
            }
        }));
        world.vm(2, &json!({"alias": "new"}));
        sleep(MIN).await;
        assert!(world.puts(2).is_empty(), "{:?}", world.puts(2));
    }
}

#[test] // W17
fn a_restart_reports_what_went_meanwhile_and_nothing_else() {
    let world = World::of(0..10);
    world.live_and_crash(MIN, |world| world.vm(4, &json!({"alias": "renamed"})));
    world.quietly(3, None);
    world.live_and_crash(MIN, |world| assert!(world.writes().is_empty()));
    assert_eq!(world.stored(3)["state"], "destroyed");
    world.live_and_crash(MIN, |world| assert!(world.writes().is_empty()));
}

#[tokio::test(start_paused = true)] // W17
async fn after_a_damaged_state_file_nobody_is_reported_for_five_minutes() {
    let damages: [&dyn Fn(&std::path::Path); 4] = [
        &|file| std::fs::write(file, "{").unwrap(),
        // Of a later version, and of another node.
        &|file| replace(file, "\"version\": 1", "\"version\": 2"),
        &|file| replace(file, CN, OTHER),
        // As a disk that gives nothing back.
        &|file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
    ];
    for (nth, damage) in damages.iter().enumerate() {
        let world = World::of(0..10);
        let (_, shutdown) = world.started(&json!({})).await;
        shutdown.trigger();
        sleep(MIN).await;
        damage(&world.config(&json!({})).basics.places.state_dir.join("memory.json"));
        world.cut();
        world.forget();
        world.quietly(3, None);
        let (agent, _) = world.started(&json!({})).await;
        sleep(4 * MIN).await;
        assert!(world.writes().is_empty(), "{nth}: {:?}", world.writes());
        assert!(!agent.status_json()["memory"].is_null(), "{nth}");
        sleep(3 * MIN).await;
        assert_eq!(world.stored(3)["state"], "destroyed", "{nth}");
    }
}

fn replace(file: &std::path::Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

#[tokio::test(start_paused = true)] // W27, F141
async fn vms_that_moved_away_leave_the_brake() {
    for (is_hidden, record, is_told) in [
        (false, json!({"server_uuid": OTHER}), true),
        (true, json!({"server_uuid": OTHER}), true),
        (true, json!({"server_uuid": OTHER, "state": "destroyed"}), true),
        (true, json!({"state": "destroyed"}), false),
        (false, json!({"server_uuid": OTHER, "state": "failed"}), false),
        (false, json!({"server_uuid": ""}), false),
        (true, json!({}), false),
    ] {
        let world = World::of(0..7);
        let (_, shutdown) = world.started(&json!({})).await;
        if is_hidden {
            (2..7).for_each(|n| world.vm(n, &json!({"do_not_inventory": true})));
            sleep(MIN).await;
            (2..7).for_each(|n| world.delete(n));
        } else {
            shutdown.trigger();
            sleep(MIN).await;
            (2..7).for_each(|n| world.quietly(n, None));
            world.cut();
        }
        (2..7).for_each(|n| world.knows(n, &record));
        let (agent, _) = if is_hidden {
            sleep(6 * MIN).await;
            shutdown.trigger();
            sleep(MIN).await;
            world.cut();
            world.started(&json!({})).await
        } else {
            world.started(&json!({})).await
        };
        world.forget();
        world.delete(0);
        sleep(30 * MIN).await;
        let told = world.stored(0)["state"] == "destroyed";
        let status = agent.status_json();
        assert_eq!(told, is_told, "{is_hidden} {record}: {status:#}");
        assert_eq!(status["brake"].is_null(), is_told, "{status:#}");
        let waits = status["waiting_for"].to_string();
        assert_eq!(waits.contains("fewer than half"), !is_told, "{waits}");
        (2..7).for_each(|n| assert!(world.puts(n).is_empty(), "{record}"));
    }
}

#[tokio::test(start_paused = true)] // W27, F141
async fn an_evacuated_node_whose_copies_go_at_once_reports_its_next_departure() {
    let world = World::of(0..7);
    let (agent, _) = world.started(&json!({})).await;
    (2..7).for_each(|n| world.vm(n, &json!({"do_not_inventory": true})));
    sleep(5 * MIN).await;
    (2..7).for_each(|n| world.knows(n, &json!({"server_uuid": OTHER})));
    // All migrations are finalized.
    (2..7).for_each(|n| world.delete(n));
    sleep(HOUR).await;
    world.delete(0);
    sleep(5 * MIN).await;
    assert_eq!(world.stored(0)["state"], "destroyed", "{:#}", agent.status_json());
    assert!(agent.status_json()["brake"].is_null());
    (2..7).for_each(|n| assert!(world.puts(n).is_empty()));
}

#[tokio::test(start_paused = true)] // W14, H1
async fn a_vm_that_is_to_come_has_not_left() {
    let world = World::of(0..2);
    let young = jiff::Timestamp::now().to_string();
    for n in 2..6 {
        world.knows(n, &json!({"state": "provisioning", "create_timestamp": young}));
    }
    let (agent, _) = world.started(&json!({})).await;
    world.delete(0);
    sleep(MIN).await;
    let status = agent.status_json();
    assert_eq!(world.stored(0)["state"], "destroyed", "{}", status["brake"]);
    assert!((2..6).all(|n| world.puts(n).is_empty()));
}

#[tokio::test(start_paused = true)] // W31, W27
async fn what_left_in_the_last_day_counts_together() {
    // Half go in a day, one by one, and those that moved away besides.
    for (moves, is_told) in [(0, false), (3, true)] {
        let world = World::of(0..20);
        let (agent, _) = world.started(&json!({})).await;
        for n in 0..10 {
            world.delete(n);
            sleep(HOUR).await;
            assert_eq!(world.stored(n)["state"], "destroyed", "{n}");
        }
        for n in 0..moves {
            world.knows(n, &json!({"server_uuid": OTHER}));
        }
        world.delete(10);
        sleep(HOUR).await;
        let status = agent.status_json();
        assert_eq!(world.stored(10)["state"] == "destroyed", is_told, "{moves}: {status:#}");
        assert_eq!(status["brake"].is_null(), is_told, "{status:#}");
        // A day is over, and the brake that is on stays on.
        sleep(50 * HOUR).await;
        assert_eq!(world.stored(10)["state"] == "destroyed", is_told, "{moves}");
        if !is_told {
            let id = agent.offer()["approval"]["id"].as_str().unwrap().to_owned();
            agent.parts.approve(&id, "root").unwrap();
            sleep(MIN).await;
            assert_eq!(world.stored(10)["state"], "destroyed");
            world.delete(11);
            sleep(HOUR).await;
            assert_eq!(
                world.stored(11)["state"],
                "destroyed",
                "the operator took the node as it is"
            );
        }
    }
}

#[test] // W28, F142
fn vms_that_this_agent_never_saw_have_a_limit_of_two_a_day() {
    let gone = |world: &World| {
        (20..30).filter(|n| world.stored(*n)["state"] == "destroyed").collect::<Vec<_>>()
    };
    let world = World::of(0..10);
    // VMAPI has three more here: a first run on a second machine of this uuid.
    (20..23).for_each(|n| world.knows(n, &json!({})));
    world.live_and_crash(2 * HOUR, |_| {});
    assert_eq!(gone(&world), [0; 0]);
    world.live_and_crash(2 * HOUR, |_| {});
    assert_eq!(gone(&world), [0; 0], "after a restart");
    // One of them shows up elsewhere: two are few enough, but no more on this day.
    world.knows(22, &json!({"server_uuid": OTHER}));
    world.live_and_crash(2 * HOUR, |_| {});
    assert_eq!(gone(&world), [20, 21]);
    world.knows(23, &json!({}));
    world.live_and_crash(2 * HOUR, |_| {});
    assert_eq!(gone(&world), [20, 21]);
    // VMs that it saw are not theirs.
    world.quietly(9, None);
    world.live_and_crash(5 * MIN, |_| {});
    assert_eq!((gone(&world), &world.stored(9)["state"]), (vec![20, 21], &json!("destroyed")));
}

#[test] // W28, F142
fn vms_that_vmapi_did_not_know_for_a_while_are_still_those_that_this_agent_saw() {
    let world = World::of(0..10);
    world.live_and_crash(5 * MIN, |_| {});
    let body = Some(json!({"code": "ResourceNotFound", "message": "VM not found"}));
    let missing = Action::Status { status: 404, body, retry_after: None };
    world.vmapi.faults().add(Rule::new("GET", "/vms/*", missing));
    world.live_and_crash(2 * HOUR, |world| (6..10).for_each(|n| world.delete(n)));
    world.vmapi.faults().clear();
    world.live_and_crash(2 * HOUR, |_| {});
    let left: Vec<u32> = (6..10).filter(|n| world.stored(*n)["state"] != "destroyed").collect();
    assert_eq!(left, [0; 0]);
}

#[tokio::test(start_paused = true)] // W15, W28
async fn the_operator_approves_vms_that_this_agent_never_saw() {
    let world = World::of(0..10);
    (20..25).for_each(|n| world.knows(n, &json!({})));
    let (agent, _) = world.started(&json!({})).await;
    sleep(HOUR).await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    let status = agent.status_json();
    assert!(status["brake"].as_str().unwrap().contains("never seen"), "{status:#}");
    let plan = agent.offer();
    assert_eq!(agent.parts.approve(plan["approval"]["id"].as_str().unwrap(), "root"), Ok(5));
    sleep(MIN).await;
    assert!((20..25).all(|n| world.stored(n)["state"] == "destroyed"));
}

#[tokio::test(start_paused = true)] // W35
async fn one_that_nobody_saw_go_is_looked_at_again_and_its_dataset_holds_it() {
    let is_told = |world: &World| world.stored(2)["state"] == "destroyed";
    // Whether row and XML were seen to go, whether the dataset is left, and when VMAPI is told.
    for (is_seen, is_left, told) in [
        (true, false, 5 * SEC),
        (true, true, 5 * SEC),
        (false, false, 2 * MIN),
        (false, true, Duration::MAX),
    ] {
        let world = World::of(0..5);
        let (agent, _) = world.started(&json!({})).await;
        sleep(MIN).await;
        world.hub.dataset(&uuid(2), is_left);
        if is_seen {
            world.hub.remove(&uuid(2))
        } else {
            world.hub.lose(&uuid(2))
        }
        sleep(5 * SEC).await;
        assert_eq!(is_told(&world), told == 5 * SEC, "{is_seen} {is_left}");
        sleep(2 * MIN).await;
        assert_eq!(is_told(&world), told <= 2 * MIN, "{is_seen} {is_left}");
        sleep(HOUR).await;
        if told == Duration::MAX {
            assert!(!is_told(&world));
            let waits = agent.status_json()["waiting_for"].to_string();
            // The reader has not proved that the dataset is nobody's.
            assert!(waits.contains(&format!("see vminfod why {}", uuid(2))), "{waits}");
            assert!(!waits.contains("zfs"), "{waits}");
            world.hub.dataset(&uuid(2), false);
            sleep(5 * MIN).await;
            assert!(is_told(&world));
        }
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // W35
async fn one_that_is_back_within_the_second_look_is_not_reported() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    sleep(MIN).await;
    for _ in 0..3 {
        world.hub.lose(&uuid(2));
        sleep(10 * SEC).await;
        world.vm(2, &json!({}));
        sleep(2 * MIN).await;
    }
    assert!(world.puts(2).iter().all(|put| put.body["state"] != "destroyed"));
}
