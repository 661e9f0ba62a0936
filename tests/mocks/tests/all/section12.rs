// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the current NAPI does and no recording has: section 12 of `docs/contract/napi.md`.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use mocks::faults::{Mock as _, Reply};
use mocks::napi::{Options, SeedFile, Store, database_gone, storage_hangs};
use serde_json::{Value, json};
use tokio::time::Instant;

const CN: &str = "c0000000-0000-4000-8000-000000000001";
const VM: &str = "f0000000-0000-4000-8000-000000000001";
const OWNER: &str = "a0000000-0000-4000-8000-000000000001";
const OTHER: &str = "a0000000-0000-4000-8000-000000000002";
const NET: &str = "e0000000-0000-4000-8000-000000000001";
const SMALL: &str = "e0000000-0000-4000-8000-000000000002";
const POOL: &str = "d0000000-0000-4000-8000-000000000001";
const FIRST: &str = "/nics/90b8d0000001";

/// Two networks (the second has one address and an owner), a pool of the second, two NICs.
fn store() -> Store {
    let seed = json!({
        "nic_tags": [{"name": "admin"}, {"name": "blue"}],
        "networks": [
            {"uuid": NET, "name": "wide", "nic_tag": "blue", "vlan_id": 7, "subnet": "10.1.0.0/24",
                "provision_start_ip": "10.1.0.5", "provision_end_ip": "10.1.0.250"},
            {"uuid": SMALL, "name": "small", "nic_tag": "blue", "vlan_id": 8, "subnet": "10.2.0.0/24",
                "provision_start_ip": "10.2.0.5", "provision_end_ip": "10.2.0.5", "owner_uuids": [OTHER]},
        ],
        "network_pools": [{"uuid": POOL, "name": "pool", "networks": [SMALL]}],
        "nics": [nic("90b8d0000001", json!({"primary": true, "network_uuid": NET, "ip": "10.1.0.9"})),
            nic("90b8d0000002", json!({}))],
    });
    let seed: SeedFile = serde_json::from_value(seed).unwrap();
    let store = Store::new(Options::default());
    store.seed(&seed).unwrap();
    store
}

fn nic(mac: &str, over: Value) -> Value {
    let mut nic = json!({"mac": mac, "belongs_to_type": "zone", "belongs_to_uuid": VM,
        "owner_uuid": OWNER, "cn_uuid": CN, "check_owner": true});
    for (key, value) in over.as_object().unwrap() {
        nic[key] = value.clone();
    }
    nic
}

async fn send(store: &Store, request: Request<Bytes>) -> Response<Bytes> {
    let Reply::Full(response) = store.handle(request).await else { panic!("no answer") };
    response
}

async fn ask(store: &Store, line: &str, body: Option<Value>) -> (u16, Value) {
    let (method, target) = line.split_once(' ').unwrap();
    let request = Request::builder().method(method).uri(target);
    let request = request.header("content-type", "application/json");
    let body = Bytes::from(body.map(|body| body.to_string()).unwrap_or_default());
    let response = send(store, request.body(body).unwrap()).await;
    let text = serde_json::from_slice(response.body()).unwrap_or_default();
    (response.status().as_u16(), text)
}

