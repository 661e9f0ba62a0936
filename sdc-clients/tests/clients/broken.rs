// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Broken records and endless texts: what one of them must not do to a listing or to a log.

use std::sync::Arc;

use sdc_clients::napi::{Napi, Nic, NicList, NicQuery};
use serde_json::{Value, json};

use crate::script::{Script, answer, query};

const CN: &str = "564d0000-0000-4000-8000-00000000000c";

fn record(n: u32) -> Value {
    json!({ "belongs_to_type": "zone", "belongs_to_uuid": "z", "mac": format!("90b8d0{n:06x}"),
        "owner_uuid": "o", "primary": false, "state": "running", "cn_uuid": CN })
}

/// A server of `total` records that fails each page that holds one of `broken`.
fn fails_at(total: u32, broken: Vec<u32>) -> Arc<Script> {
    Script::new(move |request| {
        let number = |key| query(&request, key).unwrap().parse::<u32>().unwrap();
        let (limit, offset) = (number("limit"), number("offset"));
        let page = offset..(offset + limit).min(total.max(offset));
        let reply = match broken.iter().any(|n| page.contains(n)) {
            true => answer(500, &json!({ "message": "first of 7 errors: Internal error" })),
            false => answer(200, &page.map(record).collect()),
        };
        async move { Ok(reply) }
    })
}

#[test] // S31
fn uuids_are_values() {
    let capitals = CN.to_uppercase();
    let two = json!([CN, CN]).to_string();
    for (written, read) in [
        (json!(CN), Some(CN)),
        (json!([CN]), Some(CN)),
        (json!(capitals), Some(CN)),
        (json!([capitals]), Some(CN)),
        (json!("Not One"), Some("Not One")),
        (json!([CN, CN]), Some(two.as_str())),
        (json!([]), Some("[]")),
        (json!(null), None),
    ] {
        let mut value = record(1);
        value["cn_uuid"] = written.clone();
        let nic: Nic = serde_json::from_value(value).unwrap();
        assert_eq!(nic.cn_uuid.as_deref(), read, "{written}");
        assert_eq!(serde_json::to_value(&nic).unwrap()["cn_uuid"], written, "kept as it came");
    }
    let mut value = record(1);
    value["belongs_to_uuid"] = json!([capitals]);
    let nic: Nic = serde_json::from_value(value).unwrap();
    assert_eq!(nic.belongs_to_uuid, CN);
}

#[tokio::test] // S32
async fn leaves_out_and_counts_what_cannot_be_read() {
    let long = "x".repeat(70_000);
    let script = Script::new(move |_| {
        let mut page = vec![record(1), record(2), record(3), record(4)];
        page[1]["mac"] = json!("90:b8:d0");
        page[2]["model"] = json!(long);
        async move { Ok(answer(200, &Value::Array(page))) }
    });
    let napi = Napi::new(script.http());
    let pages = napi.all_nics(NicList::Nics, &NicQuery::default()).await.unwrap();
    assert_eq!(pages.nics.len(), 2);
    assert_eq!(pages.unreadable.count, 2);
    assert!(pages.unreadable.first[0].contains("not a MAC address"), "{:?}", pages.unreadable);
    assert!(pages.unreadable.first.iter().all(|text| text.len() <= 200));
    // What is no list of records is no list.
    let script = Script::new(|_| async { Ok(answer(200, &json!([record(1), 7]))) });
    let napi = Napi::new(script.http());
    assert!(napi.all_nics(NicList::Nics, &NicQuery::default()).await.is_err());
}

#[tokio::test(start_paused = true)] // S33
async fn reads_around_records_that_fail_their_page() {
    for (total, broken) in [
        (1, &[0][..]),
        (2500, &[1499]),
        (1000, &[0, 999]),
        (1200, &[7, 8, 9, 10, 500, 1199]),
        (12, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ] {
        let script = fails_at(total, broken.to_vec());
        let napi = Napi::new(script.http());
        let pages = napi.all_nics(NicList::Nics, &NicQuery::default()).await.unwrap();
        assert_eq!(pages.nics.len() + broken.len(), total as usize, "{broken:?}");
        assert_eq!(pages.unreadable.count as usize, broken.len());
        assert!(
            pages.unreadable.first[0].ends_with("server, status 500"),
            "{:?}",
            pages.unreadable
        );
        assert_eq!(pages.requests as usize, script.count());
        assert!(script.count() <= 3 + 22 * broken.len(), "{} requests", script.count());
    }
}

#[tokio::test(start_paused = true)] // S33
async fn server_that_fails_every_page_is_asked_twice() {
    let script = Script::new(|_| async { Ok(answer(500, &json!({ "message": "no database" }))) });
    let napi = Napi::new(script.http());
    let error = napi.all_nics(NicList::Nics, &NicQuery::default()).await.unwrap_err();
    assert_eq!((error.status(), script.count()), (Some(500), 2));
    // Broken without end is a broken server.
    let script = fails_at(200, (0..200).collect());
    let napi = Napi::new(script.http());
    assert!(napi.all_nics(NicList::Nics, &NicQuery::default()).await.is_err());
}

#[tokio::test] // S34
async fn keeps_only_the_beginning_of_a_peers_text() {
    for size in [10_000, 1_000_000] {
        let script = Script::new(move |_| async move {
            let long = "a\u{fc}".repeat(size);
            Ok(answer(422, &json!({ "code": long, "message": long, "errors": [] })))
        });
        let error = Napi::new(script.http()).ping().await.unwrap_err();
        assert!(error.to_string().len() < 2000, "{}", error.to_string().len());
    }
}
