// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Statements 1–17: the routes.

use std::net::SocketAddr;
use std::time::Duration;

use daemon::http::Limits as HttpLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vminfod::config::Config;

use crate::common::scene::{A, B, C, attr, eventually, refreshing};
use crate::common::{FakeNode, Served, xml};

async fn two_vms() -> (FakeNode, Served) {
    let node = FakeNode::one();
    node.add_zone(B, "installed", None, "two");
    let served = node.serve_quiet().await;
    (node, served)
}

/// Sends a request line as it is; gives the head of the answer, and its body in one piece.
async fn raw(served: &Served, method: &str, target: &str) -> (String, String) {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let answer = served.raw(&request).await;
    // The lines between are the sizes of chunks.
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.split("\r\n").skip(1).step_by(2).collect())
}

#[tokio::test(flavor = "multi_thread")] // S1
async fn listens_only_on_the_loopback_address() {
    assert_eq!(Config::default().listen.to_string(), "127.0.0.1:9090");
    let node = FakeNode::new();
    let served = node.serve_quiet().await;
    TcpStream::connect(served.address).await.unwrap();
    // All of 127/8 is this host on Linux: a socket bound to every address would answer here.
    if cfg!(target_os = "linux") {
        let other = SocketAddr::from(([127, 0, 0, 2], served.address.port()));
        let refused = TcpStream::connect(other).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[tokio::test(flavor = "multi_thread")] // S2
async fn refuses_connections_until_every_vm_is_loaded() {
    let node = FakeNode::new();
    for uuid in [A, B, C] {
        node.add_zone(uuid, "running", Some(5), "one");
    }
    node.with(|state| state.held.push("zfs"));
    let port = rig::port::Port::local().unwrap();
    let (other, config) = (node.clone(), Config { listen: port.address(), ..node.quiet() });
    let starting = tokio::spawn(async move { other.serve_as(config).await });
    eventually("the first load lists the datasets", || node.listings() > 0).await;
    let refused = TcpStream::connect(port.address()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    node.release();
    let served = starting.await.unwrap();
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")] // S4
async fn every_answer_is_json() {
    let (_node, served) = two_vms().await;
    let one = format!("/vms/{A}");
    for (method, path, status) in [
        ("GET", "/ping", 200),
        ("GET", "/status", 200),
        ("GET", "/vms", 200),
        ("GET", &one, 200),
        ("GET", "/vms/none", 404),
        ("GET", "/none", 404),
        ("POST", "/vms", 400),
        ("HEAD", "/none", 400),
    ] {
        let (head, _) = raw(&served, method, path).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {head}");
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{method} {path}: {head}");
    }
    let events = reqwest::get(format!("{}/events", served.url)).await.unwrap();
    assert_eq!(events.headers()["content-type"], "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn method_and_path_decide_the_answer() {
    let (_node, served) = two_vms().await;
    let (list, one) = (served.get("/vms").await.1, served.get(&format!("/vms/{A}")).await.1);
    let (pong, unsupported) = (r#"{"ping":"pong"}"#, "Unsupported URL Path");
    let missing = |name: &str| format!("VM Not Found: {name}");
    let (encoded, upper) = (format!("%37{}", A.strip_prefix('7').unwrap()), A.to_uppercase());
    for (number, request, status, body) in [
        ("S3", "GET /ping", 200, pong),
        // Other methods have an empty answer.
        ("S5", "POST /ping", 400, ""),
        ("S5", "HEAD /vms", 400, ""),
        ("S5", "PUT /x", 400, ""),
        ("S5", "OPTIONS /events", 400, ""),
        ("S5", "DELETE /vms", 400, ""),
        ("S6", "GET /", 404, unsupported),
        ("S6", "GET /foo", 404, unsupported),
        ("S6", "GET /vm", 404, unsupported),
        ("S6", "GET /pings", 404, unsupported),
        ("S6", "GET /dat", 404, unsupported),
        ("S6", "GET /ui", 404, unsupported),
        ("S6", "GET /ui/main.js", 404, unsupported),
        ("S7", &format!("GET /vms/{C}"), 404, &missing(C)),
        ("S7", "GET /vms/x", 404, &missing("x")),
        ("S7", "GET /vms/global", 404, &missing("global")),
        // Paths are normalised, and their ends ignored.
        ("S9", "GET /vms/", 200, &list),
        ("S9", &format!("GET /vms/{A}/x"), 200, &one),
        ("S9", "GET /ping/x", 200, pong),
        ("S9", "GET /a/../ping", 200, pong),
        ("S9", "GET //ping/.", 200, pong),
        // They are compared literally.
        ("S10", "GET /PING", 404, unsupported),
        ("S10", "GET /Vms", 404, unsupported),
        ("S10", "GET /p%69ng", 404, unsupported),
        ("S10", &format!("GET /vms/{encoded}"), 404, &missing(&encoded)),
        ("S10", &format!("GET /vms/{upper}"), 404, &missing(&upper)),
    ] {
        let (method, target) = request.split_once(' ').unwrap();
        let (head, answer) = raw(&served, method, target).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{number} {request}: {head}");
        assert_eq!(answer, body, "{number} {request}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S6
async fn data_has_the_raw_parts_of_each_source() {
    // Ours, which RFD 39 asks for.
    let (_node, served) = two_vms().await;
    let (status, text) = served.get("/data").await;
    assert_eq!(status, 200, "{text}");
    let data: Value = serde_json::from_str(&text).unwrap();
    assert!(data.is_object() && text.contains(A), "{data}");
}

#[tokio::test(flavor = "multi_thread")] // S8
async fn one_vm_equals_its_element_of_the_list() {
    let (_node, served) = two_vms().await;
    let list = served.json("/vms").await;
    for uuid in [A, B] {
        let element = list.as_array().unwrap().iter().find(|vm| vm["zonename"] == uuid).unwrap();
        let (status, text) = served.get(&format!("/vms/{uuid}")).await;
        assert_eq!((status, text), (200, element.to_string()), "byte for byte");
    }
}

#[tokio::test(flavor = "multi_thread")] // S10
async fn uuid_finds_the_vm_whose_zone_has_another_name() {
    let (node, served) = two_vms().await;
    let upper = A.to_uppercase();
    assert_eq!(served.json(&format!("/vms/{upper}?sync=true")).await["uuid"], A);
    assert_eq!(served.get(&format!("/vms/{C}?sync=true")).await.0, 404);
    // No event says that it was created.
    node.write("/etc/zones/index", &format!("web:running:/zones/web:{C}\n"));
    node.write("/etc/zones/web.xml", &xml(C, "web").replacen(C, "web", 1));
    node.set_line(format!("9:web:running:/zones/web:{C}:joyent:excl:6"));
    for path in [format!("{}?sync=true", C.to_uppercase()), C.to_owned(), "web".to_owned()] {
        let vm = served.vm(&path).await;
        assert_eq!((&vm["uuid"], &vm["zonename"]), (&json!(C), &json!("web")), "{path}");
    }
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")] // S11
async fn list_is_an_empty_array_on_an_empty_node() {
    let node = FakeNode::new();
    let served = node.serve_quiet().await;
    assert_eq!(served.get("/vms").await, (200, "[]".to_owned()));
    let (_node, served) = two_vms().await;
    assert_eq!(served.json("/vms").await.as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")] // S12
async fn lists_vms_hidden_from_inventory() {
    let node = FakeNode::new();
    node.add_vm(A, "joyent", &attr("do-not-inventory", "true"));
    let served = node.serve_quiet().await;
    let list = served.json("/vms").await;
    assert_eq!((&list[0]["uuid"], &list[0]["do_not_inventory"]), (&json!(A), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")] // S13
async fn new_vms_come_last_and_a_change_keeps_the_place() {
    let (node, served) = two_vms().await;
    let mut events = served.events().await;
    node.add_zone(C, "configured", None, "three");
    node.zone_event(C, "configured", -1).await;
    events.until(|event| event["type"] == "create").await;
    node.tags(A, &json!({"changed": true}));
    events.change_of("tags.changed").await;
    let list = served.json("/vms").await;
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|vm| &vm["zonename"]).collect();
    assert_eq!(names, [A, B, C]);
}

#[tokio::test(flavor = "multi_thread")] // S14
async fn one_connection_serves_two_requests() {
    let (_node, served) = two_vms().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"0\r\n\r\n") {
            let mut piece = [0; 512];
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..count]);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("pong"), "{answer}");
        assert!(answer.contains("\r\nConnection: keep-alive\r\n"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")] // S120
async fn older_and_careful_clients_are_not_left_waiting() {
    let (_node, served) = two_vms().await;
    let kept = "GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let continued = "GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\n\
                     Content-Length: 5\r\nConnection: close\r\n\r\n";
    for (request, wanted) in [
        (kept, vec!["200 OK", "Connection: close", "pong"]),
        (continued, vec!["HTTP/1.1 100 Continue", "HTTP/1.1 200 OK", "pong"]),
    ] {
        let answer = served.raw(request).await;
        let mut rest = &*answer;
        for text in wanted {
            let at = rest.find(text).unwrap_or_else(|| panic!("no {text} in time: {answer}"));
            rest = &rest[at + text.len()..];
        }
    }
    let (head, _) = raw(&served, "GET", "/ping").await;
    assert!(head.contains("\r\nConnection: "), "{head}");
    let status = served.json("/status?full=1").await;
    assert_eq!(status["fswatcher"]["message_delays"], json!({}), "as recorded");
}

#[tokio::test(flavor = "multi_thread")] // S15
async fn idle_stream_outlives_every_connection_limit() {
    // Deployed connections may idle for two minutes; here every limit is a fraction of a second.
    let deployed = Config::default().http;
    assert_eq!(deployed.idle, Duration::from_secs(120));
    let limit = Duration::from_millis(100);
    let http = HttpLimits { idle: limit, head: limit, write: limit, ..deployed };
    let node = FakeNode::one();
    let served = node.serve_as(Config { http, ..node.quiet() }).await;
    let mut events = served.events().await;
    for _ in 0..3 {
        // A connection that idles after its answer is closed: that long the stream was silent.
        let mut idle = TcpStream::connect(served.address).await.unwrap();
        let began = tokio::time::Instant::now();
        idle.write_all(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        idle.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
    }
    node.tags(A, &json!({"after": "a long silence"}));
    assert_eq!(events.soon().await["vm"]["tags"]["after"], "a long silence");
}

#[tokio::test(flavor = "multi_thread")] // S16
async fn running_refresh_delays_no_answer() {
    let (node, served) = two_vms().await;
    let before = (served.get("/vms").await, served.get(&format!("/vms/{A}")).await);
    node.set_zone(A, "installed", None);
    let asked = refreshing(&node, &served).await;
    // Nothing can finish the refresh: all of this is answered meanwhile, with what was known.
    let began = tokio::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(served.get("/vms").await, before.0);
        assert_eq!(served.get(&format!("/vms/{A}")).await, before.1);
        assert_eq!(served.get("/ping").await.0, 200);
        assert_eq!(served.get("/status").await.0, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?} for 80 requests", began.elapsed());
    node.release();
    assert_eq!(asked.await.unwrap(), 200);
    assert_eq!(served.vm(A).await["state"], "stopped");
}

#[tokio::test(flavor = "multi_thread")] // S17, B21
async fn failed_refresh_changes_only_the_status() {
    let (node, served) = two_vms().await;
    let mut events = served.events().await;
    let one = format!("/vms/{A}");
    let before = (served.get("/vms").await, served.get(&one).await, served.get("/none").await);
    node.set_zone(A, "installed", None);
    node.with(|state| state.failing.insert("zfs", "out of order".to_owned()));
    assert_eq!(served.get("/vms?sync=true").await.0, 503);
    let after = (served.get("/vms").await, served.get(&one).await, served.get("/none").await);
    assert_eq!(before, after);
    let status = served.json("/status").await;
    let error = status["refreshErrors"][0]["err"].as_str().unwrap();
    assert!(error.contains("out of order"), "{status}");
    assert_eq!(events.seq, status["journal"]["newest"], "nothing was told");
    // The attempt advances `lastRefresh` as shipped; other keys show whether data are fresh.
    assert!(status["errors"]["node"]["attempts"].as_u64() >= Some(1), "{status}");
    node.with(|state| state.failing.clear());
    assert_eq!(served.get("/vms?sync=true").await.0, 200);
    assert_eq!(events.soon().await["vm"]["state"], "stopped");
}
