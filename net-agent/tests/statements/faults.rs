// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whichever request of a run fails, and however, the end is the same; an answer lost after its
//! commit changes nothing at all.

use mocks::napi::Era;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{ADMIN, CN, Fault, HOME, World, mac};
use crate::{HOUR, MIN, lawful};

/// A run with one of everything: claim, backfill, state, a leak, a witnessed delete, a NIC that
/// leaves. Gives the records at the end, the writes, and the number of requests.
async fn run(faults: &[(usize, Fault)]) -> (Vec<Value>, Vec<String>, usize) {
    let world = World::new();
    world.state().faults = faults.iter().copied().collect();
    world.napi.set_era(Era::Rfd58);
    world
        .hub(HOME)
        .set_sysinfo(json!({"UUID": CN, "Network Interfaces": {"e0": {"MAC Address": mac(9)}}}));
    world.nic(
        9,
        ADMIN,
        json!({"belongs_to_type": "other", "belongs_to_uuid": ADMIN,
        "state": "provisioning", "cn_uuid": null}),
    );
    world.vm("v", "running", &[1, 2], false);
    world.vm("w", "running", &[3], false);
    world.vm("x", "running", &[], false);
    world.nic(1, "v", json!({"cn_uuid": null, "state": "provisioning"}));
    world.nic(2, "v", json!({}));
    world.nic(3, "w", json!({}));
    world.nic(4, "gone", json!({}));
    world.nic(5, "elsewhere", json!({"cn_uuid": "c829c448-085b-4138-adbc-583ac96881c3"}));
    world.vmapi("gone", "destroyed", CN);
    world.vmapi("v", "running", CN);
    world.vmapi_has("v", "nics", json!([{"mac": mac(1)}]));
    world.vmapi("w", "destroyed", CN);
    world.start(json!({"relist": "0"}));
    sleep(20 * MIN).await;
    world.delete_vm("w");
    sleep(MIN).await;
    world.vm("v", "running", &[1], false);
    sleep(MIN).await;
    world.vm("v", "stopped", &[1], false);
    sleep(HOUR).await;
    lawful(&world);
    let requests = world.state().sent;
    // An answer that is lost costs time, and the tag of what is written later depends on it.
    let writes = world.writes().into_iter().map(|line| {
        let (request, rest) = line.split_once(" Some(").unwrap();
        format!("{request} {}", rest.split_once(' ').unwrap().1)
    });
    (world.records(), writes.collect(), requests)
}

/// The same run with this fault at each of its requests in turn.
async fn at_every_index(fault: Fault) {
    let (records, writes, requests) = run(&[]).await;
    assert_eq!(records.len(), 3, "{records:?}");
    assert!(requests > 12, "{requests}");
    for index in 0..requests {
        let (found, written, _) = run(&[(index, fault)]).await;
        assert_eq!(found, records, "{fault:?} at {index}");
        if fault == Fault::LoseAnswer {
            assert_eq!(written, writes, "an answer lost at {index} was acted on twice");
        }
    }
}

#[tokio::test(start_paused = true)] // C26
async fn same_end_with_any_request_refused() {
    at_every_index(Fault::Refuse).await;
}

#[tokio::test(start_paused = true)] // C26
async fn same_end_with_any_connection_reset() {
    at_every_index(Fault::Reset).await;
}

#[tokio::test(start_paused = true)] // C26
async fn same_end_with_503_at_any_request() {
    at_every_index(Fault::Unavailable).await;
}

#[tokio::test(start_paused = true)] // C26
async fn lost_answer_at_any_request_changes_nothing() {
    at_every_index(Fault::LoseAnswer).await;
}

#[tokio::test(start_paused = true)] // C26, race 20
async fn same_end_with_two_faults_or_an_outage() {
    let (records, _, requests) = run(&[]).await;
    for index in (0..requests).step_by(2) {
        for pair in [[Fault::LoseAnswer, Fault::Refuse], [Fault::Unavailable, Fault::LoseAnswer]] {
            let (found, _, _) = run(&[(index, pair[0]), (index + 1, pair[1])]).await;
            assert_eq!(found, records, "{pair:?} at {index}");
        }
        let outage: Vec<_> = (index..index + 12).map(|n| (n, Fault::Unavailable)).collect();
        assert_eq!(run(&outage).await.0, records, "an outage at {index}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_stay_below_a_tenth_and_in_budget() {
    // A NAPI that fails every thirtieth request is as healthy as they come.
    let world = World::new();
    world.every(30);
    let macs: Vec<u8> = (1..=200).collect();
    world.vm("v", "running", &macs, false);
    for n in &macs {
        world.nic(*n, "v", json!({"cn_uuid": null}));
    }
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert!(world.records().iter().all(|nic| nic["cn_uuid"] == CN));
    let log = world.log();
    let first = 4 + 2 * macs.len();
    let retries = log.len() - first;
    assert!(retries * 10 <= first, "{retries} retries of {first}");
    assert_eq!(
        agent.parts.clients.pace.taken(),
        (log.len() + 1 + world.cnapi.log().all().len()) as u64,
        "each took its turn (VMAPI: 1)"
    );
    for window in log.windows(6) {
        assert!(window[5].0 - window[0].0 >= crate::SEC, "6 within a second: {window:?}");
    }
}
