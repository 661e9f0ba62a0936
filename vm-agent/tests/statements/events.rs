// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a change of the node leads to.

use std::time::Duration;

use mocks::faults::{Action, Rule};
use serde_json::json;
use tokio::time::sleep;

use crate::world::{OTHER, World, object, uuid};
use crate::{HOUR, MIN, SEC, lawful};

#[tokio::test(start_paused = true)] // A7, W12
async fn a_burst_of_changes_is_a_few_writes_with_the_last_state() {
    let world = World::of(0..5);
    let (agent, _) = world.started(&json!({})).await;
    for n in 0..100 {
        world.vm(2, &json!({"alias": format!("a{n}")}));
        if n % 10 == 0 {
            sleep(SEC / 1000).await;
        }
    }
    sleep(MIN).await;
    let puts = world.puts(2);
    assert!((1..=8).contains(&puts.len()), "{}", puts.len());
    assert_eq!(puts.last().unwrap().body, object(2, &json!({"alias": "a99"})));
    // One that changes nothing VMAPI stores.
    world.forget();
    world.vm(2, &json!({"alias": "a99", "zoneid": 100}));
    sleep(MIN).await;
    assert_eq!((world.writes().len(), world.asked("GET").len()), (0, 1));
    assert_eq!(agent.status_json()["queue"], 0);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W12
async fn a_change_is_told_within_its_reading_and_a_little() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.forget();
    let began = world.asked("").len();
    let before = tokio::time::Instant::now();
    world.vm(2, &json!({"alias": "new"}));
    while world.puts(2).is_empty() {
        sleep(SEC / 1000).await;
    }
    assert!(before.elapsed() <= SEC / 50, "{:?}", before.elapsed());
    assert_eq!((began, world.asked("").len()), (0, 2), "one read, one write");
}

#[tokio::test(start_paused = true)] // A8
async fn a_write_that_fails_is_repeated_with_a_fresh_object() {
    for status in [503, 500, 0] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        world.forget();
        let action = match status {
            0 => Action::DropResponse,
            status => {
                Action::Status { status, body: Some(json!({"message": "away"})), retry_after: None }
            }
        };
        world.vmapi.faults().add(Rule::new("PUT", "/vms/*", action));
        world.vm(2, &json!({"alias": "first"}));
        sleep(10 * MIN).await;
        let puts = world.puts(2);
        let gaps: Vec<_> = puts.windows(2).map(|two| two[1].at - two[0].at).collect();
        if status != 0 {
            assert!((15..60).contains(&puts.len()), "{status}: {}", puts.len());
            assert!(gaps[0] <= SEC && gaps.iter().all(|gap| *gap <= 39 * SEC), "{gaps:?}");
            assert!(gaps.iter().any(|gap| *gap > 10 * SEC), "{gaps:?}");
        }
        world.vm(2, &json!({"alias": "last"}));
        world.vmapi.faults().clear();
        sleep(MIN).await;
        assert_eq!(world.stored(2)["alias"], "last", "{status}");
        let n = world.writes().len();
        sleep(HOUR).await;
        assert_eq!(world.writes().len(), n, "settled");
    }
}

#[tokio::test(start_paused = true)] // W22
async fn a_write_that_is_carried_out_late_does_not_stay() {
    for is_deleted in [false, true] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        // Longer than anybody waits for the answer.
        let late = Rule::new("PUT", "/vms/*", Action::Hang { ms: 45_000 });
        world.vmapi.faults().add(late.times(1));
        world.vm(2, &json!({"alias": "first"}));
        sleep(35 * SEC).await;
        let last = if is_deleted {
            world.delete(2);
            json!("destroyed")
        } else {
            world.vm(2, &json!({"alias": "last"}));
            json!("running")
        };
        sleep(5 * SEC).await;
        let shown =
            |world: &World| (world.stored(2)["alias"].clone(), world.stored(2)["state"].clone());
        assert_eq!(shown(&world).1, last);
        let before = shown(&world);
        sleep(10 * SEC).await;
        assert_eq!(shown(&world), (json!("first"), json!("running")), "the late one has won");
        sleep(3 * MIN).await;
        assert_eq!(shown(&world), before);
    }
}

