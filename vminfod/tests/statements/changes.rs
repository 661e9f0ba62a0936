// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 45–49, 56–60: change records of the real daemon.

use serde_json::{Value, json};

use crate::common::FakeNode;
use crate::common::scene::{A, attr, change};

/// Tags before and after; gives the raw line of the event, parsed and as text.
pub async fn tags_edited(before: &Value, after: &Value) -> (Value, String) {
    let node = FakeNode::one();
    node.tags(A, before);
    let served = node.serve_quiet().await;
    let mut events = served.events().await;
    node.tags(A, after);
    let line = events.line().await.unwrap();
    served.stop().await;
    (serde_json::from_str(&line).unwrap(), line)
}

/// The records of tags that became others, without the time of the file.
async fn records(before: Value, after: Value) -> Vec<Value> {
    without_time(&tags_edited(&before, &after).await.0)
}

fn without_time(event: &Value) -> Vec<Value> {
    let mut list = event["changes"].as_array().unwrap().clone();
    list.retain(|record| record["prettyPath"] != "last_modified");
    list
}

/// A configuration becomes another one; gives the records, without the time of the file.
pub async fn edited(brand: &str, before: &str, after: &str) -> Vec<Value> {
    let node = FakeNode::new();
    node.add_vm(A, brand, before);
    let served = node.serve_quiet().await;
    let mut events = served.events().await;
    node.configure(A, brand, after);
    let event = events.soon().await;
    served.stop().await;
    without_time(&event)
}

#[tokio::test(flavor = "multi_thread")] // S45
async fn scalar_edit_is_one_changed_record() {
    assert_eq!(
        edited("joyent", &attr("hostname", "old"), &attr("hostname", "new")).await,
        [
            json!({"prettyPath": "hostname", "path": ["hostname"], "action": "changed", "oldValue": "old", "newValue": "new"})
        ]
    );
}

#[tokio::test(flavor = "multi_thread")] // S46
async fn added_and_removed_lack_the_other_side() {
    assert_eq!(
        edited("joyent", &attr("hostname", "there"), &attr("dns-domain", "here")).await,
        [
            json!({"prettyPath": "hostname", "path": ["hostname"], "action": "removed", "oldValue": "there"}),
            json!({"prettyPath": "dns_domain", "path": ["dns_domain"], "action": "added", "newValue": "here"}),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")] // S47
async fn nested_edit_names_the_leaf() {
    assert_eq!(
        records(json!({"a": 1, "b": {"c": 1}}), json!({"a": 2, "b": {"c": 1, "d": 2}})).await,
        [
            json!({"prettyPath": "tags.a", "path": ["tags", "a"], "action": "changed", "oldValue": 1, "newValue": 2}),
            json!({"prettyPath": "tags.b.d", "path": ["tags", "b", "d"], "action": "added", "newValue": 2}),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")] // S48
async fn null_to_a_number_is_changed_from_null() {
    let node = FakeNode::new();
    node.add_zone(A, "installed", None, "one");
    let served = node.serve_quiet().await;
    let mut events = served.events().await;
    node.set_zone(A, "running", Some(17));
    node.zone_event(A, "running", 17).await;
    let event = events.soon().await;
    assert_eq!(
        *change(&event, "zoneid").unwrap(),
        json!({"prettyPath": "zoneid", "path": ["zoneid"], "action": "changed", "oldValue": null, "newValue": 17})
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // S49, B5
async fn null_to_an_object_is_a_change() {
    let pairs = [
        (json!(null), json!({"k": 1})),
        (json!({"k": 1}), json!(null)),
        (json!(null), json!([1])),
        (json!([1]), json!(null)),
        (json!("text"), json!({"k": 1})),
    ];
    for (old, new) in pairs {
        assert_eq!(
            records(json!({"t": old}), json!({"t": new})).await,
            [
                json!({"prettyPath": "tags.t", "path": ["tags", "t"], "action": "changed", "oldValue": old, "newValue": new})
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread")] // S57
async fn old_keys_come_first_and_additions_last() {
    let list = records(
        json!({"gone": 1, "kept": 1, "edited": {"x": 1}, "also": 1}),
        json!({"new": 1, "also": 2, "edited": {"y": 1}, "kept": 1}),
    )
    .await;
    let order: Vec<String> = list
        .iter()
        .map(|r| format!("{} {}", r["prettyPath"].as_str().unwrap(), r["action"].as_str().unwrap()))
        .collect();
    assert_eq!(
        order,
        [
            "tags.gone removed",
            "tags.edited.x removed",
            "tags.edited.y added",
            "tags.also changed",
            "tags.new added"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")] // S58
async fn unusual_keys_are_in_brackets_in_pretty_paths() {
    let list =
        records(json!({}), json!({"plain": 1, "a.b": 1, "c[d]": 1, "e": {"f.g": {"h": 1}}})).await;
    let pretty: Vec<&str> = list.iter().map(|r| r["prettyPath"].as_str().unwrap()).collect();
    assert_eq!(pretty, ["tags.plain", "tags[a.b]", "tags[c\\[d\\]]", "tags.e"]);
    assert_eq!(list[1]["path"], json!(["tags", "a.b"]));
    let list = records(json!({"e": {"f.g": {"h": 1}}}), json!({"e": {"f.g": {"h": 2}}})).await;
    assert_eq!(list[0]["prettyPath"], "tags.e[f.g].h");
}

#[tokio::test(flavor = "multi_thread")] // S59
async fn change_records_have_one_key_order() {
    let (_, line) = tags_edited(&json!({"a": 1, "b": 1}), &json!({"b": 2, "c": 3})).await;
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
    served.stop().await;
    let (_, line) = tags_edited(&json!({"n": 1}), &json!({"n": 2})).await;
    assert!(line.contains(r#""oldValue":1,"newValue":2"#), "{line}");
}
