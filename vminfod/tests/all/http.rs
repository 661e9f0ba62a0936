// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface over real sockets, quirks included.

use std::time::Duration;

use crate::common::{A, FakeNode};
use daemon::journal::Limits;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vminfod::config::Config;

/// Sends bytes as they are and reads to the end.
async fn raw(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _reset_is_an_end_too = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_have_the_shipped_quirks() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let at = served.address();
    for path in ["/ping", "//ping", "/a/../ping", "/ping/x?y=z"] {
        let answer = raw(at, &get(path)).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
            "{path}: {answer}"
        );
        assert!(
            answer.contains("Transfer-Encoding: chunked") && !answer.contains("Content-Length"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\nF\r\n{\"ping\":\"pong\"}\r\n0\r\n\r\n"), "{answer}");
    }
    for path in ["/", "/PING", "/p%69ng", "/foo", "*"] {
        let answer = raw(at, &get(path)).await;
        assert!(
            answer.starts_with("HTTP/1.1 404 ") && answer.contains("Unsupported URL Path"),
            "{path}: {answer}"
        );
        assert!(answer.contains("Content-Type: application/json"), "{answer}");
    }
    for method in ["POST", "PUT", "HEAD", "OPTIONS", "DELETE"] {
        let answer = raw(at, &get("/ping").replacen("GET", method, 1)).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 ")
                && answer.contains("Content-Type: application/json"),
            "{answer}"
        );
        assert!(!answer.contains('{'), "{answer}");
    }
    assert_eq!(served.get("/vms/%41").await, (404, "VM Not Found: %41".to_owned()));
    assert_eq!(served.json(&format!("/vms/{A}/x")).await, served.json("/vms/").await[0]);
    let foreign =
        raw(at, "GET /vms HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let browser = raw(
        at,
        "GET /vms HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://x\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(browser.starts_with("HTTP/1.1 403 "), "{browser}");
    let huge = raw(
        at,
        &format!("GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}\r\n\r\n", "x".repeat(20 << 10)),
    )
    .await;
    assert!(huge.is_empty() || huge.starts_with("HTTP/1.1 431 "), "{huge}");
    // Two requests, one connection.
    let two =
        raw(at, &format!("GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{}", get("/ping"))).await;
    assert_eq!(two.matches("pong").count(), 2);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_has_every_key() {
    let node = FakeNode::new();
    let served = node.serve().await;
    assert_eq!(served.json("/vms").await, Value::Array(Vec::new()));
    let events = served.events().await;
    let status = served.json("/status").await;
    let keys: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).take(12).collect();
    assert_eq!(
        keys,
        [
            "pid",
            "uptime",
            "memory",
            "state",
            "status",
            "numVms",
            "curDate",
            "curTime",
            "queue",
            "lastRefresh",
            "refreshErrors",
            "eventsListeners"
        ]
    );
    assert_eq!((&status["state"], &status["status"]), (&"running".into(), &"working".into()));
    let listener = &status["eventsListeners"][events.ready["uuid"].as_str().unwrap()];
    assert!(listener["userAgent"].is_string() && listener["createdAgo"].is_string(), "{status}");
    assert!(status.get("fswatcher").is_none());
    for path in ["/status?full=1", "/status?full=false"] {
        let full = served.json(path).await;
        assert!(
            full["refreshLog"].is_array() && full["fswatcher"]["watching"].is_array(),
            "{full}"
        );
    }
    for path in ["/status?full", "/status?full="] {
        assert!(served.json(path).await.get("fswatcher").is_none());
    }
    drop(events);
    while !served.json("/status").await["eventsListeners"].as_object().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_ascii_and_resumable() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let served = node.serve().await;
    let mut events = served.events().await;
    let epoch = events.ready["epoch"].as_str().unwrap().to_owned();
    assert_eq!(events.ready["seq"], 0);
    for n in 1..=3 {
        node.write(&format!("/zones/{A}/config/tags.json"), &format!("{{\"t\":\"\u{e9}{n}\"}}"));
        assert_eq!(events.soon().await["seq"], n);
    }
    let mut resumed =
        reqwest::get(format!("{}/events?epoch={epoch}&since=1", served.url)).await.unwrap();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 3 {
        text.extend_from_slice(&resumed.chunk().await.unwrap().unwrap());
    }
    assert!(text.is_ascii());
    let lines: Vec<Value> = text
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["type"], &lines[1]["seq"], &lines[2]["seq"]),
        (&"resume".into(), &2.into(), &3.into())
    );
    for query in [
        "epoch=0123456789abcdef&since=1".to_owned(),
        format!("epoch={epoch}&since=9"),
        format!("epoch={epoch}&since=x"),
    ] {
        let (status, body) = served.get(&format!("/events?{query}")).await;
        assert_eq!(status, 410, "{query}: {body}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_listener_uses_bounded_memory_and_delays_nobody() {
    let node = FakeNode::new();
    node.add_zone(A, "running", Some(5), "one");
    let limits = Limits { bytes: 300_000, min_events: 4 };
    let served = node.serve_as(Config { journal: limits, ..node.config() }).await;
    let mut stalled = TcpStream::connect(served.address()).await.unwrap();
    stalled
        .write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut events = served.events().await;
    let filler = "x".repeat(200_000);
    for n in 0..60 {
        node.write(
            &format!("/zones/{A}/config/metadata.json"),
            &format!(r#"{{"customer_metadata":{{"k":"{n}{filler}"}}}}"#),
        );
        assert_eq!(events.soon().await["type"], "modify");
    }
    let bytes = served.json("/status").await["journal"]["bytes"].as_u64().unwrap();
    assert!(bytes < 4_000_000, "{bytes}");
    // Now it reads on: whole lines, then an orderly end.
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stalled.read_to_end(&mut rest))
        .await
        .expect("it was not cut")
        .unwrap();
    let text = String::from_utf8(rest).unwrap();
    assert!(
        text.ends_with("\n\r\n0\r\n\r\n"),
        "{:?}",
        text.chars().rev().take(40).collect::<String>()
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_port_is_one_clear_error() {
    let node = FakeNode::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config { listen: taken.local_addr().unwrap(), ..node.config() };
    let commands = std::sync::Arc::new(node.clone());
    let error =
        vminfod::serve(config, commands, daemon::Shutdown::new()).await.unwrap_err().to_string();
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
}
