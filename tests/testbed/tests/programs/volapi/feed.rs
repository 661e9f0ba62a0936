// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What follows from VMAPI's changefeed: users come and go, storage VMs stop and are destroyed, the feed is cut,
//! VMs are migrated.

use bytes::Bytes;
use http::Request;
use mocks::faults::{Mock, Reply};
use serde_json::{Value, json};

use super::rig::{NODE, Rig, Volapi, object, user};
use crate::common::until;

const USER: &str = "99999999-9999-4999-8999-999999999999";
const OTHER_NODE: &str = "c0000000-0000-4000-8000-000000000002";

async fn in_state(volapi: &Volapi, volume: &Value, state: &str) {
    let uuid = volume["uuid"].as_str().unwrap();
    until(state, async || volapi.get(uuid).await.1["state"] == state).await;
}

fn storage_vm(volume: &Value) -> &str {
    volume["vm_uuid"].as_str().unwrap()
}

#[tokio::test] // V30 V31
async fn a_reference_comes_and_goes_with_its_vm() {
    let rig = Rig::start().await;
    let volapi = rig.volapi(json!({})).await;
    let (one, two) = (volapi.ready("one").await, volapi.ready("two").await);
    rig.put(USER, user("running", &["one", "two"])).await;
    volapi.used_by(&one, &[USER]).await;
    volapi.used_by(&two, &[USER]).await;
    // A single record that says destroyed is published without a word of its state.
    rig.put(USER, json!({"state": "destroyed"})).await;
    volapi.used_by(&one, &[]).await;
    volapi.used_by(&two, &[]).await;
    // VMAPI publishes the end of a VM in a node's list by its state only.
    rig.put(USER, user("stopped", &["two"])).await;
    volapi.used_by(&two, &[USER]).await;
    let mut record = rig.vmapi.get(USER).unwrap();
    record.extend(object(json!({"state": "failed", "zone_state": "failed"})));
    tell(&rig, "PUT", &format!("/vms?server_uuid={NODE}"), json!({"vms": {USER: record}})).await;
    volapi.used_by(&two, &[]).await;
    assert_eq!(volapi.references(&one).await, json!([]));
    volapi.stop().await;
}

#[tokio::test] // V26 V29
async fn a_volume_follows_its_storage_vm() {
    let rig = Rig::start().await;
    let volapi = rig.volapi(json!({"reboot_grace": "0s"})).await;
    let volume = volapi.ready("name").await;
    let vm = storage_vm(&volume);
    let address = rig.vmapi.get(vm).unwrap()["nics"][0]["ip"].as_str().unwrap().to_owned();
    assert_eq!(volume["filesystem_path"], format!("{address}:/zones/{vm}/data"));
    rig.put(vm, json!({"state": "stopped"})).await;
    in_state(&volapi, &volume, "failed").await;
    rig.put(vm, json!({"state": "running", "nics": [{"ip": "192.168.130.7"}]})).await;
    in_state(&volapi, &volume, "ready").await;
    let shown = volapi.get(volume["uuid"].as_str().unwrap()).await.1;
    assert_eq!(shown["filesystem_path"], format!("192.168.130.7:/zones/{vm}/data"));
    rig.put(vm, json!({"state": "destroyed"})).await;
    in_state(&volapi, &volume, "failed").await;
    volapi.stop().await;
}

#[tokio::test] // V34
async fn what_happened_while_the_feed_was_cut_is_in_the_next_listing() {
    let mut rig = Rig::start().await;
    let volapi = rig.volapi(json!({})).await;
    let (kept, lost) = (volapi.ready("kept").await, volapi.ready("lost").await);
    rig.put(USER, user("running", &["kept"])).await;
    volapi.used_by(&kept, &[USER]).await;
    rig.vmapi_dies().await;
    // Nobody is told of these.
    rig.put(USER, json!({"state": "destroyed"})).await;
    rig.put(OTHER_NODE, user("running", &["kept"])).await;
    rig.put(storage_vm(&lost), json!({"state": "destroyed"})).await;
    rig.vmapi_returns().await;
    volapi.used_by(&kept, &[OTHER_NODE]).await;
    in_state(&volapi, &lost, "failed").await;
    // The feed is up again, not just listed once.
    rig.put(OTHER_NODE, json!({"state": "destroyed"})).await;
    volapi.used_by(&kept, &[]).await;
    volapi.stop().await;
}

#[tokio::test] // V33
async fn a_migration_keeps_references_and_path() {
    let rig = Rig::start().await;
    let volapi = rig.volapi(json!({})).await;
    let volume = volapi.ready("name").await;
    rig.put(USER, user("running", &["name"])).await;
    volapi.used_by(&volume, &[USER]).await;
    let before = volapi.get(volume["uuid"].as_str().unwrap()).await.1;
    for vm in [USER, storage_vm(&volume)] {
        let record = rig.vmapi.get(vm).unwrap();
        // The switch leaves a record of two fields, until the target's agent reports the VM.
        let path = format!("/migrations/{vm}/updateVmServerUuid");
        tell(&rig, "POST", &path, json!({"server_uuid": OTHER_NODE})).await;
        assert_eq!(rig.vmapi.get(vm).unwrap().get("brand"), None);
        rig.heard(&volapi, &volume, &[USER]).await;
        assert_eq!(volapi.get(volume["uuid"].as_str().unwrap()).await.1, before, "{vm} is moved");
        let mut moved = record;
        moved.insert("server_uuid".to_owned(), json!(OTHER_NODE));
        rig.put(vm, moved.into()).await;
        rig.heard(&volapi, &volume, &[USER]).await;
        assert_eq!(volapi.get(volume["uuid"].as_str().unwrap()).await.1, before, "{vm} was moved");
    }
    volapi.stop().await;
}

/// Sends VMAPI a request of somebody else.
async fn tell(rig: &Rig, method: &str, path: &str, body: Value) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request: Request<Bytes> = request.body(body.to_string().into()).unwrap();
    let Reply::Full(answer) = rig.vmapi.handle(request).await else { panic!("VMAPI died") };
    assert_eq!(answer.status(), 200, "{answer:?}");
}
