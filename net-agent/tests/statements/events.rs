// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Events, the comparison, holds and the report mode.

use mocks::napi::Era;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{ADMIN, CN, HOME, TARGET, World, id, mac};
use crate::{HOUR, MIN, SEC, lawful, leak};

#[tokio::test(start_paused = true)] // C20
async fn nic_states_follow_the_vm() {
    for (vm, mirror, nic, want) in [
        ("running", true, "provisioning", "running"),
        ("running", false, "provisioning", "running"),
        ("running", true, "stopped", "running"),
        ("stopped", true, "running", "stopped"),
        ("stopped", true, "provisioning", "stopped"),
        ("stopped", false, "running", "running"),
        ("stopped", false, "provisioning", "provisioning"),
        ("provisioning", true, "provisioning", "provisioning"),
        ("failed", true, "running", "running"),
        ("configured", true, "running", "running"),
        ("odd", true, "provisioning", "provisioning"),
    ] {
        let world = World::new();
        world.vm("v", "receiving", &[1], false);
        world.nic(1, "v", json!({"state": nic}));
        world.start(json!({"mirror_stopped": mirror}));
        sleep(MIN).await;
        world.vm("v", vm, &[1], false);
        sleep(MIN).await;
        assert_eq!(world.field(1, "state"), json!(want), "VM {vm}, NIC {nic}, mirror {mirror}");
        let puts = world.asked("PUT");
        assert_eq!(puts.len(), usize::from(nic != want), "one write, and only of what differs");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C20
async fn mirrors_owner_and_primary_on_events() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({"owner_uuid": "before"}));
    world.start(json!({}));
    sleep(MIN).await;
    {
        world.wears("v", json!([{"mac": mac(1), "primary": true}]));
        let owner = json!(id("after"));
        world.hub(HOME).silently(|vms| vms.get_mut(&id("v")).unwrap()["owner_uuid"] = owner);
    }
    sleep(6 * MIN).await;
    assert_eq!(world.field(1, "owner_uuid"), json!(id("after")));
    assert_eq!(world.field(1, "primary"), json!(true));
    assert_eq!(world.asked("PUT").len(), 1);
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C21
async fn claims_server_and_booter_nics_after_their_delay() {
    let world = World::new();
    world.hub(HOME).set_sysinfo(json!({"UUID": CN,
        "Network Interfaces": {"ixgbe0": {"MAC Address": mac(1), "Link Status": "up"},
            "ixgbe1": {"MAC Address": mac(2), "Link Status": "down"}},
        "Virtual Network Interfaces": {"external0": {"MAC Address": mac(3)}}}));
    let server = |uuid: &str| {
        json!({"belongs_to_type": "server", "belongs_to_uuid": uuid,
        "state": "provisioning", "cn_uuid": null})
    };
    let other = |uuid: &str| {
        json!({"belongs_to_type": "other", "belongs_to_uuid": uuid,
        "state": "provisioning", "cn_uuid": null})
    };
    world.nic(1, ADMIN, other(ADMIN));
    world.nic(2, CN, server(CN));
    world.nic(3, "x", other("somebody"));
    world.nic(4, TARGET, server(TARGET));
    world.nic(5, ADMIN, other(ADMIN));
    world.start(json!({}));
    sleep(61 * SEC).await;
    let of = |n: u8| (world.field(n, "belongs_to_type"), world.field(n, "state"));
    assert_eq!(of(1), (json!("server"), json!("running")), "claimed");
    assert_eq!(world.field(1, "belongs_to_uuid"), json!(CN));
    assert_eq!(of(2), (json!("server"), json!("running")));
    assert_eq!(of(3), (json!("other"), json!("running")));
    assert_eq!(of(4), (json!("server"), json!("provisioning")), "another node's");
    assert_eq!(of(5), (json!("other"), json!("provisioning")), "not an address of ours");
    assert!(world.asked("cn_uuid=").is_empty(), "no list before R1's delay");
    assert_eq!(world.asked("GET").len(), 4, "one by one, and one list of server NICs");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C22, R13
async fn finds_missed_changes_in_one_comparison() {
    let world = World::new();
    world.vm("gone", "running", &[1], false);
    world.vm("changed", "running", &[2], false);
    world.vm("other", "running", &[], false);
    world.nic(1, "gone", json!({}));
    world.nic(2, "changed", json!({}));
    world.nic(3, "new", json!({"state": "provisioning"}));
    world.vmapi("gone", "destroyed", CN);
    world.start(json!({}));
    sleep(MIN).await;
    world.quietly("gone", None);
    world.quietly("changed", Some(("stopped", &[2], false)));
    world.quietly("new", Some(("running", &[3], false)));
    sleep(6 * MIN).await;
    assert!(!world.has(1), "delete");
    assert_eq!(world.field(2, "state"), json!("stopped"), "modify");
    assert_eq!(world.field(3, "state"), json!("running"), "create");
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn deletes_witnessed_departures_within_seconds() {
    let world = World::new();
    world.vm("v", "running", &[1, 2], false);
    world.vm("w", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.nic(2, "v", json!({}));
    world.start(json!({}));
    sleep(MIN).await;
    assert!(world.asked("/nics/").is_empty(), "a snapshot is no event");
    world.vmapi("v", "running", CN);
    world.vmapi_has("v", "nics", json!([{"mac": mac(1)}]));
    world.vm("v", "running", &[1], false);
    sleep(MIN).await;
    assert!(world.has(1) && !world.has(2));
    let asked = world.vmapi.log().all().len();
    world.delete_vm("v");
    sleep(30 * MIN).await;
    assert!(world.has(1), "VMAPI still says running here");
    let asked = world.vmapi.log().all().len() - asked;
    // Oftener than after 5, 15, 60, 300 s, while that may yet say it within two minutes.
    assert!((20..=30).contains(&asked), "at 5, 10, 25 s, and about every 85 s: {asked}");
    sleep(6 * HOUR).await;
    let asked = world.vmapi.log().all().len();
    sleep(HOUR).await;
    let asked = world.vmapi.log().all().len() - asked;
    assert!((9..=16).contains(&asked), "about every 300 s in the end: {asked}");
    world.vmapi("v", "destroyed", CN);
    sleep(7 * MIN).await;
    assert!(!world.has(1));
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn hold_stops_queued_work_until_released() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.vm("w", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "destroyed", CN);
    let (agent, _) = world.start(json!({}));
    sleep(MIN).await;
    let now = jiff::Timestamp::now();
    world.delete_vm("v");
    sleep(4 * SEC).await;
    agent.parts.holds.hold(Some(id("v")), None, "migration".into(), "root".into(), now).unwrap();
    sleep(3 * HOUR).await;
    assert!(world.has(1) && world.writes().is_empty());
    let status = agent.status_json().await.to_string();
    assert!(status.contains("held: migration"), "{status}");
    agent.parts.holds.release(Some(&id("v"))).unwrap();
    sleep(10 * MIN).await;
    assert!(!world.has(1));
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn restart_of_vminfod_causes_no_request() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    world.start(json!({"relist": "0"}));
    sleep(HOUR).await;
    let before = world.asked("").len();
    for _ in 0..5 {
        world.cut();
        sleep(HOUR).await;
    }
    sleep(24 * HOUR).await;
    assert_eq!(world.asked("").len(), before);
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)] // R2
async fn lists_again_daily_or_once_only() {
    for (relist, lists) in [("24h", 9..=14), ("0", 1..=1)] {
        let world = leak();
        world.napi.set_era(Era::Rfd58);
        world.start(json!({"relist": relist}));
        sleep(240 * HOUR).await;
        let found = world.asked("cn_uuid=").len();
        assert!(lists.contains(&found), "{relist}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn report_mode_writes_nothing() {
    let world = leak();
    world.nic(1, "live", json!({"cn_uuid": null}));
    let (agent, _) = world.start(json!({"mode": "report"}));
    sleep(3 * HOUR).await;
    assert!(world.writes().is_empty() && !world.asked("cn_uuid=").is_empty());
    let plan = agent.plan_json().to_string();
    assert!(
        plan.contains("\"delete\"") && plan.contains("NAPI's list for this node lacks it"),
        "{plan}"
    );
}

#[tokio::test(start_paused = true)] // race 31
async fn record_deleted_during_a_write_stays_gone() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.nic(1, "v", json!({}));
    let (agent, _) = world.start(json!({}));
    sleep(MIN).await;
    world.state().before_write = Some(Box::new(|world| world.napi.reset()));
    world.vm("v", "stopped", &[1], false);
    sleep(HOUR).await;
    assert_eq!(world.writes().len(), 1, "neither sent again nor made anew");
    assert_eq!(agent.parts.status.get(net_agent::status::Count::Errors), 0);
    lawful(&world);
}

#[tokio::test(start_paused = true)]
async fn hears_a_late_vmapi_within_two_minutes() {
    for late in [1, 2, 3, 5, 8, 20, 45] {
        let world = leak();
        world.vm("v", "running", &[3], false);
        world.nic(3, "v", json!({}));
        world.vmapi("v", "running", CN);
        let (_, shutdown) = world.start(json!({"seed": late}));
        sleep(20 * MIN).await;
        world.delete_vm("v");
        sleep(late * MIN).await;
        assert!(world.has(3), "VMAPI still said running");
        world.vmapi("v", "destroyed", CN);
        sleep(2 * MIN).await;
        assert!(!world.has(3), "{late} minutes late, and not heard");
        lawful(&world);
        shutdown.trigger();
    }
}

#[tokio::test(start_paused = true)]
async fn judges_again_if_the_vm_follows_its_nic() {
    let world = World::new();
    world.vm("v", "running", &[1, 2], false);
    world.vm("w", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.nic(2, "v", json!({}));
    world.vmapi("v", "running", CN);
    world.vmapi_has("v", "nics", json!([{"mac": mac(1)}]));
    world.start(json!({}));
    sleep(20 * SEC).await;
    world.vm("v", "running", &[1], false);
    world.quietly("v", None);
    sleep(6 * HOUR).await;
    assert!(world.has(1) && world.has(2), "VMAPI says that the VM lives, and it is not here");
    world.vmapi("v", "destroyed", CN);
    sleep(HOUR).await;
    assert!(!world.has(1) && !world.has(2));
    lawful(&world);
}
