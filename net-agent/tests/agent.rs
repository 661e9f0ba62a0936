// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loops under paused time: hours in milliseconds, against services in process. The numbers
//! in the names are the statements of the sheet's checklist.

mod world;

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use world::{CN, World};

const MIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn c01_c03_c04_c06_the_first_list_comes_after_2_to_10_minutes_and_the_leak_goes() {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({}));
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    let _agent = world.start(json!({}));
    sleep(HOUR).await;
    assert!(world.has(1) && !world.has(2));
    let lists = world.asked("cn_uuid=");
    let first = lists.first().unwrap();
    assert!(first.0 >= 2 * MIN && first.0 <= 10 * MIN, "{first:?}");
    assert!(first.1.starts_with("GET /search/nics?"), "{first:?}");
    let deletes = world.asked("DELETE");
    assert_eq!(deletes.len(), 1);
    assert!(deletes[0].1.contains("Some(\"E1\")"), "c15: {deletes:?}");
    assert!(deletes[0].0 >= first.0 + MIN, "G7");
}

#[tokio::test(start_paused = true)]
async fn c05_an_old_napi_is_left_alone_for_hours_and_its_upgrade_is_noticed_without_a_restart() {
    let world = World::new();
    world.state().filters = false;
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    let _agent = world.start(json!({"fallback": "never"}));
    sleep(2 * HOUR).await;
    assert_eq!(world.asked("cn_uuid=").len(), 1);
    world.state().search = true;
    world.state().filters = true;
    sleep(4 * HOUR).await;
    assert!(!world.has(2));
}

#[tokio::test(start_paused = true)]
async fn c04_an_unfiltering_napi_never_gives_more_than_the_probe_asks_for() {
    let world = World::new();
    world.state().filters = false;
    world.nic(2, "gone", json!({}));
    let _agent = world.start(json!({}));
    sleep(HOUR).await;
    let lists = world.asked("GET /nics?");
    assert!(
        lists.len() <= 1 && lists.iter().all(|(_, line)| line.contains("limit=1&")),
        "{lists:?}"
    );
    assert!(world.has(2));
}

