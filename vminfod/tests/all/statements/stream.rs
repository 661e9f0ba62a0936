// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 27–44: the lines of `/events`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vminfod::config::Config;

use crate::common::scene::{A, B, C, Mirror, attr, change, followed, marked, one_vm, told};
use crate::common::{Events, FakeNode, Served, xml};

fn parsed(ready: &Value) -> Value {
    serde_json::from_str(ready["vms"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")] // S27
async fn ready_comes_first_and_at_once_with_thousands_of_vms() {
    let node = FakeNode::new();
    node.set_dataset("zones", json!({"mountpoint": "/zones"}));
    for n in 0..2000 {
        let uuid = format!("{n:08x}-8812-4060-8b15-fff23517df24");
        node.write_now(&format!("/etc/zones/{uuid}.xml"), &xml(&uuid, "many"));
        node.with(|state| {
            state.zoneadm.push(format!("-:{uuid}:installed:/zones/{uuid}:{uuid}:joyent:excl:6"));
        });
    }
    let served = node.serve_quiet().await;
    let asked_before = node.with(|state| state.log.len());
    let events = served.events().await;
    assert_eq!(events.ready["type"], "ready");
    // At once: nothing is read for it first.
    assert_eq!(node.with(|state| state.log.len()), asked_before);
    assert_eq!(parsed(&events.ready).as_array().unwrap().len(), 2000);
}

#[tokio::test(flavor = "multi_thread")] // S28
async fn ready_has_the_list_as_a_string() {
    let (node, served) = one_vm().await;
    node.tags(A, &json!({"quote": "\"\\ \u{e9}"}));
    served.events().await.until_tag(&served, "quote").await;
    let events = served.events().await;
    assert!(events.ready["vms"].is_string());
    assert_eq!(parsed(&events.ready).to_string(), served.json("/vms").await.to_string());
}

#[tokio::test(flavor = "multi_thread")] // S29, S30
async fn each_connection_has_one_ready_line_with_its_own_uuid() {
    let (node, served) = one_vm().await;
    let mut seen = HashSet::new();
    let mut open = Vec::new();
    for _ in 0..5 {
        let events = served.events().await;
        let uuid = events.ready["uuid"].as_str().unwrap().to_owned();
        assert!(uuid::Uuid::try_parse(&uuid).is_ok(), "{uuid}");
        assert!(seen.insert(uuid));
        open.push(events);
    }
    for n in 0..3 {
        node.tags(A, &json!({"n": n}));
        for events in &mut open {
            assert_eq!(events.soon().await["type"], "modify", "never a second ready");
        }
    }
    drop(served);
    for mut events in open {
        assert!(events.next().await.is_none(), "the stream ends in order");
    }
}

async fn churn(node: &FakeNode, rounds: i64) {
    for n in 0..rounds {
        node.tags(A, &json!({"n": n}));
        if n % 3 == 0 {
            node.add_zone(B, "installed", None, "two");
            node.zone_event(B, "installed", -1).await;
        } else if n % 3 == 2 {
            node.remove(B);
            node.zone_event(B, "", -1).await;
        }
        node.set_zone(C, if n % 2 == 0 { "running" } else { "installed" }, None);
        node.zone_event(C, "running", 9).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)] // S31, S40, S41, S42
async fn no_connection_loses_or_repeats_an_event() {
    let (node, served) = one_vm().await;
    node.add_zone(C, "installed", None, "three");
    node.zone_event(C, "installed", -1).await;
    let served = std::sync::Arc::new(served);
    let follow = async |served: std::sync::Arc<Served>, turn: usize| {
        // One after the other connects while all of it changes.
        for _ in 0..turn * 40 {
            tokio::task::yield_now().await;
        }
        let mut events = served.events().await;
        let ready = parsed(&events.ready);
        let mut mirror = Mirror::of(&ready);
        // One that comes late begins with the end.
        let mut is_over = ready.as_array().unwrap().iter().any(|vm| vm["tags"]["end"] == true);
        while !is_over && let Some(event) = events.next().await {
            mirror.take(&event);
            is_over = event["vm"]["tags"]["end"] == true;
        }
        (mirror, events.seq)
    };
    let followers: Vec<_> =
        (0..30).map(|turn| tokio::spawn(follow(served.clone(), turn))).collect();
    churn(&node, 60).await;
    assert_eq!(served.get("/vms?sync=true").await.0, 200);
    node.tags(A, &json!({"end": true}));
    for follower in followers {
        let ended = tokio::time::timeout(Duration::from_secs(30), follower).await;
        let (mirror, seq) = ended.unwrap().unwrap();
        let list = served.json("/vms").await;
        assert_eq!(served.json("/status").await["journal"]["seq"], seq, "nothing after the end");
        assert_eq!(mirror, Mirror::of(&list));
    }
}

#[tokio::test(flavor = "multi_thread")] // S32, S33
async fn every_line_is_one_dated_json_object() {
    let (node, served) = one_vm().await;
    node.tags(A, &json!({"text": "a\nb\r\nc\u{2028}"}));
    served.events().await.until_tag(&served, "text").await;
    let mut stream = reqwest::get(format!("{}/events", served.url)).await.unwrap();
    let mut bytes = lines_of(&mut stream, 1).await;
    for n in 2..5 {
        node.tags(A, &json!({"text": format!("line\n{n}\r")}));
        served.status_until(|s| s["journal"]["newest"].as_u64() == Some(n)).await;
    }
    bytes.extend(lines_of(&mut stream, 3).await);
    assert!(!bytes.contains(&b'\r'), "no carriage return at all");
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.strip_suffix('\n').unwrap().split('\n').collect();
    assert!(lines.len() >= 4 && lines.iter().all(|line| !line.is_empty()), "{text}");
    for line in lines {
        let value: Value = serde_json::from_str(line).unwrap();
        assert!(value["type"].is_string());
        let date = value["date"].as_str().unwrap();
        let form = (date.len(), date.get(10..11), date.get(23..));
        assert_eq!(form, (24, Some("T"), Some("Z")), "{date}");
    }
}

/// The bytes of a stream as they come, until there are this many lines.
async fn lines_of(stream: &mut reqwest::Response, lines: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.iter().filter(|byte| **byte == b'\n').count() < lines {
        bytes.extend_from_slice(&stream.chunk().await.unwrap().unwrap());
    }
    bytes
}

/// A VM's whole life, as its listener sees it.
async fn life(node: &FakeNode, events: &mut Events) -> Vec<Value> {
    let mut all = Vec::new();
    node.add_zone(B, "configured", None, "two");
    node.zone_event(B, "configured", -1).await;
    all.push(events.until(|event| event["type"] == "create").await);
    node.tags(B, &json!({"a": 1}));
    all.push(events.change_of("tags.a").await);
    node.remove(B);
    node.zone_event(B, "", -1).await;
    all.push(events.until(|event| event["type"] == "delete").await);
    all
}

#[tokio::test(flavor = "multi_thread")] // S34, S36
async fn only_four_types_with_their_keys_in_order() {
    let (node, _served, mut events) = followed().await;
    let keys = |event: &Value| event.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&events.ready)[..4], ["type", "date", "uuid", "vms"]);
    let all = life(&node, &mut events).await;
    let wanted: [(&str, &[&str]); 3] = [
        ("create", &["type", "date", "zonename", "uuid", "vm"]),
        ("modify", &["type", "date", "zonename", "uuid", "vm", "changes"]),
        ("delete", &["type", "date", "zonename", "uuid"]),
    ];
    for (event, (kind, first)) in all.iter().zip(wanted) {
        assert_eq!(event["type"], kind);
        let keys = keys(event);
        assert_eq!(keys[..first.len()], *first);
        for key in &keys[first.len()..] {
            assert!(["seq", "epoch", "lost"].contains(&key.as_str()), "{key} in {kind}");
        }
        assert_eq!((&event["zonename"], &event["uuid"]), (&json!(B), &json!(B)));
    }
}

#[tokio::test(flavor = "multi_thread")] // S35, B23
async fn every_byte_is_ascii() {
    let node = FakeNode::new();
    // Two, three and four bytes in UTF-8, in a value, in a key and in the configuration.
    node.add_vm(A, "joyent", &attr("hostname", "gr\u{fc}n-\u{20ac}"));
    node.tags(A, &json!({"schl\u{fc}ssel": "\u{e9}\u{20ac}\u{1f600}"}));
    let served = node.serve_quiet().await;
    let mut stream = reqwest::get(format!("{}/events", served.url)).await.unwrap();
    assert!(lines_of(&mut stream, 1).await.is_ascii());
    node.tags(A, &json!({"schl\u{fc}ssel": "\u{1f600}\u{e9}"}));
    let bytes = lines_of(&mut stream, 1).await;
    assert!(bytes.is_ascii(), "{}", String::from_utf8_lossy(&bytes));
    let event: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(event["vm"]["tags"], json!({"schl\u{fc}ssel": "\u{1f600}\u{e9}"}));
    assert_eq!(event["vm"]["hostname"], "gr\u{fc}n-\u{20ac}");
}

#[tokio::test(flavor = "multi_thread")] // S37, S55
async fn modify_has_changes_and_no_change_is_no_event() {
    let (node, served, mut events) = marked().await;
    node.tags(A, &json!({"a": 1}));
    let event = events.change_of("tags.a").await;
    assert!(!event["changes"].as_array().unwrap().is_empty());
    // The same text again, and all that can be announced without anything having changed.
    node.tags(A, &json!({"a": 1}));
    node.zone_event(A, "running", 5).await;
    node.zfs_event(&format!("zones/{A}"), "set").await;
    let more = events.settled(&node, &served).await;
    // Only the time of a file may have changed.
    let is_of_the_time = |event: &Value| {
        let changes = event["changes"].as_array();
        changes.is_some_and(|list| !list.is_empty()) && told(event).is_empty()
    };
    assert!(more.iter().all(is_of_the_time), "{more:#?}");
}

#[tokio::test(flavor = "multi_thread")] // S38, S39
async fn next_request_equals_the_event() {
    let (node, served, mut events) = followed().await;
    let one = format!("/vms/{A}");
    for n in 0..20 {
        node.tags(A, &json!({"n": n}));
        let event = events.soon().await;
        assert_eq!(served.json(&one).await, event["vm"]);
    }
    life(&node, &mut events).await;
    assert_eq!(served.get(&format!("/vms/{B}")).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")] // S40, B10
async fn connecting_during_a_create_shows_the_vm_once() {
    let node = FakeNode::new();
    let served = node.serve_quiet().await;
    let mut first = served.events().await;
    for n in 0..40_u32 {
        let uuid = format!("{n:08x}-8812-4060-8b15-fff23517df24");
        node.add_zone(&uuid, "configured", None, "new");
        node.zone_event(&uuid, "configured", -1).await;
        // Connects while the VM appears: it is in `ready`, or it is created, never both.
        let mut late = served.events().await;
        first.until(|event| event["type"] == "create" && event["uuid"] == uuid).await;
        let known = parsed(&late.ready).as_array().unwrap().iter().any(|vm| vm["uuid"] == uuid);
        if known {
            assert!(late.ready["seq"].as_u64() >= Some(u64::from(n) + 1), "it counts as seen");
        } else {
            let event = late.until(|event| event["uuid"] == uuid).await;
            assert_eq!(event["type"], "create", "{event}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")] // S43, S44, S119, B1, F72
async fn stalled_reader_uses_bounded_memory_and_delays_no_other() {
    let node = FakeNode::one();
    let ring_bytes = 300_000;
    let served = node.serve_as(Config { ring_bytes, ..node.quiet() }).await;
    let mut stalled = TcpStream::connect(served.address).await.unwrap();
    let request = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stalled.write_all(request).await.unwrap();
    let mut events = served.events().await;
    let kept = async || served.json("/status").await["journal"]["bytes"].as_u64().unwrap();
    for n in 0..301 {
        // The last event alone is larger than the ring.
        let filler = "x".repeat(if n < 300 { 20_000 } else { 200_000 });
        let text = format!(r#"{{"customer_metadata":{{"k":"{n}{filler}"}}}}"#);
        node.write(&format!("/zones/{A}/config/metadata.json"), &text);
        let event = events.soon().await;
        assert!(change(&event, "customer_metadata.k").is_some() || n == 0, "others go on");
        let size = event.to_string().len() as u64;
        assert!(n == 300 || n % 50 != 0 || kept().await <= ring_bytes as u64, "after {n}");
        assert!(n < 300 || kept().await > size && kept().await < size + 1000, "only the newest");
    }
    let (epoch, seq) = (events.ready["epoch"].as_str().unwrap(), events.seq - 1);
    assert_eq!(served.get(&format!("/events?epoch={epoch}&since={}", seq - 1)).await.0, 410);
    let resumed = reqwest::get(format!("{}/events?epoch={epoch}&since={seq}", served.url)).await;
    assert_eq!(resumed.unwrap().status(), 200);
    // When it reads on it gets whole lines and then an orderly end, never half a line and silence.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stalled.read_to_end(&mut rest));
    read.await.expect("it was not cut").unwrap();
    assert!(rest.ends_with(b"\n\r\n0\r\n\r\n"), "the last chunk ends a line");
}
