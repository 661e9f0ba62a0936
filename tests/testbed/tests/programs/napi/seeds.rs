// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Seeding from a node's VMs, and addresses that come back or stay reserved.

use std::time::Duration;

use mocks::napi::{Era, NewNic};
use serde_json::{Map, Value, json};

use super::{CN, MAC, OWNER, VM, delete, get, post, put, start};

fn vm(state: &str) -> Map<String, Value> {
    let nics = json!([{ "mac": MAC, "primary": true, "ip": "10.1.0.5", "netmask": "255.255.255.0",
        "nic_tag": "blue", "vlan_id": 7, "gateway": "10.1.0.1" }]);
    let vm = json!({ "uuid": VM, "owner_uuid": OWNER, "state": state, "nics": nics });
    vm.as_object().unwrap().clone()
}

#[tokio::test]
async fn the_records_of_a_nodes_vms() {
    let server = start(Era::Master).await;
    assert_eq!(server.store().seed_from_vms(&[vm("running")], CN).unwrap(), [MAC]);
    let nic = server.store().nic(MAC).unwrap();
    assert_eq!(nic["belongs_to_uuid"], VM);
    assert_eq!(nic["cn_uuid"], CN);
    assert_eq!(nic["state"], "running");
    assert_eq!((&nic["ip"], &nic["vlan_id"]), (&json!("10.1.0.5"), &json!(7)));
}

#[tokio::test]
async fn records_that_went_wrong() {
    let server = start(Era::Master).await;
    let store = server.store();
    let hour = Duration::from_secs(3600);
    store.add_leaked("90b8d0000011", CN, hour).unwrap();
    store.add_without_cn("90b8d0000012", VM, hour).unwrap();
    store.add_stuck("90b8d0000013", VM, CN, hour).unwrap();
    store.add_admin_nic("90b8d0000014", CN, false).unwrap();
    assert_eq!(get(&server, &format!("/nics?cn_uuid={CN}")).await.macs().len(), 2);
    assert!(store.nic("90b8d0000012").unwrap().get("cn_uuid").is_none());
    assert_eq!(store.nic("90b8d0000013").unwrap()["state"], "provisioning");
    assert_eq!(store.nic("90b8d0000014").unwrap()["belongs_to_type"], "other");
}

#[tokio::test]
async fn a_reserved_address_stays_reserved_when_its_nic_goes() {
    let server = start(Era::Master).await;
    server.store().seed_from_vms(&[vm("running")], CN).unwrap();
    let network = server.store().nic(MAC).unwrap()["network_uuid"].as_str().unwrap().to_owned();
    let path = format!("/networks/{network}/ips/10.1.0.5");
    put(&server, &path, json!({ "reserved": true })).await;
    delete(&server, "/nics/90b8d0000001", None).await;
    let ip = get(&server, &path).await.body;
    assert_eq!(
        (&ip["reserved"], &ip["free"], &ip["owner_uuid"]),
        (&json!(true), &json!(false), &json!(OWNER))
    );
    assert!(ip.get("belongs_to_uuid").is_none());
}

#[tokio::test]
async fn a_full_network_is_507() {
    let server = start(Era::Master).await;
    server.store().add_nic(NewNic::zone(MAC, VM, CN)).unwrap();
    post(&server, "/nic_tags", json!({ "name": "blue" })).await;
    let network = json!({ "name": "n", "nic_tag": "blue", "subnet": "10.2.0.0/24",
        "provision_start_ip": "10.2.0.5", "provision_end_ip": "10.2.0.5" });
    let made = post(&server, "/networks", network).await;
    let path = format!("/networks/{}/nics", made.body["uuid"].as_str().unwrap());
    let body = || json!({ "belongs_to_type": "zone", "belongs_to_uuid": VM, "owner_uuid": OWNER });
    assert_eq!(post(&server, &path, body()).await.body["ip"], "10.2.0.5");
    let full = post(&server, &path, body()).await;
    assert_eq!((full.status, &full.body["code"]), (507, &json!("SubnetFull")));
}
