// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a start does.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{CN, OTHER, World, object, uuid};
use crate::{HOUR, MIN, SEC, lawful};

#[tokio::test(start_paused = true)] // A1, A2, W1
async fn one_write_of_what_differs_follows_list_and_view() {
    let world = World::of(0..10);
    for n in [3, 7] {
        world.quietly(n, Some(&json!({"state": "stopped", "zone_state": "installed"})));
    }
    world.started(&json!({})).await;
    let asked = world.asked("");
    assert!(asked[0].line.starts_with("GET /vms?server_uuid="), "{asked:?}");
    assert!(asked[0].line.contains("state=active"));
    let batches = world.batches();
    assert_eq!((batches.len(), world.writes().len(), asked.len()), (1, 1, 2));
    assert_eq!(batches[0].line, format!("PUT /vms?server_uuid={CN}"));
    let vms = batches[0].body["vms"].as_object().unwrap();
    assert_eq!(vms.keys().collect::<Vec<_>>(), [&uuid(3), &uuid(7)]);
    let stopped = json!({"state": "stopped", "zone_state": "installed"});
    assert_eq!(vms[&uuid(3)], object(3, &stopped), "the whole object");
    assert!(world.hub.log().all().iter().any(|it| it.path == "/vms" && it.query == "sync=true"));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // A2, A11, W2
async fn nothing_differs_and_nothing_is_written() {
    let world = World::of(0..20);
    world.knows(4, &json!({"cpu_cap": null, "resolvers": null, "role_tags": ["r"], "tags": null}));
    world.quietly(5, Some(&json!({"alias": "", "tmpfs": 0})));
    world.knows(5, &json!({"alias": null, "tmpfs": 0}));
    // The same numbers and the same set of NICs.
    let nics = json!([{"mac": "f2:00:00:00:00:aa"}, {"mac": "f2:00:00:00:00:bb"}]);
    let turned = json!([{"mac": "f2:00:00:00:00:bb"}, {"mac": "f2:00:00:00:00:aa"}]);
    world.quietly(6, Some(&json!({"nics": nics, "quota": 10.0})));
    world.knows(6, &json!({"nics": turned}));
    // VMAPI shows max_physical_memory as ram, and stores disks and images by brand.
    world.quietly(7, Some(&json!({"ram": "ABSENT", "disks": [{"path": "/dev/x"}], "vcpus": 2})));
    world.quietly(8, Some(&json!({"brand": "bhyve", "image_uuid": uuid(1)})));
    world.knows(8, &json!({"brand": "bhyve", "image_uuid": "ABSENT"}));
    for _ in 0..3 {
        let (_, shutdown) = world.started(&json!({})).await;
        shutdown.trigger();
        sleep(MIN).await;
        world.cut();
    }
    assert_eq!(world.writes().len(), 0, "{:?}", world.writes());
    assert_eq!(world.asked("GET").len(), 3, "one list for each start");
}

#[tokio::test(start_paused = true)] // A3, W3, W21
async fn what_only_one_side_knows_is_told() {
    let world = World::of(0..5);
    world.knows(7, &json!({}));
    world.knows(8, &json!({"alias": "gone"}));
    world.quietly(9, Some(&json!({"alias": "new"})));
    world.started(&json!({})).await;
    assert!(world.puts(8).is_empty(), "it may have moved while the agent was away");
    // Another node says so.
    world.knows(7, &json!({"server_uuid": OTHER}));
    sleep(MIN).await;
    assert_eq!(world.stored(7)["state"], "running");
    let gone = &world.puts(8)[0].body;
    assert_eq!((&gone["state"], &gone["zone_state"]), (&json!("destroyed"), &json!("destroyed")));
    assert_eq!(
        (&gone["alias"], &gone["customer_metadata"]["secret"]),
        (&json!("gone"), &json!("s"))
    );
    assert!(world.stored(8)["destroyed"].is_string(), "stamped by VMAPI");
    assert_eq!(world.puts(9)[0].body, object(9, &json!({"alias": "new"})));
    assert_eq!(world.writes().len(), 2);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W4
async fn a_record_with_nothing_but_its_place_goes_first() {
    let world = World::of(0..3);
    for n in 0..3 {
        world.quietly(n, Some(&json!({"alias": "renamed"})));
    }
    let bare = json!({"uuid": uuid(2), "server_uuid": CN});
    world.vmapi.put(bare.as_object().unwrap().clone());
    world.started(&json!({})).await;
    let lines: Vec<String> = world.writes().into_iter().map(|put| put.line).collect();
    assert_eq!(lines, [format!("PUT /vms/{}", uuid(2)), format!("PUT /vms?server_uuid={CN}")]);
    let batch = &world.batches()[0].body["vms"];
    assert!(batch.get(uuid(2)).is_none() && batch.get(uuid(0)).is_some());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // H7, W5
async fn what_was_not_read_whole_is_left_out_and_told_on_its_own() {
    let world = World::of(0..4);
    for n in 0..4 {
        world.quietly(n, Some(&json!({"alias": "renamed"})));
    }
    world.quietly(3, Some(&json!({"alias": "renamed", "nics": "ABSENT"})));
    world.hub.incomplete(&[&uuid(1)]);
    let (agent, _) = world.started(&json!({})).await;
    let batch = world.batches()[0].body["vms"].clone();
    assert_eq!(batch.as_object().unwrap().keys().collect::<Vec<_>>(), [&uuid(0), &uuid(2)]);
    assert!(world.puts(1).is_empty() && world.puts(3).is_empty());
    assert_eq!(agent.status_json()["held"], 2);
    world.hub.incomplete(&[]);
    world.quietly(3, Some(&json!({"alias": "renamed"})));
    sleep(2 * MIN).await;
    assert_eq!((world.puts(1).len(), world.puts(3).len()), (1, 1));
    assert_eq!(agent.status_json()["held"], 0);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // A14, W6
async fn what_is_elsewhere_is_left_alone() {
    let world = World::of(0..4);
    // Stopped here and known elsewhere, and gone from here and known elsewhere.
    let newer = json!({"last_modified": "2026-02-01T00:00:00.000Z", "server_uuid": OTHER});
    world.quietly(1, Some(&json!({"state": "stopped", "zone_state": "installed", "alias": "x"})));
    world.knows(1, &newer);
    world.knows(9, &json!({"server_uuid": OTHER}));
    world.started(&json!({})).await;
    sleep(HOUR).await;
    assert_eq!(world.writes().len(), 0, "{:?}", world.writes());
}

#[tokio::test(start_paused = true)] // A12, W23, F139
async fn a_record_that_says_newer_is_corrected_by_a_reading_begun_after_it() {
    let world = World::of(0..4);
    let newer = json!({"last_modified": "2026-02-01T00:00:00.000Z", "alias": "newer"});
    world.knows(0, &newer);
    world.started(&json!({})).await;
    assert_eq!(world.stored(0)["alias"], "vm0", "at a start");
    // By an event; the VM has changed between the two readings.
    world.knows(1, &newer);
    world.forget();
    let stopped = json!({"state": "stopped", "zone_state": "installed"});
    let last = json!({"state": "stopped", "zone_state": "installed", "alias": "last"});
    let later = last.clone();
    world.state().after_reading = Some(Box::new(move |world: &World| {
        world.quietly(1, Some(&later));
    }));
    world.vm(1, &stopped);
    sleep(MIN).await;
    assert_eq!(world.puts(1).iter().map(|put| &put.body).collect::<Vec<_>>(), [&object(1, &last)]);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W24, F139
async fn a_record_from_the_future_is_an_alarm_and_no_reason_to_wait() {
    let world = World::of(0..4);
    let ahead = json!({"last_modified": "2999-01-01T00:00:00.000Z"});
    world.quietly(2, Some(&ahead));
    for n in [0, 2] {
        world.knows(n, &json!({"last_modified": "2999-01-01T00:00:00.000Z", "alias": "old"}));
    }
    let (agent, _) = world.started(&json!({})).await;
    assert_eq!([0, 2].map(|n| world.stored(n)["alias"].clone()), ["vm0", "vm2"]);
    let status = agent.status_json();
    assert_eq!(status["records_ahead"], json!([uuid(2)]), "one was corrected: {status:#}");
    assert_eq!(status["records_from_the_future"], 2, "{status:#}");
    world.vm(2, &json!({}));
    sleep(MIN).await;
    assert_eq!(agent.status_json()["records_ahead"], json!([]));
}

#[tokio::test(start_paused = true)] // W7, W20
async fn what_came_here_is_taken_over_from_another_node() {
    let world = World::of(0..3);
    world.started(&json!({})).await;
    world.knows(9, &json!({"server_uuid": OTHER}));
    let stopped = json!({"state": "stopped", "zone_state": "installed"});
    world.vm(9, &stopped);
    sleep(MIN / 2).await;
    assert_eq!((world.puts(9).len(), &world.stored(9)["server_uuid"]), (1, &json!(CN)));
    // What the other node sent before arrives after it.
    world.knows(9, &json!({"server_uuid": OTHER, "alias": "late"}));
    sleep(MIN).await;
    assert_eq!((world.puts(9).len(), &world.stored(9)["server_uuid"]), (2, &json!(CN)));
    // The other node has it again; this one has had its say.
    world.knows(9, &json!({"server_uuid": OTHER, "alias": "theirs"}));
    world.vm(9, &json!({"state": "stopped", "zone_state": "installed", "alias": "ours"}));
    sleep(MIN).await;
    assert_eq!(world.stored(9)["alias"], "theirs");
    // It runs here, and goes on to.
    world.vm(9, &json!({"alias": "ours"}));
    sleep(2 * MIN).await;
    assert_eq!(
        (&world.stored(9)["alias"], &world.stored(9)["server_uuid"]),
        (&json!("ours"), &json!(CN))
    );
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W7
async fn a_vm_that_also_runs_elsewhere_has_a_minute_to_be_hidden_here() {
    let world = World::of(0..3);
    world.started(&json!({})).await;
    world.knows(1, &json!({"server_uuid": OTHER}));
    // It was replaced while this node was cut off: its copy loses autoboot, is hidden, and stops.
    world.vm(1, &json!({"autoboot": false}));
    sleep(MIN / 2).await;
    let dying = json!({"autoboot": false, "do_not_inventory": true});
    world.vm(1, &dying);
    let mut dead = dying.clone();
    (dead["state"], dead["zone_state"]) = ("stopped".into(), "installed".into());
    world.vm(1, &dead);
    sleep(HOUR).await;
    assert!(world.puts(1).is_empty(), "{:?}", world.puts(1));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W36
async fn a_vm_that_may_have_been_replaced_is_not_taken_over_while_migration_agent_is_silent() {
    let world = World::of(0..3);
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("memory.json");
    std::fs::write(&file, json!({"open": {"m": {"vm": uuid(1)}}}).to_string()).unwrap();
    world.started(&json!({"migration_agent": {"state_dir": state.path()}})).await;
    for n in [1, 2] {
        world.knows(n, &json!({"server_uuid": OTHER}));
        world.vm(n, &json!({"alias": "ours"}));
    }
    sleep(HOUR).await;
    assert!(world.puts(1).is_empty(), "{:?}", world.puts(1));
    assert_eq!(world.stored(2)["server_uuid"], CN, "no migration has it");
    // The migration is over here, and the VM runs on.
    std::fs::remove_file(&file).unwrap();
    sleep(HOUR).await;
    assert_eq!(world.stored(1)["server_uuid"], CN);
    lawful(&world);
}

#[test] // W20, W4
fn what_a_start_tells_of_a_vm_that_came_here_is_looked_at_again() {
    let world = World::of(0..3);
    world.live_and_crash(MIN, |_| {});
    // It comes while the agent is away, and VMAPI has nothing but where it is.
    world.quietly(9, Some(&json!({})));
    world.vmapi.put(json!({"uuid": uuid(9), "server_uuid": CN}).as_object().unwrap().clone());
    world.live_and_crash(2 * MIN, |world| {
        assert_eq!(world.puts(9).len(), 1);
        world.knows(9, &json!({"server_uuid": OTHER, "state": "stopped"}));
    });
    assert_eq!(world.stored(9)["server_uuid"], CN);
    // A restart within the minute begins it anew.
    let world = World::of(0..3);
    world.live_and_crash(MIN, |_| {});
    let stopped = json!({"state": "stopped", "zone_state": "installed"});
    world.live_and_crash(SEC, |world| world.vm(9, &stopped));
    world.knows(9, &json!({"server_uuid": OTHER}));
    world.live_and_crash(SEC, |_| {});
    assert_eq!(world.stored(9)["server_uuid"], CN);
}

#[tokio::test(start_paused = true)] // A4, W16
async fn what_is_hidden_or_goes_while_a_start_writes_is_not_written() {
    for goes in [false, true] {
        let world = World::of(0..6);
        world.vmapi.put(json!({"uuid": uuid(1), "server_uuid": CN}).as_object().unwrap().clone());
        world.vmapi.put(json!({"uuid": uuid(2), "server_uuid": CN}).as_object().unwrap().clone());
        world.quietly(3, Some(&json!({"alias": "new"})));
        world.quietly(4, Some(&json!({"alias": "new"})));
        let slow = mocks::faults::Action::DelayCommit { ms: 1000 };
        let path = format!("/vms/{}", uuid(1));
        world.vmapi.faults().add(mocks::faults::Rule::new("PUT", &path, slow));
        world.start(&json!({}));
        while world.puts(1).is_empty() {
            sleep(SEC / 100).await;
        }
        for n in [2, 3] {
            world.vm(n, &json!({"do_not_inventory": true}));
            if goes {
                world.delete(n);
            }
        }
        sleep(MIN).await;
        assert!(world.puts(2).is_empty());
        let vms = world.batches()[0].body["vms"].as_object().unwrap().clone();
        assert_eq!(vms.keys().collect::<Vec<_>>(), [&uuid(4)]);
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // H5
async fn states_that_the_server_made_up_are_no_difference_and_never_put_back() {
    let world = World::of(0..4);
    world.knows(0, &json!({"state": "unknown"}));
    world.knows(1, &json!({"state": "rebooting", "alias": "old"}));
    world.knows(9, &json!({"state": "unknown"}));
    world.started(&json!({})).await;
    sleep(MIN).await;
    assert!(world.puts(0).is_empty());
    assert_eq!(world.batches()[0].body["vms"].as_object().unwrap().len(), 1);
    assert_eq!(world.stored(1)["state"], "running");
    assert_eq!(world.stored(9)["state"], "destroyed");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // A8, W8
async fn a_start_that_fails_is_repeated_with_fresh_data() {
    for away in [true, false] {
        let world = World::of(0..3);
        world.quietly(1, Some(&json!({"alias": "first"})));
        let fail = mocks::faults::Rule::new(
            "PUT",
            "/vms",
            mocks::faults::Action::Status {
                status: 503,
                retry_after: None,
                body: Some(
                    json!({"code": "ServiceUnavailableError", "message": "Workflow API is unavailable"}),
                ),
            },
        );
        if away {
            world.state().vmapi_away = true
        } else {
            world.vmapi.faults().add(fail)
        }
        let (agent, _) = world.start(&json!({}));
        sleep(5 * MIN).await;
        let tries: Vec<_> = world.asked(if away { "GET" } else { "PUT" });
        assert!((10..60).contains(&tries.len()), "{}", tries.len());
        assert!(tries.windows(2).all(|two| two[1].at - two[0].at <= 32 * SEC), "{tries:?}");
        assert!(!agent.status_json()["waiting_for"].as_array().unwrap().is_empty());
        world.quietly(1, Some(&json!({"alias": "last"})));
        world.state().vmapi_away = false;
        world.vmapi.faults().clear();
        sleep(MIN).await;
        assert_eq!(world.stored(1)["alias"], "last");
        assert_eq!(agent.status_json()["waiting_for"], json!([]));
    }
}

#[tokio::test(start_paused = true)] // W9
async fn a_record_that_vmapi_refuses_stops_no_other() {
    let world = World::of(0..5);
    for n in 0..5 {
        world.quietly(n, Some(&json!({"alias": "renamed"})));
    }
    let fail = |path: &str| {
        let body = Some(json!({"message": "no such index"}));
        mocks::faults::Rule::new(
            "PUT",
            path,
            mocks::faults::Action::Status { status: 500, body, retry_after: None },
        )
    };
    world.vmapi.faults().add(fail("/vms"));
    world.vmapi.faults().add(fail(&format!("/vms/{}", uuid(2))));
    // One that goes first is no better.
    let bare = json!({"uuid": uuid(2), "server_uuid": CN});
    world.vmapi.put(bare.as_object().unwrap().clone());
    let (agent, _) = world.started(&json!({})).await;
    sleep(MIN).await;
    for n in [0, 1, 3, 4] {
        assert_eq!(world.stored(n)["alias"], "renamed");
    }
    assert_eq!((world.batches().len(), &agent.status_json()["held"]), (1, &json!(1)));
    world.vmapi.faults().clear();
    sleep(MIN).await;
    assert_eq!(world.stored(2)["alias"], "renamed");
}

#[tokio::test(start_paused = true)] // W10
async fn it_writes_nothing_for_another_node_nor_in_report_mode() {
    let world = World::of(0..3);
    world.quietly(1, Some(&json!({"alias": "renamed"})));
    world.hub.set_sysinfo(json!({"UUID": OTHER}));
    let (agent, shutdown) = world.start(&json!({}));
    sleep(HOUR).await;
    assert!(world.asked("").is_empty());
    assert!(agent.status_json()["mute"].as_str().unwrap().contains(OTHER));
    shutdown.trigger();
    world.hub.set_sysinfo(json!({"UUID": CN}));
    let (agent, _) = world.started(&json!({"mode": "report"})).await;
    world.vm(2, &json!({"alias": "renamed"}));
    world.delete(0);
    sleep(HOUR).await;
    assert!(
        world.writes().is_empty() && agent.status_json()["writes_reported"].as_u64() >= Some(3)
    );
    // The feature flag of the shipped file.
    let world = World::of(0..3);
    world.quietly(1, Some(&json!({"alias": "renamed"})));
    world.start(&json!({"no_rabbit": false}));
    sleep(HOUR).await;
    assert!(world.asked("").is_empty());
}

#[tokio::test(start_paused = true)] // W11
async fn first_lists_are_spread_over_ten_minutes() {
    let mut at = Vec::new();
    for seed in 0..200 {
        let world = World::of([1]);
        let delay: Value = json!({"startup_delay": "ABSENT", "seed": seed});
        let started = tokio::time::Instant::now();
        let (_, shutdown) = world.start(&delay);
        while world.asked("GET").is_empty() {
            sleep(SEC).await;
        }
        at.push(started.elapsed().as_secs_f64());
        shutdown.trigger();
    }
    let mean = at.iter().sum::<f64>() / 200.0;
    assert!(at.iter().all(|at| *at <= 605.0) && (270.0..330.0).contains(&mean), "{mean}");
    for bucket in 0..5 {
        let bounds = f64::from(bucket) * 120.0..f64::from(bucket + 1) * 120.0;
        let n = at.iter().filter(|at| bounds.contains(at)).count();
        assert!((22..=60).contains(&n), "{bucket}: {n}");
    }
}

#[tokio::test(start_paused = true)] // W19
async fn a_slow_view_holds_no_event_up_and_overwrites_none() {
    let world = World::of(0..5);
    for n in 0..5 {
        world.quietly(n, Some(&json!({"alias": "before"})));
    }
    world.state().view_takes = 100 * SEC;
    world.start(&json!({}));
    sleep(10 * SEC).await;
    world.vm(2, &json!({"alias": "after"}));
    sleep(SEC).await;
    assert_eq!(world.stored(2)["alias"], "after");
    sleep(5 * MIN).await;
    let batch = world.batches()[0].body["vms"].clone();
    assert_eq!(batch.as_object().unwrap().len(), 4, "without the one that is newer");
    assert_eq!(
        (&world.stored(2)["alias"], &world.stored(1)["alias"]),
        (&json!("after"), &json!("before"))
    );
    assert_eq!(world.batches().len(), 1);
}

#[tokio::test(start_paused = true)] // A15, H6
async fn more_than_a_page_of_vms_is_compared() {
    let world = World::of(0..2300);
    for n in [0, 999, 1000, 2299] {
        world.quietly(n, Some(&json!({"alias": "renamed"})));
    }
    world.started(&json!({})).await;
    assert_eq!((world.asked("GET").len(), world.writes().len()), (3, 1));
    let batch = world.batches()[0].body["vms"].clone();
    let named = [0, 999, 1000, 2299].map(uuid);
    assert_eq!(batch.as_object().unwrap().keys().collect::<Vec<_>>(), named.each_ref());
}

#[tokio::test(start_paused = true)] // W13
async fn a_request_that_hangs_holds_no_other_vm_up_while_the_list_is_compared_again() {
    let world = World::of(0..5);
    // The second comparison is 30 to 51 s after the start.
    world.started(&json!({"relist": "40s"})).await;
    let hang = mocks::faults::Action::Hang { ms: 600_000 };
    let rule = mocks::faults::Rule::new("GET", format!("/vms/{}", uuid(2)).as_str(), hang);
    world.vmapi.faults().add(rule.times(1));
    world.vm(2, &json!({"alias": "waits"}));
    sleep(22 * SEC).await;
    assert_eq!(world.asked("GET /vms?").len(), 2, "compared again");
    world.vm(3, &json!({"alias": "goes on"}));
    sleep(5 * SEC).await;
    assert_eq!(world.stored(3)["alias"], "goes on");
    assert_eq!(world.stored(2)["alias"], "vm2", "its request hangs");
    sleep(MIN).await;
    assert_eq!(world.stored(2)["alias"], "waits");
    lawful(&world);
}
