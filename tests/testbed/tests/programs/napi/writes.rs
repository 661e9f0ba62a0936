// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Creating, changing and deleting one NIC: statements 1 to 14.

use mocks::faults::{Action, Rule};
use mocks::napi::{Era, NewNic};
use serde_json::json;

use super::{CN, MAC, VM, delete, get, minimal, post, put, send, start, with_nic};

const PATH: &str = "/nics/90b8d0000001";

#[tokio::test] // S1
async fn create_answers_200_with_etag_and_equal_times() {
    let server = start(Era::Master).await;
    let made = post(&server, "/nics", minimal(MAC)).await;
    assert_eq!(made.status, 200);
    assert_eq!(made.etag().len(), 8);
    assert_eq!(made.body["state"], "provisioning");
    assert_eq!(made.body["created_timestamp"], made.body["modified_timestamp"]);
}

#[tokio::test] // S2
async fn missing_keys_are_listed_by_field() {
    let server = start(Era::Master).await;
    let refused = post(&server, "/nics", json!({})).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.body["message"], "Missing parameters");
    assert_eq!(refused.fields(), ["belongs_to_type", "belongs_to_uuid", "owner_uuid"]);
}

#[tokio::test] // S3
async fn a_known_address_is_a_duplicate_in_any_spelling() {
    let server = with_nic(Era::Master).await;
    for mac in [MAC, "90b8d0000001", "90-B8-D0-00-00-01", "90:b8:d0:0:0:1"] {
        let refused = post(&server, "/nics", minimal(mac)).await;
        assert_eq!(refused.status, 422, "{mac}");
        assert_eq!(refused.body["errors"][0]["code"], "Duplicate", "{mac}");
    }
}

#[tokio::test] // S4
async fn every_spelling_finds_the_nic() {
    let server = with_nic(Era::Master).await;
    for mac in ["90b8d0000001", MAC, "90-b8-d0-00-00-01", "90:b8:d0:0:0:1", "90B8D0000001"] {
        let found = get(&server, &format!("/nics/{mac}")).await;
        assert_eq!(found.body["mac"], MAC, "{mac}");
    }
}

#[tokio::test] // S5
async fn bad_and_unknown_addresses() {
    let server = with_nic(Era::Master).await;
    assert_eq!(get(&server, "/nics/nonsense").await.status, 422);
    let unknown = get(&server, "/nics/90b8d0999999").await;
    assert_eq!((unknown.status, &unknown.body["message"]), (404, &json!("nic not found")));
}

#[tokio::test] // S6
async fn an_empty_update_makes_a_new_tag_and_a_later_time() {
    let server = with_nic(Era::Master).await;
    let before = get(&server, PATH).await;
    let after = put(&server, PATH, json!({})).await;
    assert_eq!(after.status, 200);
    assert_ne!(before.etag(), after.etag());
    assert_eq!(before.body["created_timestamp"], after.body["created_timestamp"]);
    assert!(after.body["modified_timestamp"].as_str() > before.body["modified_timestamp"].as_str());
}

#[tokio::test] // S7
async fn update_ignores_strangers_and_refuses_bad_values() {
    let server = with_nic(Era::Master).await;
    let kept = put(&server, PATH, json!({ "bogus": 1, "mac": "000000000001" })).await;
    assert_eq!((kept.status, &kept.body["mac"]), (200, &json!(MAC)));
    for body in
        [json!({ "cn_uuid": null }), json!({ "state": "up" }), json!({ "primary": "maybe" })]
    {
        assert_eq!(put(&server, PATH, body).await.status, 422);
    }
}

#[tokio::test] // S8
async fn update_honours_if_match() {
    let server = with_nic(Era::Master).await;
    let tag = get(&server, PATH).await.etag();
    let body = || Some(json!({ "state": "stopped" }));
    assert_eq!(send(&server, "PUT", PATH, &[("if-match", "DEADBEEF")], body()).await.status, 412);
    let done = send(&server, "PUT", PATH, &[("if-match", &tag)], body()).await;
    assert_eq!(done.status, 200);
    assert_ne!(done.etag(), tag);
}

