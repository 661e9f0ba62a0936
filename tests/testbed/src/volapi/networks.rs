// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A volume gets another network, or loses one, over HTTP.

use serde_json::{Value, json};
use volapi::records::{NetworkChange, all};
use volapi::service::Count;

use super::asked::{FOREIGN, NETWORK, OTHER, OWNER, PLAIN, SECOND, World, nics};
use super::crash::{at_each_step, until_killed};

const USER: &str = "77777777-7777-4777-8777-777777777777";

async fn change(world: &World, verb: &str, volume: &str, network: &str) -> (u16, Value) {
    world.post(&format!("/volumes/{volume}/{verb}"), json!({"network_uuid": network})).await
}

/// VMAPI's job has changed the NICs, and what is heard of the VM says so.
async fn happens(world: &World, vm: &str, networks: &[&str]) {
    world.vm(vm, json!({"nics": nics(networks)}));
    world.service.follower.follow(vm, None).await.unwrap();
}

async fn open(world: &World) -> Vec<NetworkChange> {
    let found = all(&world.service.shared.records.network_changes, &[]).await.unwrap();
    found.into_iter().map(|it| it.value).collect()
}

/// A pass, after the changes that are open have become so much older.
async fn pass(world: &World, seconds: i64) {
    let changes = &world.service.shared.records.network_changes;
    for mut found in all(changes, &[]).await.unwrap() {
        found.value.began -= seconds;
        changes.put(&found.key, store::Expect::Etag(found.etag), &found.value).await.unwrap();
    }
    world.service.networks.end(None).await.unwrap();
}

/// The actions that VMAPI was asked for since the last time.
fn actions(world: &World) -> Vec<String> {
    let action = |url: &str| url.split_once("action=").map(|(_, action)| action.to_owned());
    world.orders().iter().filter_map(|call| action(&call.url)).collect()
}

#[tokio::test(start_paused = true)] // V110 V111 V113
async fn an_attached_network_is_there_once_the_storage_vm_was_restarted() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    let path = format!("/volumes/{volume}");
    world.vm(USER, json!({"state": "running", "nics": nics(&[NETWORK])}));
    let reference = json!({"owner_uuid": OWNER, "vm_uuid": USER});
    world.post(&format!("{path}/addreference"), reference).await;
    let before = world.get(&path).await.1;
    world.orders();
    let (status, mut shown) = change(&world, "attachtonetwork", &volume, SECOND).await;
    assert_eq!((status, &shown["storage_vm_restarts"]), (200, &json!(true)), "{shown}");
    shown.as_object_mut().unwrap().shift_remove("storage_vm_restarts");
    assert_eq!(shown, before, "the volume as it still is");
    let orders = world.orders();
    assert_eq!(orders[0].url, format!("/vms/{vm}?action=add_nics"));
    assert_eq!(orders[0].body, Some(json!({"networks": [{"uuid": SECOND}]})));
    // Another one has to wait, and no restart comes before the NIC.
    let (status, said) = change(&world, "attachtonetwork", &volume, SECOND).await;
    assert_eq!((status, &said["code"]), (409, &json!("VolumeNetworksChanging")));
    let shown = world.service.networks.shown().await.unwrap();
    assert_eq!((&shown[0]["volume"], &shown[0]["way"]), (&json!(volume), &json!("attach")));
    pass(&world, 0).await;
    assert!(actions(&world).is_empty());
    happens(&world, &vm, &[NETWORK, SECOND]).await;
    pass(&world, 0).await;
    pass(&world, 0).await;
    assert_eq!(actions(&world), ["reboot"], "once");
    // While it restarts the volume stays ready; its users stay.
    for state in ["stopped", "running"] {
        world.vm(&vm, json!({"state": state}));
        world.service.follower.follow(&vm, None).await.unwrap();
        let after = world.get(&path).await.1;
        assert_eq!((&after["state"], &after["refs"]), (&json!("ready"), &json!([USER])));
        assert_eq!(after["networks"], json!([NETWORK, SECOND]));
        assert_eq!(after["filesystem_path"], before["filesystem_path"]);
    }
    let (status, shown) = change(&world, "attachtonetwork", &volume, SECOND).await;
    assert_eq!((status, &shown["storage_vm_restarts"]), (200, &json!(false)), "it is there");
    assert!(actions(&world).is_empty() && open(&world).await.is_empty());
}