#[tokio::test(start_paused = true)]
async fn c08_c20_backfill_and_state_come_before_the_first_delete() {
    let world = World::new();
    world.vm("live", "running", &[1], false);
    world.nic(1, "live", json!({"cn_uuid": null, "state": "provisioning"}));
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    let _agent = world.start(json!({}));
    sleep(HOUR).await;
    assert_eq!((world.field(1, "cn_uuid"), world.field(1, "state")), (json!(CN), json!("running")));
    let (put, delete) = (world.asked("PUT"), world.asked("DELETE"));
    assert_eq!(put.len(), 1, "{put:?}");
    assert!(put[0].1.ends_with(&format!(r#"{{"cn_uuid":"{CN}","state":"running"}}"#)), "{put:?}");
    assert!(put[0].0 < delete[0].0);
}

#[tokio::test(start_paused = true)]
async fn c10_a_hidden_vm_is_neither_written_nor_reaped() {
    let world = World::new();
    world.vm("dni", "running", &[1], true);
    world.nic(1, "dni", json!({"cn_uuid": null, "state": "provisioning"}));
    world.nic(2, "dni", json!({}));
    let _agent = world.start(json!({}));
    sleep(HOUR).await;
    world.vm("dni", "stopped", &[1], true);
    world.delete_vm("dni");
    world.vmapi("dni", "running", "elsewhere");
    sleep(30 * HOUR).await;
    assert!(world.has(1) && world.has(2));
    assert!(world.asked("PUT").is_empty() && world.asked("DELETE").is_empty());
}

#[tokio::test(start_paused = true)]
async fn c13_vmapi_down_defers_and_back_completes() {
    let world = World::new();
    world.nic(2, "gone", json!({}));
    world.vm("other", "running", &[], false);
    world.state().vmapi_down = true;
    let (agent, _) = world.start(json!({}));
    sleep(3 * HOUR).await;
    assert!(world.has(2) && world.asked("DELETE").is_empty());
    assert!(!agent.shared.status.waiting_for().is_empty());
    world.vmapi("gone", "destroyed", CN);
    world.state().vmapi_down = false;
    sleep(HOUR / 4).await;
    assert!(!world.has(2));
}

#[tokio::test(start_paused = true)]
async fn c14_an_empty_node_reaps_nothing_and_says_why() {
    let world = World::new();
    for n in 1..=9 {
        world.nic(n, "lost", json!({}));
    }
    let (agent, _) = world.start(json!({}));
    sleep(3 * HOUR).await;
    assert!(world.asked("DELETE").is_empty());
    assert!(agent.shared.status.braked().is_some());
}

#[tokio::test(start_paused = true)]
async fn c15_without_an_etag_nothing_is_deleted() {
    let world = World::new();
    world.state().etags = false;
    world.vm("other", "running", &[], false);
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    let _agent = world.start(json!({}));
    sleep(30 * HOUR).await;
    assert!(world.has(2) && world.asked("DELETE").is_empty());
}

#[tokio::test(start_paused = true)]
async fn c16_c18_a_412_and_a_lost_answer_are_read_again() {
    let world = World::new();
    world.vm("other", "running", &[], false);
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    world.state().touch_next = 2;
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    assert!(!world.has(2));
    assert_eq!(world.asked("DELETE").len(), 3);
    world.vm("v", "running", &[3], false);
    world.nic(3, "v", json!({"state": "provisioning"}));
    world.state().lose_next = true;
    world.vm("v", "stopped", &[3], false);
    sleep(HOUR).await;
    assert_eq!(world.field(3, "state"), json!("stopped"));
    assert_eq!(world.asked("PUT").len(), 1, "never resent");
    assert!(agent.shared.all_departed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn witnessed_deletes_go_within_seconds_and_a_nic_that_left_goes_when_vmapi_agrees() {
    let world = World::new();
    world.vm("v", "running", &[1, 2], false);
    world.nic(1, "v", json!({}));
    world.nic(2, "v", json!({}));
    let _agent = world.start(json!({}));
    sleep(MIN).await;
    assert!(world.asked("").is_empty(), "a snapshot is no event");
    world.vmapi("v", "running", CN);
    world.state().vmapi.get_mut("v").unwrap()["nics"] = json!([{"mac": world::mac(1)}]);
    world.vm("v", "running", &[1], false);
    sleep(MIN).await;
    assert!(world.has(1) && !world.has(2));
    world.delete_vm("v");
    sleep(MIN).await;
    assert!(world.has(1), "VMAPI still says running here");
    world.vmapi("v", "destroyed", CN);
    sleep(2 * MIN).await;
    assert!(!world.has(1));
}

#[tokio::test(start_paused = true)]
async fn c11_a_migrated_vm_keeps_its_nic_when_the_source_copy_is_deleted() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "running", "target");
    let _agent = world.start(json!({}));
    sleep(MIN).await;
    world.delete_vm("v");
    sleep(50 * HOUR).await;
    assert!(world.has(1) && world.asked("DELETE").is_empty());
}

#[tokio::test(start_paused = true)]
async fn c22_c23_missed_events_are_found_and_a_re_created_vm_keeps_its_nic() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "destroyed", CN);
    let _agent = world.start(json!({}));
    sleep(MIN).await;
    world.delete_vm("v");
    sleep(Duration::from_secs(3)).await;
    world.vm("v", "running", &[1], false);
    sleep(HOUR).await;
    assert!(world.has(1));
    world.quietly("v", None);
    sleep(6 * MIN).await;
    assert!(!world.has(1), "the comparison found it");
}

#[tokio::test(start_paused = true)]
async fn c24_c25_a_wrong_identity_and_no_rabbit_write_nothing() {
    for over in
        [json!({"cn_uuid": "b829c448-085b-4138-adbc-583ac96881c3"}), json!({"no_rabbit": false})]
    {
        let world = World::new();
        world.vm("v", "running", &[1], false);
        world.nic(1, "v", json!({"cn_uuid": null}));
        let (agent, _) = world.start(over);
        sleep(3 * HOUR).await;
        world.vm("v", "stopped", &[1], false);
        sleep(HOUR).await;
        assert!(world.asked("").is_empty(), "{:?}", world.asked(""));
        assert!(!agent.shared.status.waiting_for().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_stops_what_is_queued_and_its_release_lets_it_go() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "destroyed", CN);
    let (agent, _) = world.start(json!({}));
    sleep(MIN).await;
    let now = jiff::Timestamp::now();
    world.delete_vm("v");
    sleep(Duration::from_secs(1)).await;
    agent.shared.holds.hold(Some("v".into()), None, "migration".into(), now).unwrap();
    sleep(3 * HOUR).await;
    assert!(world.has(1) && world.asked("DELETE").is_empty());
    agent.shared.holds.release(Some("v"), now).unwrap();
    sleep(HOUR / 6).await;
    assert!(!world.has(1));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_vminfod_causes_no_request_and_a_clean_day_no_write() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    let _agent = world.start(json!({"relist": "0"}));
    sleep(HOUR).await;
    let before = world.asked("").len();
    for _ in 0..5 {
        world.cut();
        sleep(HOUR).await;
    }
    sleep(24 * HOUR).await;
    assert_eq!(world.asked("").len(), before);
    assert!(world.asked("PUT").is_empty() && world.asked("DELETE").is_empty());
}

#[tokio::test(start_paused = true)]
async fn report_mode_only_talks() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({"cn_uuid": null}));
    world.nic(2, "gone", json!({}));
    world.vmapi("gone", "destroyed", CN);
    let _agent = world.start(json!({"mode": "report"}));
    sleep(HOUR).await;
    assert!(world.asked("PUT").is_empty() && world.asked("DELETE").is_empty());
    assert!(!world.asked("cn_uuid=").is_empty());
}