/// Request, body, status, and a value at a pointer into the answer.
type Case = (String, Option<Value>, u16, &'static str, Value);

async fn hold(cases: Vec<Case>) {
    for (line, body, status, pointer, value) in cases {
        let store = store();
        let shown = format!("{line} {body:?}");
        let (found, answer) = ask(&store, &line, body).await;
        assert_eq!(found, status, "{shown}: {answer}");
        let at = answer.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(at, value, "{shown}: {answer}");
    }
}

#[tokio::test] // S35
async fn cn_uuid_may_be_an_array_of_one() {
    let store = store();
    let third = nic("90b8d0000003", json!({"cn_uuid": [CN]}));
    assert_eq!(ask(&store, "POST /nics", Some(third)).await.0, 200);
    let put = ask(&store, &format!("PUT {FIRST}"), Some(json!({"cn_uuid": [CN]}))).await;
    assert_eq!(put.1["cn_uuid"], json!([CN]));
    let (_, listed) = ask(&store, &format!("GET /nics?cn_uuid={CN}"), None).await;
    let mut printed: Vec<String> =
        listed.as_array().unwrap().iter().map(|nic| nic["cn_uuid"].to_string()).collect();
    printed.sort();
    let (text, array) = (json!(CN).to_string(), json!([CN]).to_string());
    assert_eq!(printed, [text, array.clone(), array]);
    let two = json!({"cn_uuid": [CN, CN]});
    assert_eq!(ask(&store, &format!("PUT {FIRST}"), Some(two)).await.0, 422);
}

#[tokio::test]
async fn a_nic_whose_network_is_gone_voids_its_pages() {
    let store = store();
    assert!(store.lose_network("90b8d0000001"));
    let (status, one) = ask(&store, &format!("GET {FIRST}"), None).await;
    assert_eq!((status, &one["code"]), (500, &json!("InternalError")));
    let (status, list) = ask(&store, "GET /nics", None).await;
    let why = json!({"message": "first of 2 errors: Internal error"});
    assert_eq!((status, list), (500, why));
    assert_eq!(ask(&store, "GET /nics?limit=1&offset=1", None).await.0, 200);
}

#[tokio::test]
async fn what_older_code_has_stored_is_found_and_shown_as_it_is() {
    let store = store();
    let (mac, caps) = ("90b8d0000002", CN.to_uppercase());
    for value in [json!(caps), json!([caps, CN])] {
        assert!(store.store_unchecked(mac, "cn_uuid", &value));
        let (_, listed) = ask(&store, &format!("GET /nics?cn_uuid={CN}"), None).await;
        assert!(listed.as_array().unwrap().iter().any(|nic| nic["cn_uuid"] == value), "{listed}");
    }
    assert!(!store.store_unchecked(mac, "state", &json!("odd")), "only what has been found so");
}

#[tokio::test] // S36
async fn accept_is_compared_whole() {
    let store = store();
    for (accept, status, text) in [
        ("application/json", 200, "{"),
        ("*/*", 200, "{"),
        ("application/json; charset=utf-8", 406, "{"),
        ("text/plain", 406, "{"),
        ("application/octet-stream", 200, "[object Object]"),
    ] {
        let request = Request::get(FIRST).header("accept", accept).body(Bytes::new()).unwrap();
        let response = send(&store, request).await;
        assert_eq!(response.status(), status, "{accept}");
        assert!(response.body().starts_with(text.as_bytes()), "{accept}: {:?}", response.body());
    }
}

#[tokio::test] // S37
async fn lists_are_read_as_the_real_parser_does() {
    let get = |query: String, status: u16, pointer, value| {
        (format!("GET /nics?{query}"), None, status, pointer, value)
    };
    let two = || json!("90:b8:d0:00:00:02");
    hold(vec![
        get(
            format!("cn_uuid={CN},%20{OTHER}"),
            422,
            "/errors/0/invalid/0",
            json!(format!(" {OTHER}")),
        ),
        get(format!("cn_uuid[]={OTHER}"), 200, "", json!([])),
        get(format!("cn_uuid[0]={OTHER}&cn_uuid[1]={OTHER}"), 200, "", json!([])),
        get(
            format!("cn_uuid[a]={CN}"),
            422,
            "/errors/0/message",
            json!("must be an array of strings"),
        ),
        get("state=*&belongs_to_type=*&offset=1&limit=1e2".to_owned(), 200, "/0/mac", two()),
        get("limit=1e4".to_owned(), 422, "/errors/0/field", json!("limit")),
        get("state=(x".to_owned(), 500, "/code", Value::Null),
        get("=&offset=1".to_owned(), 200, "/0/mac", two()),
    ])
    .await;
}

#[tokio::test] // S38
async fn networks_are_checked_on_post_and_put() {
    let field = "/errors/0/field";
    let (network, owner, ip) = (json!("network_uuid"), json!("owner_uuid"), json!("ip"));
    let mut cases = Vec::new();
    for line in ["POST /nics", "PUT /nics/90b8d0000002"] {
        let case = |over: Value, value: &Value| {
            let body = nic("90b8d0000004", over);
            (line.to_owned(), Some(body), 422, field, value.clone())
        };
        cases.push(case(json!({"network_uuid": NET, "nic_tag": "admin"}), &network));
        cases.push(case(json!({"network_uuid": NET, "vlan_id": 8}), &network));
        cases.push(case(json!({"network_uuid": SMALL}), &owner));
        cases.push(case(json!({"network_uuid": NET, "ip": "10.1.0.9"}), &ip));
        cases.push(case(json!({"network_uuid": POOL, "ip": "10.2.0.5"}), &ip));
    }
    let tag = |tag: &str| Some(nic("90b8d0000004", json!({"nic_tag": tag})));
    cases.push(("POST /nics".to_owned(), tag("admin/12"), 200, "/nic_tag", json!("admin")));
    cases.push(("POST /nics".to_owned(), tag("admin/1/2"), 422, field, json!("nic_tag")));
    let moved = json!({"network_uuid": SMALL, "owner_uuid": OWNER});
    cases.push((format!("PUT {FIRST}"), Some(moved), 422, field, owner));
    hold(cases).await;
    let store = store();
    for (mac, status) in [("90b8d0000005", 200), ("90b8d0000006", 422)] {
        let body = nic(mac, json!({"network_uuid": POOL, "owner_uuid": OTHER}));
        let (found, answer) = ask(&store, "POST /nics", Some(body)).await;
        assert_eq!(found, status, "{answer}");
        if status == 422 {
            let message = answer.pointer("/errors/0/message").unwrap().as_str().unwrap();
            assert!(message.starts_with("All networks in pool"), "{message}");
        }
    }
}

#[tokio::test] // S39
async fn networks_pools_and_addresses_are_found() {
    let get = |path: String, status: u16, pointer, value| {
        (format!("GET {path}"), None, status, pointer, value)
    };
    hold(vec![
        get(format!("/networks?owner_uuid={OTHER}&name=small"), 200, "/0/uuid", json!(SMALL)),
        get("/networks?family=ipv5".to_owned(), 422, "/errors/0/field", json!("family")),
        get("/networks?uuid=e0000000*".to_owned(), 200, "/1/uuid", json!(NET)),
        get("/networks?uuid=e1*".to_owned(), 200, "", json!([])),
        get("/network_pools".to_owned(), 200, "/0/networks/0", json!(SMALL)),
        get(format!("/network_pools/{POOL}"), 200, "/name", json!("pool")),
        get(format!("/network_pools/{NET}"), 404, "/code", json!("ResourceNotFound")),
        get("/search/ips?ip=10.1.0.9".to_owned(), 200, "/0/belongs_to_uuid", json!(VM)),
        get(
            format!("/search/ips?ip=10.1.0.9&belongs_to_uuid={CN}"),
            404,
            "/code",
            json!("ResourceNotFound"),
        ),
    ])
    .await;
    let store = store();
    let put = json!({"resolvers": ["8.8.8.8"]});
    assert_eq!(ask(&store, &format!("PUT /networks/{NET}"), Some(put)).await.0, 200);
    assert_eq!(ask(&store, &format!("GET {FIRST}"), None).await.1["resolvers"], json!(["8.8.8.8"]));
}

#[tokio::test] // S40
async fn put_of_a_primary_touches_the_siblings_tags() {
    let store = store();
    let third = nic("90b8d0000003", json!({}));
    ask(&store, "POST /nics", Some(third)).await;
    let tags = async || {
        let mut tags = Vec::new();
        for n in 1..4 {
            let request = Request::get(format!("/nics/90b8d000000{n}")).body(Bytes::new()).unwrap();
            tags.push(send(&store, request).await.headers()["etag"].to_str().unwrap().to_owned());
        }
        tags
    };
    let before = tags().await;
    ask(&store, &format!("PUT {FIRST}"), Some(json!({}))).await;
    let after = tags().await;
    assert!(after[1].starts_with('u') && after[1] == after[2], "{before:?} {after:?}");
    assert_ne!(before[1], after[1]);
    ask(&store, "PUT /nics/90b8d0000002", Some(json!({}))).await;
    assert_eq!(tags().await[0], after[0], "the primary's tag stays");
}

#[tokio::test(start_paused = true)] // S41
async fn storage_has_two_kinds_of_outage() {
    let store = store();
    database_gone().into_iter().for_each(|rule| store.faults().add(rule));
    let started = Instant::now();
    for n in 0..5 {
        let (status, answer) = ask(&store, "GET /nics", None).await;
        assert_eq!((status, answer.get("code")), (500, None), "{answer}");
        let seconds = [0, 0, 0, 5, 10][n];
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
    assert_eq!(ask(&store, "GET /ping", None).await.1["healthy"], true);
    store.faults().clear();
    storage_hangs(60_000).into_iter().for_each(|rule| store.faults().add(rule));
    let line = format!("DELETE {FIRST}");
    let impatient = tokio::time::timeout(Duration::from_secs(30), ask(&store, &line, None)).await;
    assert!(impatient.is_err() && store.nic("90b8d0000001").is_some());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(store.nic("90b8d0000001").is_none(), "committed although the client had gone");
}

#[tokio::test] // S43
async fn a_filter_that_the_storage_refuses_is_shown_as_it_was_given() {
    let store = store();
    for (query, shown) in [
        ("state=(x", "(&(state=(x))"),
        ("nic_tag=a*(&state=running", "(&(nic_tag=a*()(state=running))"),
        ("belongs_to_type=zone,o*)", "(&(|(belongs_to_type=zone)(belongs_to_type=o*))))"),
        ("cn_uuid=", "(&(|))"),
    ] {
        let (status, answer) = ask(&store, &format!("GET /nics?{query}"), None).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!((status, answer.get("code")), (500, None), "{query}: {answer}");
        assert!(
            message.ends_with(&format!(": {shown} is an invalid filter")),
            "{query}: {message}"
        );
    }
}

#[tokio::test] // S42
async fn names_owners_pools_slashes_and_sentences() {
    let must = "networks must match (have";
    hold(vec![
        (format!("GET /networks?owner_uuid={OTHER}"), None, 200, "/0/uuid", json!(SMALL)),
        (format!("GET /networks?owner_uuid={OTHER}"), None, 200, "/1", Value::Null),
        (format!("GET /networks?owner_uuid={OWNER}"), None, 200, "/0", Value::Null),
        (format!("GET /networks?provisionable_by={OTHER}"), None, 200, "/1/uuid", json!(NET)),
        ("GET /networks?name=wi*".to_owned(), None, 200, "/0/uuid", json!(NET)),
        (format!("GET /network_pools/{POOL}"), None, 200, "/nic_tags_present", json!(["blue"])),
        (format!("GET {FIRST}/"), None, 404, "/code", json!("ResourceNotFound")),
        ("GET /nics/".to_owned(), None, 422, "/errors/0/field", json!("mac")),
        ("GET /networks/".to_owned(), None, 404, "/message", json!("network not found")),
        ("GET /ping/".to_owned(), None, 404, "/message", json!("/ping/ does not exist")),
        (
            "POST /nics".to_owned(),
            Some(nic("90b8d0000009", json!({"network_uuid": NET, "nic_tag": "admin"}))),
            422,
            "/errors/0/message",
            json!(format!(
                "The nic_tag of all specified IPv4 and IPv6 {must} \"admin\" and \"blue\")"
            )),
        ),
        (
            "POST /nics".to_owned(),
            Some(nic("90b8d0000009", json!({"network_uuid": NET, "vlan_id": 9}))),
            422,
            "/errors/0/message",
            json!(format!("The vlan_id of all specified IPv4 and IPv6 {must} \"9\" and \"7\")")),
        ),
    ])
    .await;
}
