// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The HTTP interface, with a small vminfod and a small agent behind it.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test; clippy sees tests only in #[test] itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use console::config::Config;
use daemon::Shutdown;
use daemon::command::{Paths, Program};
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const SOON: Duration = Duration::from_secs(10);
const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

async fn start(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// One line of a stream, the next when `more` is notified, then nothing for ever.
fn events(query: Option<String>, more: Arc<Notify>) -> Response {
    if query.as_deref() == Some("epoch=old&since=1") {
        return (StatusCode::GONE, JSON, r#"{"code":"Gone"}"#).into_response();
    }
    let first = stream::iter([format!("{{\"query\":{query:?}}}\n")]);
    let second = stream::once(async move {
        more.notified().await;
        "{\"n\":2}\n".to_owned()
    });
    let lines = first.chain(second).chain(stream::pending()).map(Ok::<_, std::io::Error>);
    (JSON, Body::from_stream(lines)).into_response()
}

struct Fixture {
    console: SocketAddr,
    more: Arc<Notify>,
    shutdown: Shutdown,
}

/// console with a vminfod, an agent that answers, one that answers HTML and one that is not running.
async fn fixture() -> Fixture {
    let more = Arc::new(Notify::new());
    let wake = Arc::clone(&more);
    let hub = Router::new()
        .route("/status", get(|| async { r#"{"numVms":1}"# }))
        .route("/vms", get(|| async { (JSON, "[]") }))
        .route("/why/x", get(|| async { r#"{"uuid":"x"}"# }))
        .route("/metrics", get(|| async { "# HELP\nup 1\n" }))
        .route("/events", get(move |RawQuery(query)| async move { events(query, wake) }));
    let agent = Router::new()
        .route("/status", get(|| async { r#"{"pass":1}"# }))
        .route("/plan", get(|| async { r#"{"decisions":[]}"# }))
        .route("/holds", get(|| async { "[]" }));
    let odd = Router::new().route("/status", get(|| async { "<script>alert(1)</script>" }));
    let service = Router::new()
        .route(
            "/migrations",
            get(|RawQuery(query)| async move { format!("[\"{}\"]", query.unwrap_or_default()) }),
        )
        .route("/status", get(|| async { r#"{"degraded":[]}"# }))
        .route("/volumes", get(|| async { r#"[{"uuid":"v"}]"# }));
    let service = start(service).await;
    let off = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (hub, agent, odd) = (start(hub).await, start(agent).await, start(odd).await);
    let agents = [("net-agent", agent), ("odd", odd), ("off", off)];
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        agents: agents.map(|(name, at)| (name.to_owned(), at)).into(),
        migrations: Some(format!("http://{service}")),
        volumes: Some(format!("http://{service}")),
        commands: Paths::default()
            .with(Program::Svcprop, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/svcprop")),
        ..Config::beside(hub)
    };
    let shutdown = Shutdown::new();
    let (console, tasks) = console::serve(config, shutdown.clone()).await.unwrap();
    tokio::spawn(async move { tasks.ended().await });
    Fixture { console, more, shutdown }
}

async fn send(console: SocketAddr, method: &str, path: &str, host: &str) -> TcpStream {
    let mut peer = TcpStream::connect(console).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    peer.write_all(request.as_bytes()).await.unwrap();
    peer
}

/// Head and body of an answer.
async fn ask(console: SocketAddr, method: &str, path: &str, host: &str) -> (String, String) {
    let mut text = String::new();
    send(console, method, path, host).await.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

async fn read_until(peer: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(wanted) {
            let mut bytes = [0; 1024];
            let count = peer.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the stream ended: {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    };
    tokio::time::timeout(SOON, reading).await.unwrap();
    text
}

#[tokio::test]
async fn serves_the_page_with_its_policy() {
    let console = fixture().await.console;
    let (head, _) = ask(console, "GET", "/", "localhost").await;
    assert!(head.contains(" 302 ") && head.to_lowercase().contains("location: /ui"), "{head}");
    for (path, kind) in [("/ui", "text/html"), ("/ui/main.js", "text/javascript")] {
        let (head, body) = ask(console, "GET", path, "127.0.0.1").await;
        let head = head.to_lowercase();
        assert!(head.contains(" 200 ") && head.contains(kind) && !body.is_empty(), "{head}");
        for header in ["default-src 'none'", "nosniff", "x-frame-options: deny", "no-referrer"] {
            assert!(head.contains(header), "{header} in {head}");
        }
    }
    let (_, body) = ask(console, "GET", "/ui/agents", "localhost").await;
    assert!(
        body.contains(r#"["vminfod","net-agent","odd","off","migrations","volumes"]"#),
        "{body}"
    );
    let (_, body) = ask(console, "GET", "/status", "localhost").await;
    assert!(
        body.contains("\"streams\":0") && body.contains("\"net-agent\":\"127.0.0.1:"),
        "{body}"
    );
}

#[tokio::test]
async fn passes_on_json_of_known_programs_only() {
    let console = fixture().await.console;
    for (path, wanted) in [
        ("/ui/agents/vminfod/status", r#"{"numVms":1}"#),
        ("/ui/agents/vminfod/vms", "[]"),
        ("/ui/agents/vminfod/why?vm=x", r#"{"uuid":"x"}"#),
        ("/ui/agents/vminfod/metrics", r##""# HELP\nup 1\n""##),
        ("/ui/agents/net-agent/status", r#"{"pass":1}"#),
        ("/ui/agents/net-agent/plan", r#"{"decisions":[]}"#),
        ("/ui/agents/off/whose", r#"{"is_other":true}"#),
        ("/ui/agents/odd/whose", r#"{"is_other":false}"#),
        ("/ui/agents/migrations/status", r#"["format=raw"]"#),
        ("/ui/agents/volumes/status", r#"{"degraded":[]}"#),
        ("/ui/agents/volumes/plan", r#"[{"uuid":"v"}]"#),
    ] {
        let (head, body) = ask(console, "GET", path, "localhost").await;
        assert!(head.contains(" 200 ") && head.contains("application/json"), "{path}: {head}");
        assert!(body.contains(wanted), "{path}: {body}");
    }
    for (path, status) in [
        ("/ui/agents/odd/status", " 502 "),
        ("/ui/agents/off/status", " 502 "),
        ("/ui/agents/net-agent/holds", " 404 "),
        ("/ui/agents/net-agent/vms", " 404 "),
        ("/ui/agents/migrations/plan", " 404 "),
        ("/ui/agents/migrations/metrics", " 404 "),
        ("/ui/agents/volumes/metrics", " 404 "),
        ("/ui/agents/volumes/history", " 404 "),
        ("/ui/agents/vminfod/why", " 404 "),
        ("/ui/agents/vminfod/why/x", " 404 "),
        ("/ui/agents/vminfod/why?vm=..", " 502 "),
        ("/ui/agents/net-agent/why?vm=x", " 404 "),
        ("/ui/agents/other/status", " 404 "),
        ("/ui/agents/127.0.0.1/status", " 404 "),
        ("/ui/../status.js", " 404 "),
    ] {
        let (head, body) = ask(console, "GET", path, "localhost").await;
        assert!(
            head.contains(status) && head.contains("application/json"),
            "{path}: {head}\n{body}"
        );
    }
}

#[tokio::test]
async fn refuses_foreign_hosts_and_writes() {
    let console = fixture().await.console;
    for path in ["/ui", "/ui/agents/vminfod/vms"] {
        let (head, _) = ask(console, "GET", path, "rebound.example").await;
        assert!(head.contains(" 403 "), "{head}");
        let (head, _) = ask(console, "POST", path, "localhost").await;
        assert!(head.contains(" 405 "), "{head}");
    }
}

#[tokio::test]
async fn events_pass_as_they_come_and_end_at_the_shutdown() {
    let Fixture { console, more, shutdown } = fixture().await;
    let path = "/ui/agents/vminfod/events";
    let (head, _) = ask(console, "GET", &format!("{path}?epoch=old&since=1"), "localhost").await;
    assert!(head.contains(" 410 "), "{head}");
    let asked = format!("{path}?since=7&epoch=e&other=1");
    let mut peer = send(console, "GET", &asked, "localhost").await;
    let text = read_until(&mut peer, "query").await;
    assert!(text.contains("application/json") && text.contains("epoch=e&since=7"), "{text}");
    more.notify_one();
    read_until(&mut peer, "\"n\":2").await;
    shutdown.trigger();
    let mut rest = Vec::new();
    tokio::time::timeout(SOON, peer.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test]
async fn streams_are_bounded_and_freed_when_their_reader_leaves() {
    let console = fixture().await.console;
    let path = "/ui/agents/vminfod/events";
    let mut peers = Vec::new();
    for _ in 0..64 {
        let mut peer = send(console, "GET", path, "localhost").await;
        read_until(&mut peer, "query").await;
        peers.push(peer);
    }
    let (head, _) = ask(console, "GET", path, "localhost").await;
    assert!(head.contains(" 503 "), "{head}");
    drop(peers);
    let freed = async {
        while !ask(console, "GET", "/status", "localhost").await.1.contains("\"streams\":0") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, freed).await.unwrap();
}
