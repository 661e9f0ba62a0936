// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Fault rules and the side door, as another process would use them.

use std::sync::Arc;
use std::time::Duration;

use mocks::faults::{Action, Rule};
use mocks::napi::{Era, NewNic, Options, Server, Store};
use mocks::transport::InProcess;
use serde_json::json;

use super::{CN, MAC, VM, get, post, put, try_send, with_nic};

#[tokio::test]
async fn a_lost_response_leaves_the_write_done() {
    let server = with_nic(Era::Master).await;
    server.add_fault(Rule::new("DELETE", "/nics/*", Action::DropResponse).times(1));
    assert!(try_send(&server, "DELETE", "/nics/90b8d0000001", &[], None).await.is_err());
    assert!(server.store().nic(MAC).is_none());
    let log = server.requests();
    assert_eq!((log[0].method.as_str(), log[0].status), ("DELETE", None));
}

#[tokio::test]
async fn truncated_garbled_empty_and_cut() {
    let server = with_nic(Era::Master).await;
    for action in [Action::Truncate { bytes: 10 }, Action::Cut] {
        server.add_fault(Rule::any(action));
        assert!(try_send(&server, "GET", "/nics", &[], None).await.is_err());
        server.store().faults().clear();
    }
    server.add_fault(Rule::any(Action::EmptyBody));
    assert_eq!(get(&server, "/nics").await.text, "");
    server.store().faults().clear();
    server.add_fault(Rule::any(Action::Garbage { text: "<html>".to_owned() }));
    assert_eq!(get(&server, "/nics").await.text, "<html>");
}

#[tokio::test]
async fn foreign_records_and_small_pages() {
    let server = with_nic(Era::Master).await;
    server.store().add_nic(NewNic::zone("90b8d0000002", VM, CN)).unwrap();
    server.add_fault(Rule::new("GET", "/nics", Action::MaxPage { limit: 1 }));
    assert_eq!(get(&server, &format!("/nics?cn_uuid={CN}")).await.macs().len(), 1);
    server.add_fault(Rule::new("GET", "/nics", Action::ForeignRecord { record: None }));
    let list = get(&server, &format!("/nics?cn_uuid={CN}")).await;
    assert!(list.body.as_array().unwrap().iter().any(|nic| nic["cn_uuid"] != CN));
}

#[tokio::test]
async fn the_side_door_takes_rules_seeds_and_eras() {
    let server = with_nic(Era::Master).await;
    let rule = json!({ "path": "/ping", "times": 1, "action": { "do": "status", "status": 503, "retry_after": 2 } });
    assert_eq!(post(&server, "/_mock/faults", rule).await.status, 200);
    let busy = get(&server, "/ping").await;
    assert_eq!((busy.status, busy.headers["retry-after"].as_bytes()), (503, b"2".as_slice()));
    assert_eq!(get(&server, "/ping").await.status, 200);
    let seed = json!({ "nics": [{ "mac": "000000000001", "belongs_to_type": "zone", "belongs_to_uuid": VM,
        "owner_uuid": VM, "age_s": 3600 }] });
    assert_eq!(post(&server, "/_mock/seed", seed).await.body["nics"], 2);
    put(&server, "/_mock/era", json!({ "era": "mid2017" })).await;
    assert_eq!(get(&server, &format!("/nics?cn_uuid={CN}")).await.status, 422);
    assert_eq!(get(&server, "/_mock/requests").await.body.as_array().unwrap().len(), 3);
    assert_eq!(post(&server, "/_mock/faults", json!({ "action": 1 })).await.status, 400);
}

#[tokio::test]
async fn a_server_comes_back_with_its_data() {
    let port = rig::port::Port::local().unwrap();
    let (addr, store) = (port.address(), Store::new(Options::default()));
    store.add_nic(NewNic::zone(MAC, VM, CN)).unwrap();
    Server::with_store(addr, store.clone()).await.unwrap().stop().await;
    port.refuses().await.unwrap();
    let again = Server::with_store(addr, store).await.unwrap();
    assert_eq!(get(&again, "/nics").await.macs(), [MAC]);
}

#[tokio::test(start_paused = true)]
async fn in_process_works_under_paused_time() {
    let store = Store::new(Options { record_cost: Duration::from_secs(1), ..Options::default() });
    store.add_nic(NewNic::zone(MAC, VM, CN)).unwrap();
    let before = store.now_ms();
    let transport = Arc::new(InProcess::new(store.clone()));
    let http = sdc_clients::Http::with_transport("http://napi.test", "tests", transport).unwrap();
    let napi = sdc_clients::napi::Napi::new(http);
    let nics = napi.list_nics(sdc_clients::napi::NicList::Nics, &Default::default()).await.unwrap();
    assert_eq!(nics.len(), 1);
    assert!(store.now_ms() >= before + 1000);
}
