// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface over real sockets, quirks included.

use crate::common::scene::{followed, one_vm};
use crate::common::{A, FakeNode};
use serde_json::json;
use vminfod::config::Config;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_one_chunk_and_heads_have_a_limit() {
    let (_node, served) = one_vm().await;
    let answer = served.raw(&get("/ping")).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    assert!(answer.starts_with(head), "{answer}");
    assert!(answer.contains("Transfer-Encoding: chunked"), "{answer}");
    assert!(!answer.contains("Content-Length"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nF\r\n{\"ping\":\"pong\"}\r\n0\r\n\r\n"), "{answer}");
    let no_path = served.raw(&get("*")).await;
    assert!(no_path.starts_with("HTTP/1.1 404 "), "{no_path}");
    let huge = get("/ping").replacen("Host", &format!("X: {}\r\nHost", "x".repeat(20 << 10)), 1);
    let huge = served.raw(&huge).await;
    assert!(huge.is_empty() || huge.starts_with("HTTP/1.1 431 "), "{huge}");
    // Two requests sent at once.
    let two = get("/ping").replace("Connection: close\r\n", "") + &get("/ping");
    assert_eq!(served.raw(&two).await.matches("pong").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_resumes_or_is_gone() {
    let (node, served, mut events) = followed().await;
    let epoch = events.ready["epoch"].as_str().unwrap().to_owned();
    assert_eq!(events.ready["seq"], 0);
    for n in 1..=3 {
        node.tags(A, &json!({"t": format!("\u{e9}{n}")}));
        assert_eq!(events.soon().await["seq"], n);
    }
    let mut resumed = served.stream(&format!("epoch={epoch}&since=1")).await;
    assert_eq!(resumed.soon().await["type"], "resume");
    for n in 2..=3 {
        assert_eq!(resumed.soon().await["seq"], n);
    }
    for query in [
        "epoch=0123456789abcdef&since=1".to_owned(),
        format!("epoch={epoch}&since=9"),
        format!("epoch={epoch}&since=x"),
    ] {
        let (status, body) = served.get(&format!("/events?{query}")).await;
        assert_eq!(status, 410, "{query}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_port_is_one_clear_error() {
    let node = FakeNode::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let error = node.refused(Config { listen, ..node.config() }).await;
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
}
