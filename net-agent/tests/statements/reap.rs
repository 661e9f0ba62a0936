// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a pass deletes, and what stops it.

use mocks::faults::{Action, Rule};
use mocks::napi::Era;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, TARGET, World, id, mac_of};
use crate::{HOUR, MIN, SEC, lawful, leak};

#[tokio::test(start_paused = true)] // C6
async fn reaps_a_vm_destroyed_while_off() {
    let world = leak();
    world.nic(3, "elsewhere", json!({"cn_uuid": "c829c448-085b-4138-adbc-583ac96881c3"}));
    let (agent, _) = world.start(json!({}));
    sleep(13 * MIN).await;
    assert!(!world.has(2) && world.has(1) && world.has(3));
    let plan = agent.plan_json();
    let line = plan["decisions"].as_array().unwrap().iter().find(|d| d["action"] == "delete");
    assert_eq!(line.unwrap()["outcome"], "done", "{plan}");
    let (list, delete) = (world.asked("cn_uuid=")[0].0, world.asked("DELETE")[0].0);
    assert!(delete >= list + MIN, "G7: two looks a minute apart");
    assert_eq!(world.writes().len(), 1);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C7, race 19, D6
async fn reads_shuffled_and_halved_pages() {
    let cases: [(bool, &[usize], usize); 2] = [(true, &[], 3), (false, &[1000, 500, 250, 125], 32)];
    for (search, slow, lists) in cases {
        let world = World::new();
        if search {
            world.napi.set_era(Era::Rfd58);
        }
        world.vm("live", "running", &[], false);
        let macs: Vec<_> = (0..2400).map(|n| json!({"mac": mac_of(n)})).collect();
        world.wears("live", json!(macs));
        for n in 0..2500 {
            let vm = if n < 2400 { "live".to_owned() } else { format!("gone{n}") };
            world.nic_at(&mac_of(n), &vm, json!({}));
            if n >= 2400 {
                world.vmapi(&vm, "destroyed", CN);
            }
        }
        world.vmapi("live", "running", CN);
        world.slow(slow);
        let (agent, _) = world.start(json!({}));
        sleep(HOUR).await;
        let left = world.napi.nics().len();
        assert_eq!(left, 2400, "{}", agent.status_json().await);
        assert!(world.records().iter().all(|nic| nic["belongs_to_uuid"] == id("live")));
        let asked = world.asked("cn_uuid=").len();
        assert!(asked <= lists, "{asked} lists");
        assert_eq!(world.writes().len(), 100);
        let halved = world.asked("cn_uuid=").iter().any(|(_, line)| line.contains("limit=100&"));
        assert_eq!(halved, !slow.is_empty());
        assert!(world.asked("limit=50&").is_empty() && world.asked("limit=62&").is_empty());
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C8, R9, D2
async fn backfills_before_the_first_delete() {
    let world = leak();
    world.nic(1, "live", json!({"cn_uuid": null, "state": "provisioning"}));
    world.start(json!({}));
    sleep(HOUR).await;
    let (put, delete) = (world.asked("PUT"), world.asked("DELETE"));
    assert_eq!((put.len(), delete.len()), (1, 1), "{put:?}");
    let body = format!(r#"{{"cn_uuid":"{CN}","state":"running"}}"#);
    assert!(put[0].1.contains("Some(\"") && put[0].1.ends_with(&body), "{put:?}");
    assert!(put[0].0 < delete[0].0);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C9
async fn claims_a_foreign_cn_uuid_only_if_vmapi_agrees() {
    const OTHER: &str = "c829c448-085b-4138-adbc-583ac96881c3";
    for (placed, claimed) in [(Some(CN), true), (Some(OTHER), false), (None, false)] {
        let world = World::new();
        world.vm("live", "running", &[1, 2], false);
        world.nic(1, "live", json!({"cn_uuid": OTHER}));
        world.nic(2, "somebody", json!({"cn_uuid": null}));
        if let Some(server) = placed {
            world.vmapi("live", "running", server);
        }
        let (agent, _) = world.start(json!({}));
        sleep(HOUR).await;
        world.vm("live", "stopped", &[1, 2], false);
        sleep(HOUR).await;
        world.vm("live", "running", &[1, 2], false);
        sleep(HOUR).await;
        assert_eq!(world.field(1, "cn_uuid") == json!(CN), claimed, "{placed:?}");
        assert_eq!(world.field(2, "cn_uuid"), json!(null));
        assert!(world.asked("PUT /nics/f20000000002").is_empty());
        assert!(agent.parts.status.get(net_agent::status::Count::ForeignOwner) > 0);
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C12
async fn keeps_a_provisioning_nic_until_old_and_failed() {
    let world = leak();
    world.nic(2, "gone", json!({"state": "provisioning", "age_s": 0}));
    world.vmapi("gone", "failed", CN);
    world.nic(3, "unborn", json!({"state": "provisioning"}));
    world.start(json!({}));
    sleep(119 * MIN).await;
    assert!(world.has(2), "younger than two hours");
    sleep(10 * MIN).await;
    assert!(!world.has(2));
    sleep(48 * HOUR).await;
    assert!(world.has(3), "VMAPI does not know it yet: it may be on its way");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C13
async fn defers_while_vmapi_is_down() {
    let world = leak();
    world.vmapi_is_down(true);
    let (agent, _) = world.start(json!({}));
    sleep(30 * HOUR).await;
    assert!(world.has(2) && world.asked("DELETE").is_empty());
    let status = agent.status_json().await.to_string();
    assert!(status.contains("not decided yet") && status.contains("VMAPI"), "{status}");
    world.vmapi_is_down(false);
    sleep(HOUR / 4).await;
    assert!(!world.has(2));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C14
async fn deletes_nothing_after_a_broken_lookup() {
    let garbled = r#"[{"uuid":"live","nics":[{"mac":"nonsense"}]},{}]"#;
    for broken in
        [None, Some((500, "{}")), Some((200, "[")), Some((200, "{}")), Some((200, garbled))]
    {
        let world = World::new();
        for n in 1..=9 {
            world.nic(n, "lost", json!({}));
        }
        if let Some((status, body)) = broken {
            world.breaks("/vms", status, body);
        }
        let (agent, _) = world.start(json!({}));
        sleep(3 * HOUR).await;
        assert!(world.writes().is_empty(), "{broken:?}: {:?}", world.writes());
        if broken.is_none() {
            let status = agent.status_json().await;
            assert!(status["brake"].as_str().unwrap().contains("no VM"), "{status}");
        }
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C15, race 14
async fn deletes_only_with_if_match() {
    for etags in [true, false] {
        let world = leak();
        if !etags {
            world.napi.set_era(Era::EraC);
        }
        world.start(json!({}));
        sleep(30 * HOUR).await;
        assert_eq!(world.has(2), !etags);
        let deletes = world.asked("DELETE");
        assert_eq!(deletes.len(), usize::from(etags));
        assert!(deletes.iter().all(|(_, line)| line.contains("Some(\"")));
    }
}

#[tokio::test(start_paused = true)] // C16, race 27, D8
async fn retries_a_412_five_times_with_growing_pauses() {
    let world = leak();
    world.state().touch_next = u32::MAX;
    world.start(json!({}));
    sleep(12 * MIN).await;
    let deletes = world.asked("DELETE");
    assert!(!deletes.is_empty() && deletes.len().is_multiple_of(5), "{deletes:?}");
    let reads = world.asked("GET /nics/f20000000002");
    assert_eq!(reads.len(), deletes.len(), "each preceded by a read of its own");
    let gaps: Vec<_> = deletes[..5].windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert!(gaps.windows(2).all(|two| two[1] > two[0]), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 31 * SEC), "{gaps:?}");
    world.state().touch_next = 0;
    sleep(HOUR).await;
    assert!(!world.has(2), "the next round, once it rests");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C17, R17, race 13
async fn counts_a_404_on_delete_as_success() {
    let world = leak();
    world.state().before_write = Some(Box::new(|world| {
        world.napi.remove("f20000000002");
    }));
    let (agent, _) = world.start(json!({}));
    sleep(30 * HOUR).await;
    assert_eq!(world.asked("DELETE").len(), 1);
    let status = agent.status_json().await;
    assert_eq!((&status["already_gone"], &status["errors"]), (&json!(1), &json!(0)), "{status}");
    assert!(status["waiting_for"].as_array().unwrap().is_empty());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C18, race 21
async fn reads_an_unknown_outcome_and_never_resends() {
    let world = leak();
    world.state().lose_next = true;
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert!(!world.has(2));
    assert_eq!(world.asked("DELETE").len(), 1);
    world.state().lose_next = true;
    world.vm("live", "stopped", &[1], false);
    sleep(HOUR).await;
    assert_eq!((world.field(1, "state"), world.asked("PUT").len()), (json!("stopped"), 1));
    let status = agent.status_json().await;
    assert!(status["departed"].as_array().unwrap().is_empty() && status["brake"].is_null());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C19, race 26
async fn voids_a_list_with_a_foreign_record() {
    let world = leak();
    world.nic(9, "other", json!({"cn_uuid": "c829c448-085b-4138-adbc-583ac96881c3"}));
    // The route exists and ignores the filter.
    world.napi.set_era(Era::Rfd58);
    let record = world.napi.nic(&mac_of(9));
    let ignores = Rule::new("GET", "/search/nics", Action::ForeignRecord { record });
    world.napi.faults().add(ignores);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert!(world.writes().is_empty() && world.has(2) && world.has(9));
    let status = agent.status_json().await.to_string();
    assert!(status.contains("the whole answer is void"), "{status}");
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn unreadable_record_delays_no_other() {
    let world = leak();
    world
        .hub(HOME)
        .set_sysinfo(json!({"UUID": CN, "Network Interfaces": {"e0": {"MAC Address": mac_of(9)}}}));
    world.nic(3, "live", json!({"cn_uuid": null}));
    world.vm("live", "running", &[1, 3], false);
    world.nic(9, CN, json!({"belongs_to_type": "server", "cn_uuid": null}));
    assert!([9, 3].iter().all(|n| world.napi.lose_network(&mac_of(*n))));
    world.start(json!({"relist": "6h"}));
    sleep(10 * HOUR).await;
    assert!(!world.has(2));
    world.nic(4, "later", json!({}));
    world.vmapi("later", "destroyed", CN);
    sleep(20 * HOUR).await;
    assert!(!world.has(4), "the second list was read and judged");
    let before = world.asked("").len();
    sleep(10 * HOUR).await;
    let spent = world.asked("").len() - before;
    assert!(spent < 10 * 12 * 2 * 8, "{spent} requests in ten hours");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // R8, R9
async fn reap_waits_for_backfills_that_failed() {
    let world = leak();
    world.nic(1, "live", json!({"cn_uuid": null}));
    // Each write finds the record changed.
    world.state().touch_next = u32::MAX;
    let (agent, _) = world.start(json!({}));
    sleep(2 * HOUR).await;
    assert!(!world.asked("PUT").is_empty() && world.asked("DELETE").is_empty());
    let waiting = agent.parts.status.waiting_for().join(" ");
    assert!(waiting.contains("1 backfills failed"), "{waiting}");
    world.state().touch_next = 0;
    sleep(HOUR).await;
    assert!(!world.has(2) && world.field(1, "cn_uuid") == json!(CN));
    let (put, delete) = (world.asked("PUT"), world.asked("DELETE"));
    assert!(put.last().unwrap().0 < delete[0].0);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // G9
async fn a_copy_without_an_etag_is_looked_at_again() {
    let world = leak();
    world.vm("left", "running", &[3], false);
    world.nic(3, "left", json!({}));
    world.vmapi("left", "destroyed", CN);
    world.napi.set_era(Era::EraC);
    world.start(json!({}));
    sleep(HOUR).await;
    world.delete_vm("left");
    sleep(HOUR).await;
    assert!(world.has(2) && world.has(3) && world.asked("DELETE").is_empty());
    world.napi.set_era(Era::Rfd58);
    sleep(10 * MIN).await;
    assert!(!world.has(2) && !world.has(3), "not only when the day is over");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // R11
async fn moves_unlisted_server_nics_and_other_nics_of_this_node() {
    let world = leak();
    let of = |kind: &str, owner: &str, cn| json!({"belongs_to_type": kind, "belongs_to_uuid": owner, "cn_uuid": cn, "state": "provisioning"});
    // Sysinfo has none of these.
    world.nic(5, CN, of("server", CN, json!(null)));
    world.nic(6, "x", of("other", "x", json!(CN)));
    world.nic(7, "x", of("other", "x", json!(null)));
    world.nic(8, TARGET, of("server", TARGET, json!(null)));
    world.start(json!({}));
    sleep(2 * MIN).await;
    assert_eq!(world.field(5, "state"), json!("running"), "asked for once after the start");
    sleep(HOUR).await;
    assert_eq!(world.field(6, "state"), json!("running"));
    assert_eq!(
        (world.field(7, "state"), world.field(8, "state")),
        (json!("provisioning"), json!("provisioning"))
    );
    assert!([5, 6, 7, 8].iter().all(|n| world.has(*n)));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // R10
async fn any_event_of_a_vm_has_its_nics_looked_at() {
    let world = leak();
    world.start(json!({}));
    sleep(HOUR).await;
    world.nic(1, "live", json!({"state": "provisioning"}));
    let before = world.asked("f20000000001").len();
    sleep(HOUR).await;
    assert_eq!(world.asked("f20000000001").len(), before, "no event, no request");
    // A change of nothing that a NIC record says, such as the alias, and many of them.
    for _ in 0..300 {
        world.vm("live", "running", &[1], false);
        sleep(SEC / 10).await;
    }
    assert_eq!(world.field(1, "state"), json!("running"));
    sleep(MIN).await;
    let asked = world.asked("f20000000001").len() - before;
    assert!((2..=9).contains(&asked), "within its budget: {asked}");
    lawful(&world);
}