#[tokio::test(start_paused = true)] // V110
async fn only_fabric_networks_of_the_owner_are_attached() {
    let world = World::start(true).await;
    let (volume, _) = world.volume("name", &[NETWORK]).await;
    for (network, word) in [(OTHER, "missing"), (FOREIGN, "not owned"), (PLAIN, "non-fabric")] {
        let (status, said) = change(&world, "attachtonetwork", &volume, network).await;
        assert_eq!((status, &said["code"]), (409, &json!("InvalidNetworks")));
        assert!(said["message"].as_str().unwrap().contains(word), "{said}");
    }
    let path = format!("/volumes/{volume}/attachtonetwork");
    let foreign = world.post(&path, json!({"network_uuid": SECOND, "owner_uuid": OTHER})).await;
    assert_eq!((foreign.0, &foreign.1["code"]), (404, &json!("VolumeNotFound")));
    let creating = world.create("other", json!({})).await.1["uuid"].as_str().unwrap().to_owned();
    let (status, said) = change(&world, "attachtonetwork", &creating, SECOND).await;
    assert_eq!((status, &said["code"]), (409, &json!("VolumeNotReady")));
    assert!(actions(&world).is_empty() && open(&world).await.is_empty());
}

#[tokio::test(start_paused = true)] // V112
async fn users_that_would_be_cut_off_keep_the_network_unless_forced() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK, SECOND]).await;
    let path = format!("/volumes/{volume}");
    let detach = format!("{path}/detachfromnetwork");
    world.vm(USER, json!({"state": "running", "nics": nics(&[SECOND])}));
    let reference = json!({"owner_uuid": OWNER, "vm_uuid": USER});
    world.post(&format!("{path}/addreference"), reference).await;
    world.orders();
    for network in [SECOND, NETWORK] {
        // On the second it is itself; on the first is the address that all have mounted.
        let (status, said) = change(&world, "detachfromnetwork", &volume, network).await;
        assert_eq!((status, &said["code"]), (409, &json!("VolumeInUse")), "{said}");
        assert!(said["message"].as_str().unwrap().ends_with(USER), "{said}");
    }
    assert!(actions(&world).is_empty() && open(&world).await.is_empty());
    let forced = world.post(&detach, json!({"network_uuid": NETWORK, "force": true})).await;
    assert_eq!((forced.0, &forced.1["storage_vm_restarts"]), (200, &json!(true)));
    let orders = world.orders();
    assert_eq!(orders[0].url, format!("/vms/{vm}?action=remove_nics"));
    let macs = json!({"macs": [nics(&[NETWORK])[0]["mac"]]});
    assert_eq!(orders[0].body, Some(macs));
    happens(&world, &vm, &[SECOND]).await;
    pass(&world, 0).await;
    assert_eq!(actions(&world), ["reboot"]);
    let after = world.get(&path).await.1;
    assert_eq!((&after["networks"], &after["refs"]), (&json!([SECOND]), &json!([USER])));
    let address = nics(&[SECOND])[0]["ip"].as_str().unwrap().to_owned();
    assert!(after["filesystem_path"].as_str().unwrap().starts_with(&address), "{after}");
    // A user that is gone is cut off from nothing, but the last network stays.
    let (status, said) = change(&world, "detachfromnetwork", &volume, SECOND).await;
    assert_eq!((status, &said["code"]), (409, &json!("VolumeLastNetwork")));
    happens(&world, &vm, &[NETWORK, SECOND]).await;
    world.vm(USER, json!({"state": "destroyed"}));
    assert_eq!(change(&world, "detachfromnetwork", &volume, SECOND).await.0, 200);
}

#[tokio::test(start_paused = true)] // V112
async fn two_detaches_at_once_leave_one_network() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK, SECOND]).await;
    let (one, two) = tokio::join!(
        change(&world, "detachfromnetwork", &volume, NETWORK),
        change(&world, "detachfromnetwork", &volume, SECOND),
    );
    let mut statuses = [one.0, two.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    assert_eq!(actions(&world), ["remove_nics"]);
    let left = if one.0 == 200 { SECOND } else { NETWORK };
    happens(&world, &vm, &[left]).await;
    pass(&world, 0).await;
    assert_eq!(change(&world, "detachfromnetwork", &volume, left).await.0, 409);
}