#[tokio::test] // S9
async fn a_writer_in_between_makes_update_a_500_without_code() {
    let server = with_nic(Era::Master).await;
    server.add_fault(Rule::new("PUT", "/nics/*", Action::ChangeRow).times(1));
    let failed = put(&server, PATH, json!({ "state": "stopped" })).await;
    assert_eq!(failed.status, 500);
    assert!(failed.body.get("code").is_none());
    assert!(failed.body["message"].as_str().unwrap().contains("was expected to have etag"));
    assert_eq!(get(&server, PATH).await.body["state"], "running");
}

#[tokio::test] // F152
async fn update_that_meets_one_of_its_address_is_told_that_the_address_exists() {
    let server = start(Era::Master).await;
    let nics = json!([{ "mac": MAC, "primary": true, "ip": "10.1.0.5", "netmask": "255.255.255.0",
        "nic_tag": "blue", "vlan_id": 7, "gateway": "10.1.0.1" }]);
    let vm = json!({ "uuid": VM, "state": "running", "nics": nics });
    server.store().seed_from_vms(&[vm.as_object().unwrap().clone()], CN).unwrap();
    let before = get(&server, PATH).await;
    server.add_fault(Rule::new("PUT", "/nics/*", Action::ChangeAddress).times(1));
    let failed = put(&server, PATH, json!({ "state": "stopped" })).await;
    assert_eq!((failed.status, &failed.body["code"]), (422, &json!("InvalidParameters")));
    let [ip, network] = ["ip", "network_uuid"].map(|key| before.body[key].as_str().unwrap());
    let message = format!("IP {ip} exists on network {network}");
    assert_eq!(
        failed.body["errors"],
        json!([{"field": "ip", "code": "Duplicate", "message": message}])
    );
    assert_eq!(get(&server, PATH).await.body["state"], "running");
    assert_eq!(put(&server, PATH, json!({ "state": "stopped" })).await.status, 200);
}

#[tokio::test] // S10
async fn delete_is_204_once() {
    let server = with_nic(Era::Master).await;
    let gone = delete(&server, PATH, None).await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    assert_eq!(delete(&server, PATH, None).await.status, 404);
}

#[tokio::test] // S11
async fn a_delete_honours_if_match() {
    let server = with_nic(Era::Master).await;
    let stale = get(&server, PATH).await.etag();
    put(&server, PATH, json!({})).await;
    assert_eq!(delete(&server, PATH, Some(&stale)).await.status, 412);
    let tag = get(&server, PATH).await.etag();
    server.add_fault(Rule::new("DELETE", "/nics/*", Action::ChangeRow).times(1));
    assert_eq!(delete(&server, PATH, Some(&tag)).await.status, 412);
    assert!(server.store().nic(MAC).is_some());
    assert_eq!(delete(&server, PATH, Some("*")).await.status, 204);
}

#[tokio::test] // S12
async fn if_match_takes_quotes_and_lists_and_minds_case() {
    let server = with_nic(Era::Master).await;
    let tag = get(&server, PATH).await.etag();
    let status = async |value: String| {
        send(&server, "GET", PATH, &[("if-match", &value)], None).await.status
    };
    assert_eq!(status(format!("\"{tag}\"")).await, 200);
    assert_eq!(status(format!("DEADBEEF, {tag}")).await, 200);
    assert_eq!(status(format!("x{}", tag.to_lowercase())).await, 412);
}

#[tokio::test] // S13
async fn if_none_match_is_304_without_a_body() {
    let server = with_nic(Era::Master).await;
    let tag = get(&server, PATH).await.etag();
    let same = send(&server, "GET", PATH, &[("if-none-match", &tag)], None).await;
    assert_eq!((same.status, same.text.as_str()), (304, ""));
}

#[tokio::test] // S14
async fn primary_moves_and_touches_siblings_tags_only() {
    let server = start(Era::Master).await;
    server.store().add_nic(NewNic::zone(MAC, VM, CN).with("primary", json!(true))).unwrap();
    server.store().add_nic(NewNic::zone("90:b8:d0:00:00:02", VM, CN)).unwrap();
    let before = get(&server, PATH).await;
    put(&server, "/nics/90b8d0000002", json!({ "primary": true })).await;
    let after = get(&server, PATH).await;
    assert_eq!(after.body["primary"], false);
    assert_ne!(after.etag(), before.etag());
    assert!(after.etag().starts_with('u'));
    assert_eq!(after.body["modified_timestamp"], before.body["modified_timestamp"]);
}
