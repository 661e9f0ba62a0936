// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lists, searches, start-up, headers and eras: statements 15 to 25.

use std::collections::BTreeSet;

use mocks::napi::{Era, NewNic, Server};
use serde_json::json;

use super::{CN, MAC, OTHER_CN, VM, delete, get, send, start, with_nic};

/// Six NICs on one node, two on another, one of the server itself.
async fn crowd(era: Era) -> Server {
    let server = start(era).await;
    for at in 1..=8 {
        let cn = if at <= 6 { CN } else { OTHER_CN };
        server.store().add_nic(NewNic::zone(&format!("90b8d000000{at}"), VM, cn)).unwrap();
    }
    server.store().add_nic(NewNic::server("0050560000aa", CN)).unwrap();
    server
}

#[tokio::test] // S15
async fn unknown_parameters_are_named_together() {
    let server = crowd(Era::Master).await;
    let refused = get(&server, "/nics?bogus=1&mac=x").await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.body["errors"][0]["field"], json!(["bogus", "mac"]));
    assert_eq!(refused.body["errors"][0]["code"], "UnknownParameters");
}

#[tokio::test] // S16
async fn cn_uuid_takes_lists_and_lower_case_only() {
    let server = crowd(Era::Master).await;
    assert_eq!(get(&server, &format!("/nics?cn_uuid={CN},{OTHER_CN}")).await.macs().len(), 8);
    assert_eq!(
        get(&server, &format!("/nics?cn_uuid={CN}&cn_uuid={OTHER_CN}")).await.macs().len(),
        8
    );
    let upper = "3000000A-0000-4000-8000-000000000001";
    let refused = get(&server, &format!("/nics?cn_uuid={upper}")).await;
    assert_eq!(refused.body["errors"][0]["invalid"], json!([upper]));
}

#[tokio::test] // S17
async fn a_page_has_limits() {
    let server = crowd(Era::Master).await;
    for bad in ["0", "1001", "", "1.5"] {
        assert_eq!(
            get(&server, &format!("/nics?limit={bad}")).await.fields(),
            ["limit"],
            "{bad:?}"
        );
    }
    assert_eq!(get(&server, "/nics?offset=500").await.text, "[]");
    let pages = [0, 4, 8].map(|offset| format!("/nics?limit=4&offset={offset}"));
    let mut seen = BTreeSet::new();
    for page in &pages {
        seen.extend(get(&server, page).await.macs());
    }
    assert_eq!(seen.len(), 9);
}

#[tokio::test] // S18
async fn server_nics_are_found_by_owner_not_by_node() {
    let server = crowd(Era::Master).await;
    assert!(
        !get(&server, &format!("/nics?cn_uuid={CN}"))
            .await
            .macs()
            .contains(&"00:50:56:00:00:aa".to_owned())
    );
    let own = get(&server, &format!("/nics?belongs_to_type=server&belongs_to_uuid={CN}")).await;
    assert_eq!(own.macs(), ["00:50:56:00:00:aa"]);
}

#[tokio::test] // S19
async fn pages_come_in_any_order() {
    let server = crowd(Era::Master).await;
    let mut orders = BTreeSet::new();
    for _ in 0..8 {
        orders.insert(get(&server, "/nics").await.macs());
    }
    assert!(orders.len() > 1, "eight answers in the same order");
}

#[tokio::test] // S20
async fn search_nics_exists_by_era() {
    let server = crowd(Era::Master).await;
    let path = format!("/search/nics?cn_uuid={CN}");
    let missing = get(&server, &path).await;
    assert_eq!(
        (missing.status, &missing.body["message"]),
        (404, &json!("/search/nics does not exist"))
    );
    assert!(!missing.headers.contains_key("x-request-id"));
    for era in [Era::Rfd58, Era::EraC] {
        server.set_era(era);
        assert_eq!(get(&server, &path).await.macs().len(), 6);
    }
}

#[tokio::test] // S21
async fn search_ips_needs_an_address_and_a_match() {
    let server = start(Era::Master).await;
    assert_eq!(get(&server, "/search/ips").await.status, 422);
    assert_eq!(get(&server, "/search/ips?ip=1.2.3.4").await.status, 404);
}

#[tokio::test] // S22
async fn while_starting_only_ping_answers() {
    let server = with_nic(Era::Master).await;
    server.store().set_initializing(true);
    let busy = get(&server, "/nics").await;
    assert_eq!((busy.status, &busy.body["code"]), (503, &json!("ServiceUnavailableError")));
    let ping = get(&server, "/ping").await;
    assert_eq!((ping.status, &ping.body["healthy"]), (200, &json!(false)));
    server.store().set_initializing(false);
    assert_eq!(get(&server, "/nics").await.status, 200);
}

#[tokio::test] // S23
async fn request_ids_are_echoed_or_made() {
    let server = with_nic(Era::Master).await;
    let echoed = send(&server, "GET", "/ping", &[("x-request-id", "abc")], None).await;
    assert_eq!(echoed.headers["x-request-id"], "abc");
    assert!(get(&server, "/ping").await.headers.contains_key("x-request-id"));
    assert!(!get(&server, "/bogus").await.headers.contains_key("x-request-id"));
}

#[tokio::test] // S24
async fn the_oldest_era_lists_everything_and_deletes_whatever_the_tag() {
    let server = crowd(Era::Old2015).await;
    assert_eq!(get(&server, &format!("/nics?cn_uuid={OTHER_CN}")).await.macs().len(), 9);
    let gone = delete(&server, "/nics/90b8d0000001", Some("DEADBEEF")).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test] // S25
async fn false_flags_and_unset_values_are_left_out() {
    let server = with_nic(Era::Master).await;
    let nic = get(&server, &format!("/nics/{MAC}")).await.body;
    for absent in ["ip", "model", "underlay", "allow_ip_spoofing", "nic_tags_provided"] {
        assert!(nic.get(absent).is_none(), "{absent}");
    }
}