#[tokio::test(start_paused = true)] // V114
async fn a_change_that_does_not_happen_is_given_up() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    // VMAPI refuses it.
    let no =
        json!({"status": 409, "times": 1, "body": {"code": "ValidationFailed", "message": "no"}});
    world.data_centre.behave(json!({"vm_order": [no]}).as_object().unwrap());
    let (status, said) = change(&world, "attachtonetwork", &volume, SECOND).await;
    assert_eq!((status, &said["code"]), (409, &json!("ValidationFailed")));
    assert!(open(&world).await.is_empty());
    // Its job fails.
    assert_eq!(change(&world, "attachtonetwork", &volume, SECOND).await.0, 200);
    let job = open(&world).await[0].job_uuid.clone().unwrap();
    for (execution, is_open) in [("running", true), ("succeeded", true), ("failed", false)] {
        let known = json!({"uuid": job, "execution": execution});
        world.data_centre.set_job(known.as_object().cloned().unwrap());
        pass(&world, 0).await;
        assert_eq!(open(&world).await.len() == 1, is_open, "{execution}");
    }
    // It never comes, or the storage VM goes.
    assert_eq!(change(&world, "attachtonetwork", &volume, SECOND).await.0, 200);
    pass(&world, 1700).await;
    assert_eq!(open(&world).await.len(), 1);
    pass(&world, 200).await;
    assert!(open(&world).await.is_empty());
    assert_eq!(change(&world, "attachtonetwork", &volume, SECOND).await.0, 200);
    world.vm(&vm, json!({"state": "destroyed"}));
    pass(&world, 0).await;
    assert!(open(&world).await.is_empty());
    assert_eq!(world.service.shared.counts.get(Count::NetworkChangesFailed), 3);
    assert_eq!(world.get(&format!("/volumes/{volume}")).await.1["networks"], json!([NETWORK]));
}

#[tokio::test(start_paused = true)] // V114
async fn a_restart_that_vmapi_does_not_take_is_asked_for_again() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    change(&world, "attachtonetwork", &volume, SECOND).await;
    happens(&world, &vm, &[NETWORK, SECOND]).await;
    let no = json!({"status": 503, "times": 2, "body": {"code": "ServiceUnavailableError", "message": "no"}});
    world.data_centre.behave(json!({"vm_order": [no]}).as_object().unwrap());
    for is_open in [true, true, false] {
        pass(&world, 0).await;
        assert_eq!(open(&world).await.len() == 1, is_open);
    }
    assert_eq!(world.service.shared.counts.get(Count::NetworksChanged), 1);
}

#[tokio::test(start_paused = true)] // V114
async fn a_migration_in_between_says_nothing_of_the_nics() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK, SECOND]).await;
    change(&world, "detachfromnetwork", &volume, SECOND).await;
    actions(&world);
    // While it is moved, VMAPI's record of the VM has neither brand nor NICs.
    let whole = world.data_centre.vms.get(&vm).unwrap();
    world
        .data_centre
        .vms
        .put(json!({"uuid": vm, "state": "running"}).as_object().cloned().unwrap());
    pass(&world, 0).await;
    assert_eq!((open(&world).await.len(), actions(&world).len()), (1, 0));
    world.data_centre.vms.put(whole);
    happens(&world, &vm, &[NETWORK]).await;
    pass(&world, 0).await;
    assert_eq!((open(&world).await.len(), actions(&world).len()), (0, 1));
}

#[tokio::test(start_paused = true)] // V114
async fn a_change_that_is_cut_off_anywhere_happens_with_its_restart_or_not_at_all() {
    let run = async |blow, step, place: String| {
        let world = World::start(true).await;
        let (volume, vm) = world.volume("name", &[NETWORK]).await;
        actions(&world);
        world.fuse.set(blow, step);
        let _ = until_killed(change(&world, "attachtonetwork", &volume, SECOND)).await;
        let has_blown = world.fuse.clear();
        let late = world.fuse.take_late();
        let was_asked = world.orders().iter().any(|call| call.status == 202)
            || late.iter().any(|request| request.target().contains("add_nics"));
        let world = world.come_back().await;
        pass(&world, 0).await;
        assert!(actions(&world).is_empty(), "{place}: no restart before the NIC");
        if was_asked {
            happens(&world, &vm, &[NETWORK, SECOND]).await;
        }
        pass(&world, 700).await;
        let reboots = actions(&world).len();
        pass(&world, 1800).await;
        assert!(open(&world).await.is_empty(), "{place}: a change is left");
        assert_eq!(reboots, usize::from(was_asked), "{place}: restarts");
        let networks = world.get(&format!("/volumes/{volume}")).await.1["networks"].clone();
        let expected = if was_asked { json!([NETWORK, SECOND]) } else { json!([NETWORK]) };
        assert_eq!(networks, expected, "{place}");
        has_blown
    };
    Box::pin(at_each_step([2, 2], run)).await;
}