#[tokio::test(start_paused = true)] // W22, F140
async fn a_write_without_an_answer_is_looked_at_for_half_an_hour() {
    for (ms, corrected) in [(100_000, 6 * MIN), (20 * 60_000, 31 * MIN)] {
        let world = World::of(0..5);
        world.started(&json!({})).await;
        world.vmapi.faults().add(Rule::new("PUT", "/vms/*", Action::Hang { ms }).times(1));
        world.vm(2, &json!({"alias": "first"}));
        sleep(35 * SEC).await;
        world.vm(2, &json!({"alias": "last"}));
        sleep(5 * SEC).await;
        assert_eq!(world.stored(2)["alias"], "last");
        sleep(Duration::from_millis(ms)).await;
        assert_eq!(world.stored(2)["alias"], "first", "the late one has won");
        sleep(corrected.saturating_sub(Duration::from_millis(ms))).await;
        assert_eq!(world.stored(2)["alias"], "last", "{ms} ms late");
        let asked = world.asked("").len();
        sleep(2 * HOUR).await;
        assert_eq!(world.asked("").len(), asked + usize::from(ms == 100_000), "it ends");
    }
}

#[tokio::test(start_paused = true)] // W25, F140
async fn a_state_of_milliseconds_is_not_told_unless_it_lasts() {
    let world = World::of(0..5);
    world.started(&json!({})).await;
    world.forget();
    // A reboot, in steps.
    for state in ["shutting_down", "down", "ready"] {
        world.vm(2, &json!({"state": state, "zone_state": state}));
        sleep(SEC / 4).await;
    }
    world.vm(2, &json!({"alias": "rebooted"}));
    sleep(MIN).await;
    let told: Vec<_> = world.puts(2).into_iter().map(|put| put.body["state"].clone()).collect();
    assert_eq!(told, ["running"]);
    // One that stays as it is.
    world.vm(3, &json!({"state": "down", "zone_state": "down"}));
    sleep(SEC / 2).await;
    assert!(world.puts(3).is_empty());
    sleep(SEC).await;
    assert_eq!(world.stored(3)["state"], "down");
}

#[tokio::test(start_paused = true)] // W26, F140
async fn one_404_of_vmapi_settles_nothing() {
    let world = World::of(0..5);
    let stopped = json!({"state": "stopped", "zone_state": "installed"});
    world.quietly(3, Some(&stopped));
    world.knows(3, &stopped);
    world.started(&json!({})).await;
    let missing = || Action::Status {
        status: 404,
        body: Some(json!({"code": "ResourceNotFound", "message": "VM not found"})),
        retry_after: None,
    };
    world.vmapi.faults().add(Rule::new("GET", "/vms/*", missing()).times(1));
    world.delete(2);
    sleep(2 * MIN).await;
    assert_eq!(world.stored(2)["state"], "destroyed");
    // It is elsewhere by now, and the one 404 would hide that.
    world.knows(3, &json!({"server_uuid": OTHER}));
    world.vmapi.faults().add(Rule::new("GET", "/vms/*", missing()).times(1));
    world.vm(3, &json!({"state": "stopped", "zone_state": "installed", "alias": "x"}));
    sleep(2 * MIN).await;
    assert!(world.puts(3).is_empty(), "{:?}", world.puts(3));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // A9
async fn what_happened_while_the_stream_was_away_is_told() {
    let world = World::of(0..9);
    let (agent, _) = world.started(&json!({})).await;
    world.hub.stop();
    sleep(MIN).await;
    world.quietly(1, Some(&json!({"alias": "changed"})));
    world.quietly(20, Some(&json!({"alias": "came"})));
    world.quietly(3, None);
    assert!(agent.status_json()["mute"].as_str().unwrap().contains("waiting for vminfod"));
    sleep(MIN).await;
    assert!(world.writes().is_empty());
    world.hub.restart();
    sleep(MIN).await;
    assert_eq!(
        (world.stored(1)["alias"].clone(), world.stored(20)["alias"].clone()),
        (json!("changed"), json!("came"))
    );
    // Nobody saw it go: it has a second look.
    sleep(2 * MIN).await;
    assert_eq!(world.stored(3)["state"], "destroyed");
    assert_eq!(world.writes().len(), 3);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // W13
async fn a_vm_that_cannot_be_read_holds_no_other_up() {
    let world = World::of(0..9);
    world.started(&json!({})).await;
    world.hub.incomplete(&[&uuid(0)]);
    world.vm(0, &json!({"alias": "unread"}));
    sleep(SEC).await;
    world.vm(1, &json!({"alias": "read"}));
    sleep(SEC).await;
    assert_eq!(world.stored(1)["alias"], "read");
    sleep(HOUR).await;
    assert!(world.puts(0).is_empty());
    world.hub.incomplete(&[]);
    sleep(MIN).await;
    assert_eq!(world.stored(0)["alias"], "unread");
}
