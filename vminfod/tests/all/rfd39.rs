// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Beyond the shipped service: the event format, status and raw data of RFD 39; filters, tags, metrics
//! and the sources of a field.

use std::path::Path;

use crate::common::scene::{followed, one_vm};
use crate::common::{A, B, FakeNode};
use serde_json::{Value, json};
use vm_model::origin::Origin;

/// Compares with a golden file; `GOLDEN=write` writes it anew.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var("GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(&path, text).unwrap();
    }
    pretty_assertions::assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{name}");
}

/// What differs between two runs is named instead.
fn steady(mut line: Value) -> String {
    let named = ["ts", "date", "epoch", "uuid", "pid", "last_modified", "create_timestamp"];
    fn walk(value: &mut Value, top: bool, named: &[&str]) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if named.contains(&key.as_str()) && (key != "uuid" || top && value != A) {
                        *value = Value::from(format!("<{key}>"));
                    }
                    walk(value, false, named);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, false, named)),
            _ => {}
        }
    }
    walk(&mut line, true, &named);
    // Whether a second passed between two changes is chance.
    if let Some(changes) = line.get_mut("changes").and_then(Value::as_array_mut) {
        let is_time =
            |one: &Value| ["path", "prettyPath"].iter().any(|key| one[key] == "last_modified");
        changes.retain(|change| !is_time(change));
    }
    line.to_string() + "\n"
}

