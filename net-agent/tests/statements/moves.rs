// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMs that are hidden, move, or come back.

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, TARGET, World, id};
use crate::{HOUR, MIN, SEC, lawful};

#[tokio::test(start_paused = true)] // C10
async fn never_touches_a_hidden_vm() {
    for ask in [true, false] {
        let world = World::new();
        world.vm("dni", "running", &[1], true);
        world.vm("other", "running", &[], false);
        world.nic(1, "dni", json!({"cn_uuid": null, "state": "provisioning"}));
        world.nic(2, "dni", json!({}));
        world.vmapi("dni", "running", TARGET);
        world.start(if ask { json!({}) } else { json!({"vmapi": "none"}) });
        sleep(HOUR).await;
        world.vm("dni", "stopped", &[1], true);
        sleep(HOUR).await;
        // Hidden and deleted within one settle delay.
        world.vm("quick", "running", &[3], false);
        world.nic(3, "quick", json!({}));
        sleep(MIN).await;
        world.vm("quick", "running", &[3], true);
        sleep(SEC).await;
        world.delete_vm("quick");
        world.delete_vm("dni");
        sleep(5 * MIN).await;
        assert!(world.has(1) && world.has(2) && world.has(3));
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C10
async fn hiding_cancels_queued_work() {
    let world = World::new();
    world.vm("v", "running", &[1, 2], false);
    world.vm("other", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.nic(2, "v", json!({}));
    world.start(json!({}));
    sleep(MIN).await;
    // A NIC that left, and a state to be written, both queued; then the VM is hidden.
    world.vmapi_is_down(true);
    world.vm("v", "running", &[1], false);
    sleep(30 * SEC).await;
    world.nic(1, "v", json!({"state": "provisioning"}));
    world.vm("v", "stopped", &[1], true);
    world.vmapi("v", "running", CN);
    world.vmapi_has("v", "nics", json!([{"mac": crate::world::mac(1)}]));
    world.vmapi_is_down(false);
    sleep(HOUR).await;
    assert!(world.has(2) && world.writes().is_empty(), "{:?}", world.writes());
    // Shown counts as a new VM here.
    world.vm("v", "running", &[1], false);
    sleep(MIN).await;
    assert_eq!(world.field(1, "state"), json!("running"));
    lawful(&world);
}

/// The shipped order: source hidden, VMAPI moved, target shown, source deleted.
#[tokio::test(start_paused = true)] // C11
async fn migrated_vm_keeps_its_nic() {
    for target in ["on", "off", "late"] {
        let world = World::new();
        world.vm("v", "running", &[1], false);
        world.vm("stays", "running", &[], false);
        world.vm_on("target", "resident", "running", &[], false);
        world.nic(1, "v", json!({}));
        world.vmapi("v", "running", CN);
        world.start(json!({"relist": "1h"}));
        let over = json!({"relist": "1h", "seed": 2});
        if target == "on" {
            world.start_on("target", over.clone());
        }
        sleep(HOUR).await;
        let pause = 7 * SEC;
        world.vm_on("target", "v", "stopped", &[1], true);
        sleep(pause).await;
        world.vm("v", "stopped", &[1], true);
        sleep(pause).await;
        world.vmapi("v", "running", TARGET);
        sleep(pause).await;
        world.vm_on("target", "v", "running", &[1], false);
        sleep(pause).await;
        world.delete_vm("v");
        sleep(2 * HOUR).await;
        assert!(world.has(1), "{target}");
        if target == "late" {
            world.start_on("target", over);
        }
        sleep(30 * HOUR).await;
        assert!(world.has(1) && world.asked("DELETE").is_empty(), "{target}");
        let owner = if target == "off" { CN } else { TARGET };
        assert_eq!(world.field(1, "cn_uuid"), json!(owner), "{target}");
        assert_eq!(world.field(1, "state"), json!("running"), "{target}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // W36
async fn the_nic_of_a_vm_that_may_have_been_replaced_is_not_taken_over() {
    let world = World::new();
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("memory.json");
    std::fs::write(&file, json!({"open": {"m": {"vm": id("v")}}}).to_string()).unwrap();
    for (n, vm) in [(1, "v"), (2, "w")] {
        world.vm(vm, "running", &[n], false);
        world.nic(n, vm, json!({"cn_uuid": TARGET}));
        world.vmapi(vm, "running", CN);
    }
    world.start(json!({"migration_agent": {"state_dir": state.path()}}));
    sleep(HOUR).await;
    assert_eq!(world.field(1, "cn_uuid"), json!(TARGET));
    assert_eq!(world.field(2, "cn_uuid"), json!(CN), "no migration has it");
    std::fs::remove_file(&file).unwrap();
    sleep(HOUR).await;
    assert_eq!(world.field(1, "cn_uuid"), json!(CN));
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C23, race 15
async fn recreated_vm_keeps_its_nic() {
    for gap in [1, 4, 6, 9] {
        let world = World::new();
        world.vm("v", "running", &[1], false);
        world.nic(1, "v", json!({}));
        world.vmapi("v", "running", CN);
        world.start(json!({}));
        sleep(MIN).await;
        world.delete_vm("v");
        sleep(gap * SEC).await;
        world.vm("v", "running", &[1], false);
        world.vmapi("v", "destroyed", CN);
        sleep(HOUR).await;
        assert!(world.has(1) && world.asked("DELETE").is_empty(), "{gap} s");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // race 16
async fn vm_back_before_the_delete_keeps_its_nic() {
    // The point check is the last thing asked of vminfod: it comes back right before it.
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.vm("other", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "destroyed", CN);
    world.start(json!({}));
    sleep(MIN).await;
    // Back, without an event and after the full view: only the point check can know.
    let back = |world: &World| world.quietly("v", Some(("running", &[1], false)));
    world.state().before_check = Some(Box::new(back));
    world.delete_vm("v");
    sleep(HOUR).await;
    assert!(world.has(1) && world.asked("DELETE").is_empty());
    assert!(world.state().before_check.is_none());
    assert!(world.hub_asked(&format!("/vms/{}?sync=true", id("v"))) > 0);
    lawful(&world);
}

/// What nobody told is not witnessed: it may have been hidden, moved and deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn unreported_departure_needs_age_and_second_look() {
    for told in [true, false] {
        let world = World::new();
        world.vm("v", "running", &[1, 2], false);
        world.vm("stays", "running", &[], false);
        world.nic(1, "v", json!({}));
        world.vmapi("v", "destroyed", CN);
        world.start(json!({}));
        sleep(MIN).await;
        world.nic(2, "v", json!({"age_s": 0}));
        if told {
            world.delete_vm("v");
        } else {
            world.hub(HOME).stop();
            sleep(3 * SEC).await;
            world.quietly("v", None);
            world.hub(HOME).restart();
        }
        sleep(50 * SEC).await;
        assert_eq!((world.has(1), world.has(2)), (!told, !told), "told: {told}");
        sleep(2 * MIN).await;
        assert_eq!((world.has(1), world.has(2)), (false, !told), "told: {told}");
        sleep(HOUR).await;
        assert!(!world.has(2), "told: {told}");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)]
async fn remembers_hidden_seen_only_by_the_last_check() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.vm("stays", "running", &[], false);
    world.nic(1, "v", json!({}));
    world.vmapi("v", "destroyed", CN);
    let (agent, _shutdown) = world.start(json!({}));
    sleep(MIN).await;
    world.delete_vm("v");
    sleep(4 * SEC).await;
    // Back, hidden and without an event: only the absence check before the delete can know.
    world.quietly("v", Some(("running", &[1], true)));
    sleep(2 * SEC).await;
    let now = agent.parts.clock.now();
    assert!(agent.parts.node.with(|inventory| inventory.recently_hidden(&id("v"), now)));
    world.quietly("v", None);
    sleep(HOUR).await;
    lawful(&world);
    assert!(world.state().wrong.is_empty(), "{:?}", world.state().wrong);
}
