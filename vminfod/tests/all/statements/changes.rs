// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 59 and 60: change records of the real daemon. The others are in `vm_model::diff`.

use serde_json::{Value, json};

use crate::common::FakeNode;
use crate::common::scene::A;

/// Tags before and after; gives the line of the event.
async fn tags_edited(before: &Value, after: &Value) -> String {
    let node = FakeNode::one();
    node.tags(A, before);
    let (_served, mut events) = node.serve_followed().await;
    node.tags(A, after);
    events.line().await.unwrap()
}

/// A configuration becomes another one; gives the records, without the time of the file.
pub async fn edited(brand: &str, before: &str, after: &str) -> Vec<Value> {
    let node = FakeNode::new();
    node.add_vm(A, brand, before);
    let (_served, mut events) = node.serve_followed().await;
    node.configure(A, brand, after);
    let event = events.soon().await;
    let mut list = event["changes"].as_array().unwrap().clone();
    list.retain(|record| record["prettyPath"] != "last_modified");
    list
}

#[tokio::test(flavor = "multi_thread")] // S59
async fn change_records_have_one_key_order() {
    let line = tags_edited(&json!({"a": 1, "b": 1}), &json!({"b": 2, "c": 3})).await;
    for text in [
        r#"{"prettyPath":"tags.a","path":["tags","a"],"action":"removed","oldValue":1}"#,
        r#"{"prettyPath":"tags.b","path":["tags","b"],"action":"changed","oldValue":1,"newValue":2}"#,
        r#"{"prettyPath":"tags.c","path":["tags","c"],"action":"added","newValue":3}"#,
    ] {
        assert!(line.contains(text), "{text} is not in {line}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S60
async fn whole_numbers_have_no_fraction() {
    let node = FakeNode::one();
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"n": 10.0, "e": 1e3, "f": 0.5}"#);
    let served = node.serve_quiet().await;
    let (_, text) = served.get(&format!("/vms/{A}")).await;
    assert!(text.contains(r#""tags":{"n":10,"e":1000,"f":0.5}"#), "{text}");
    assert!(text.contains(r#""quota":10,"#), "{text}");
    let line = tags_edited(&json!({"n": 1}), &json!({"n": 2})).await;
    assert!(line.contains(r#""oldValue":1,"newValue":2"#), "{line}");
}