/// The same changes in both formats.
#[tokio::test(flavor = "multi_thread")]
async fn both_event_formats_agree() {
    let node = FakeNode::new();
    // None of the VM's own: when a dataset is noticed would be chance.
    node.set_dataset("zones", json!({"mountpoint": "/zones"}));
    let served = node.serve().await;
    let mut shipped = served.stream("").await;
    let mut rfd = served.stream("format=rfd39").await;
    let (mut one, mut other) = (steady(shipped.soon().await), steady(rfd.soon().await));
    let mut take = async |events: usize| {
        for _ in 0..events {
            one.push_str(&steady(shipped.soon().await));
            other.push_str(&steady(rfd.soon().await));
        }
    };
    node.write(&format!("/etc/zones/{A}.xml"), &crate::common::xml(A, "caf\u{e9}"));
    for name in ["metadata", "tags", "routes"] {
        node.write(&format!("/zones/{A}/config/{name}.json"), "{}");
    }
    node.set_zone(A, "installed", None);
    node.zone_event(A, "installed", -1).await;
    take(1).await;
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"role": "db", "a.b": [1]}"#);
    take(1).await;
    node.write(&format!("/zones/{A}/config/tags.json"), r#"{"role": null, "a.b": [1, 2]}"#);
    take(1).await;
    node.drop_zone(A);
    std::fs::remove_file(node.path(&format!("/etc/zones/{A}.xml"))).unwrap();
    node.zone_event(A, "", -1).await;
    take(1).await;
    golden("events.jsonl", &one);
    golden("events-rfd39.jsonl", &other);
    let mut status = served.json("/status?format=rfd39").await;
    for path in ["/pid", "/uptime", "/memory/rss", "/memory/heapTotal", "/memory/heapUsed"] {
        let number = status.pointer_mut(path).filter(|it| it.is_u64());
        *number.unwrap_or_else(|| panic!("{path}")) = json!(0);
    }
    golden("status-rfd39.json", &(serde_json::to_string_pretty(&status).unwrap() + "\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rfd39_stream_resumes() {
    let (node, served) = one_vm().await;
    let mut first = served.stream("format=rfd39").await;
    let ack = first.soon().await;
    assert_eq!((&ack["type"], &ack["seq"]), (&json!("ack"), &json!(0)));
    for n in 1..=2 {
        node.tags(A, &json!({"t": n}));
        assert_eq!(first.soon().await["seq"], n);
    }
    let epoch = ack["epoch"].as_str().unwrap();
    let mut again = served.stream(&format!("format=rfd39&epoch={epoch}&since=1")).await;
    assert_eq!(again.soon().await["seq"], 1);
    let event = again.soon().await;
    let has_tag = event["changes"].as_array().unwrap().iter().any(|one| one["path"] == "tags.t");
    assert!(event["seq"] == 2 && has_tag, "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_raw_data_by_source() {
    let node = FakeNode::one();
    let snapshot = json!({"type": "snapshot", "creation": "1767261601"});
    node.set_dataset(&format!("zones/{A}@s1"), snapshot);
    let served = node.serve().await;
    let data = served.json("/data").await;
    let keys: Vec<&str> = data.as_object().unwrap().keys().map(String::as_str).collect();
    let sources = "sysinfo zoneadm zone_xml kstat config lastexited file_times receiving zfs";
    assert_eq!(keys.join(" "), sources);
    assert_eq!(data["sysinfo"]["Datacenter Name"], "sim");
    assert_eq!(data["zoneadm"][A]["state"], "running");
    assert_eq!(data["zone_xml"][A]["zone"]["brand"], "joyent");
    assert_eq!(data["config"][A]["tags"], json!({}));
    let dataset = &data["zfs"][format!("zones/{A}")];
    assert_eq!(dataset["quota"], "10737418240");
    assert_eq!(dataset["snapshots"]["s1"]["creation"], 1_767_261_601);
}

#[tokio::test(flavor = "multi_thread")]
async fn parses_filters_only_on_request() {
    let node = FakeNode::one();
    node.add_zone(B, "installed", None, "two");
    let served = node.serve().await;
    let names = async |query: &str| -> Vec<String> {
        let vms = served.json(&format!("/vms?{query}")).await;
        let alias = |vm: &Value| vm["alias"].as_str().unwrap_or("-").to_owned();
        vms.as_array().unwrap().iter().map(alias).collect()
    };
    assert_eq!(names("state=running").await, ["one", "two"]);
    assert_eq!(names("filter=1&state=running").await, ["one"]);
    assert_eq!(names("filter=1&state=stopped,running").await, ["one", "two"]);
    assert_eq!(names(&format!("filter=1&uuid={B}&brand=joyent")).await, ["two"]);
    assert_eq!(names("filter=1&brand=lx").await, Vec::<String>::new());
    let chosen = served.json("/vms?filter=1&fields=state").await;
    assert_eq!(chosen[1], json!({"zonename": B, "uuid": B, "state": "stopped"}));

    let mut events = served.stream("filter=1&state=running&fields=state,tags").await;
    let ready = events.soon().await;
    let vms: Value = serde_json::from_str(ready["vms"].as_str().unwrap()).unwrap();
    assert_eq!(vms, json!([{"zonename": A, "uuid": A, "state": "running", "tags": {}}]));
    // Nothing of this is shown …
    node.tags(B, &json!({"x": 1}));
    // … and this is, under the number it has for every client.
    node.set_zone(B, "running", Some(9));
    node.zone_event(B, "running", 9).await;
    let entered = events.soon().await;
    assert_eq!((&entered["type"], &entered["vm"]["tags"]["x"]), (&json!("create"), &json!(1)));
    assert_eq!(entered["seq"], served.json("/status").await["journal"]["seq"]);
    node.set_zone(A, "installed", None);
    node.zone_event(A, "installed", -1).await;
    let left = events.soon().await;
    assert_eq!((&left["type"], &left["uuid"]), (&json!("delete"), &json!(A)));
}

#[tokio::test(flavor = "multi_thread")]
async fn etag_saves_sending_the_same_list_again() {
    let (node, served) = one_vm().await;
    let client = reqwest::Client::new();
    let ask = async |tag: &str| {
        client.get(format!("{}/vms", served.url)).header("If-None-Match", tag).send().await.unwrap()
    };
    let first = ask("\"other\"").await;
    assert_eq!(first.status(), 200);
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    for known in [tag.clone(), format!("\"x\", {tag}"), format!("W/{tag}"), "*".to_owned()] {
        let same = ask(&known).await;
        assert_eq!(same.status(), 304);
        assert_eq!(same.headers()["etag"], first.headers()["etag"]);
        assert!(same.bytes().await.unwrap().is_empty());
    }
    let mut events = served.events().await;
    node.tags(A, &json!({"x": 1}));
    events.soon().await;
    let news = ask(&tag).await;
    assert_eq!(news.status(), 200);
    assert_ne!(news.headers()["etag"].to_str().unwrap(), tag);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_vms_and_time_their_readings() {
    let (node, served, mut events) = followed().await;
    node.tags(A, &json!({"x": 1}));
    events.soon().await;
    // The end of a reading is noted after its event.
    let text = loop {
        let text = reqwest::get(format!("{}/metrics", served.url)).await.unwrap();
        let text = text.text().await.unwrap();
        if text.contains("\nvminfod_loads_running 0\n") {
            break text;
        }
    };
    let vm = served.vm(A).await;
    let (state, brand) = (vm["state"].as_str().unwrap(), vm["brand"].as_str().unwrap());
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {text}")).parse::<f64>().unwrap()
    };
    assert_eq!(number(&format!("vminfod_vms{{state=\"{state}\",brand=\"{brand}\"}}")), 1.0);
    assert_eq!(number("vminfod_listeners"), 1.0);
    assert_eq!(number("vminfod_source_up{source=\"zfs_events\"}"), 1.0);
    let readings = number("vminfod_load_duration_seconds_count");
    assert!(readings >= 1.0 && readings == number("vminfod_change_latency_seconds_count"));
    let (reading, latency) =
        ("vminfod_load_duration_seconds_sum", "vminfod_change_latency_seconds_sum");
    assert!(0.0 < number(reading) && number(reading) <= number(latency), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_source_of_a_field() {
    let (node, served) = one_vm().await;
    // The watchers begin with a doubt of their own, which is soon settled.
    let sources = |why: &Value| why["sources"].as_object().unwrap().clone();
    let settled = |why: &Value| sources(why).values().all(|source| source["stale"] == false);
    let why = served.until(&format!("/why/{A}"), settled).await;
    assert_eq!(
        why.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["uuid", "witnesses", "sources", "fields"]
    );
    assert_eq!(why["uuid"], A);
    for name in Origin::ALL.map(Origin::name) {
        let source = &why["sources"][name];
        assert!(source["read_ms_ago"].is_u64(), "{name}: {source}");
        assert_eq!((&source["stale"], &source["error"]), (&json!(false), &Value::Null), "{name}");
    }
    for (field, source) in
        [("alias", "zone_xml"), ("quota", "zfs"), ("state", "zoneadm"), ("tags", "config")]
    {
        assert_eq!(why["fields"][field], source, "{field}");
    }
    assert_eq!(served.get("/why/nobody").await, (404, "VM Not Found: nobody".to_owned()));

    // A source that fails is named, and what it gave last is stale from then on.
    std::fs::write(node.path(&format!("/etc/zones/{A}.xml")), "<zone").unwrap();
    node.zone_event(A, "running", 5).await;
    let failed = |why: &Value| why["sources"]["zone_xml"]["error"].is_string();
    let why = served.until(&format!("/why/{A}"), failed).await;
    assert_eq!(why["sources"]["zone_xml"]["stale"], true);
}
