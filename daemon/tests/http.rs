// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The server as a daemon uses it: over a port and a unix socket at once, with event streams that
//! resume, caps that hold, and an end that cuts no line.

#![allow(clippy::unwrap_used)] // a test may stop at once

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing;
use bytes::Bytes;
use daemon::http::events::{self, Follow, resume_line};
use daemon::http::{
    Body, Counts, Gone, Limits, Listeners, Router, Server, Start, Takeover, bind_unix, collect,
    refuse, reply, reply_json,
};
use daemon::journal::{self, Journal};
use daemon::{Shutdown, Tasks};
use futures_util::stream;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

const EPOCH: &str = "00112233445566aa";

/// A daemon with a journal, a port, a socket and three routes.
struct Toy {
    journal: Arc<Journal>,
    counts: Arc<Counts>,
    listeners: Listeners,
    shutdown: Shutdown,
    tasks: Tasks,
    at: SocketAddr,
    dir: tempfile::TempDir,
}

#[derive(Clone)]
struct Routes {
    journal: Arc<Journal>,
    counts: Arc<Counts>,
    listeners: Listeners,
    shutdown: Shutdown,
}

impl Routes {
    fn router(self) -> Router {
        Router::new()
            .route(
                "/ping",
                routing::get(async || {
                    reply_json(StatusCode::OK, &serde_json::json!({"ping": "pong"}))
                }),
            )
            .route("/events", routing::get(events))
            .route("/echo", routing::post(echo))
            .route("/leave", routing::get(leave))
            .with_state(self)
    }
}

async fn echo(body: Body) -> Response {
    match collect(body, 8, Duration::from_secs(60)).await {
        Some(bytes) => reply(StatusCode::OK, bytes),
        None => refuse(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "too large"),
    }
}

/// Says back what the connection says after HTTP, until it says nothing.
async fn leave() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [("connection", "upgrade"), ("upgrade", "echo")] {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response.extensions_mut().insert(Takeover::new(|io| {
        Box::pin(async move {
            let (mut read, mut write) = tokio::io::split(io);
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        })
    }));
    response
}

async fn events(State(routes): State<Routes>, RawQuery(query): RawQuery) -> Result<Response, Gone> {
    let start = Start::of(query.as_deref(), EPOCH, &routes.journal)?;
    let (lead, cursor) = match start {
        Start::Now => (Bytes::from_static(b"{\"type\":\"ready\"}\n"), routes.journal.span().1),
        Start::After(since) => (resume_line(EPOCH, since, routes.journal.span().1), since),
    };
    let follow = Follow {
        journal: routes.journal,
        cursor,
        rewrite: None,
        keep: routes.listeners.add("test".to_owned()),
        counts: routes.counts,
        shutdown: routes.shutdown,
    };
    Ok(reply(StatusCode::OK, events::open(stream::iter([lead]), follow)))
}

impl Toy {
    async fn serve(limits: Limits, ring: usize) -> Self {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let server = Server::new(limits, shutdown.clone());
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = port.local_addr().unwrap();
        let socket = bind_unix(&dir.path().join("sock"), 0o600).unwrap();
        let routes = Routes {
            journal: Arc::new(Journal::new(ring)),
            counts: server.counts(),
            listeners: Listeners::default(),
            shutdown: shutdown.clone(),
        };
        let toy = Self {
            journal: Arc::clone(&routes.journal),
            counts: server.counts(),
            listeners: routes.listeners.clone(),
            shutdown,
            tasks,
            at,
            dir,
        };
        let router = routes.router();
        toy.tasks.spawn_vital("port", server.clone().serve(port, router.clone()));
        toy.tasks.spawn_vital("socket", server.serve(socket, router));
        toy
    }

    async fn stop(self) {
        self.shutdown.trigger();
        assert!(self.tasks.drain(Duration::from_secs(5)).await, "some task did not end");
    }
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &str,
) -> Result<String, Infallible> {
    // A connection that is closed at once may be closed before this is written.
    let _closed = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _reset_is_an_end_too = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8(answer).unwrap())
}

async fn tcp(at: SocketAddr, request: &str) -> String {
    exchange(TcpStream::connect(at).await.unwrap(), request).await.unwrap()
}

async fn unix(path: &Path, request: &str) -> String {
    exchange(UnixStream::connect(path).await.unwrap(), request).await.unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

async fn until<S: AsyncRead + Unpin>(stream: &mut S, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "ended after {seen:?}");
        seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_a_port_and_a_socket() {
    let toy = Toy::serve(Limits::default(), journal::BYTES).await;
    let path = toy.dir.path().join("sock");
    for answer in [tcp(toy.at, &get("/ping")).await, unix(&path, &get("/ping")).await] {
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
            "{answer}"
        );
        assert!(answer.contains("{\"ping\":\"pong\"}"), "{answer}");
    }
    let post = |body: &str| {
        format!(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    assert!(unix(&path, &post("12345678")).await.contains("12345678"));
    assert!(unix(&path, &post("123456789")).await.starts_with("HTTP/1.1 413 "));
    let foreign =
        tcp(toy.at, "GET /ping HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(
        foreign.starts_with("HTTP/1.1 403 ") && foreign.contains("\"code\":\"Forbidden\""),
        "{foreign}"
    );
    assert_eq!(toy.counts.foreign.load(Ordering::Relaxed), 1);
    toy.stop().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_or_is_gone() {
    // Three events of eight bytes.
    let toy = Toy::serve(Limits::default(), 24).await;
    let mut live = TcpStream::connect(toy.at).await.unwrap();
    live.write_all(get("/events").as_bytes()).await.unwrap();
    until(&mut live, "ready").await;
    assert_eq!(toy.listeners.list().len(), 1);
    for n in 1..=5 {
        toy.journal.push(Bytes::from(format!("{{\"n\":{n}}}\n")));
        until(&mut live, &format!("{{\"n\":{n}}}\n")).await;
    }
    let mut again = TcpStream::connect(toy.at).await.unwrap();
    again.write_all(get(&format!("/events?epoch={EPOCH}&since=3")).as_bytes()).await.unwrap();
    let seen = until(&mut again, "{\"n\":5}\n").await;
    assert!(
        seen.contains("\"type\":\"resume\"") && seen.contains("\"seq\":3,\"newest\":5}\n"),
        "{seen}"
    );
    assert!(seen.contains("{\"n\":4}") && !seen.contains("{\"n\":3}"), "{seen}");
    for (query, why) in [
        (format!("epoch={EPOCH}&since=1"), "too old"),
        (format!("epoch={EPOCH}&since=6"), "not yet"),
        (format!("epoch={EPOCH}&since=x"), "no number"),
        ("epoch=other&since=5".to_owned(), "another start"),
    ] {
        let gone = tcp(toy.at, &get(&format!("/events?{query}"))).await;
        assert!(gone.starts_with("HTTP/1.1 410 "), "{why}: {gone}");
        assert!(gone.contains("\"oldest\":3,\"newest\":5"), "{why}: {gone}");
    }
    // The end comes between two lines, with a proper last chunk.
    let (listeners, shutdown) = (toy.listeners.clone(), toy.shutdown.clone());
    shutdown.trigger();
    assert!(until(&mut live, "0\r\n\r\n").await.ends_with("0\r\n\r\n"));
    toy.stop().await;
    assert!(listeners.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_cut_at_a_line_boundary() {
    let toy = Toy::serve(Limits::default(), 1 << 20).await;
    let mut slow = TcpStream::connect(toy.at).await.unwrap();
    slow.write_all(get("/events").as_bytes()).await.unwrap();
    until(&mut slow, "ready").await;
    let line = Bytes::from(format!("{{\"fill\":\"{}\"}}\n", "x".repeat(100_000)));
    for _ in 0..200 {
        toy.journal.push(line.clone());
    }
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut rest));
    read.await.expect("it was not cut").unwrap();
    // It may have been too slow for the very first of them.
    assert!(rest == b"0\r\n\r\n" || rest.ends_with(b"\"}\n\r\n0\r\n\r\n"));
    assert_eq!(toy.counts.fell_behind.load(Ordering::Relaxed), 1);
    assert_eq!(toy.counts.stalled.load(Ordering::Relaxed), 0);
    toy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_peer_is_reset_and_a_half_head_cut() {
    let limits = Limits {
        head: Duration::from_millis(200),
        write: Duration::from_millis(200),
        ..Limits::default()
    };
    let toy = Toy::serve(limits, 64 << 20).await;
    let begun = tcp(toy.at, "GET /ping HTTP/1.1\r\nHo").await;
    assert!(!begun.contains("pong"), "{begun}");
    let mut deaf = TcpStream::connect(toy.at).await.unwrap();
    deaf.write_all(get("/events").as_bytes()).await.unwrap();
    // From here on it takes nothing.
    until(&mut deaf, "ready").await;
    let line = Bytes::from(format!("{{\"fill\":\"{}\"}}\n", "x".repeat(1 << 20)));
    // More than any socket buffers, and no more than the ring keeps.
    for _ in 0..60 {
        toy.journal.push(line.clone());
    }
    let both = async {
        while toy.counts.stalled.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("both were cut");
    // It was cut within a line: its end is an error, not an end of file.
    let end = deaf.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    // One that is merely idle is not.
    let mut idle = TcpStream::connect(toy.at).await.unwrap();
    idle.write_all(get("/events").as_bytes()).await.unwrap();
    until(&mut idle, "ready").await;
    tokio::time::timeout(Duration::from_millis(600), idle.read_u8())
        .await
        .expect_err("an idle stream was cut");
    toy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_leaves_http_is_kept_until_the_shutdown() {
    let limits = Limits { head: Duration::from_millis(100), ..Limits::default() };
    let toy = Toy::serve(limits, journal::BYTES).await;
    let mut left = TcpStream::connect(toy.at).await.unwrap();
    // The first words come with the request.
    let request = "GET /leave HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    left.write_all(request.as_bytes()).await.unwrap();
    let seen = until(&mut left, "first").await;
    assert!(seen.starts_with("HTTP/1.1 101 "), "{seen}");
    // What it says is no head of a request, which would have to end in time.
    left.write_all(b"GET /ping").await.unwrap();
    until(&mut left, "GET /ping").await;
    let silence = tokio::time::timeout(Duration::from_millis(400), left.read_u8()).await;
    silence.expect_err("it was cut");
    left.write_all(b"last").await.unwrap();
    until(&mut left, "last").await;
    assert_eq!(toy.counts.open.load(Ordering::Relaxed), 1);
    assert_eq!(toy.counts.stalled.load(Ordering::Relaxed), 0);
    // One that does not ask for it is not served so.
    let plain = tcp(toy.at, &format!("{}more", get("/leave"))).await;
    assert!(!plain.contains("more"), "{plain}");
    toy.stop().await;
    let _end_or_reset = left.read_to_end(&mut Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_end_at_the_shutdown_is_reset() {
    let limits = Limits { drain: Duration::from_millis(100), ..Limits::default() };
    let toy = Toy::serve(limits, journal::BYTES).await;
    let mut deaf = TcpStream::connect(toy.at).await.unwrap();
    deaf.write_all(get("/events").as_bytes()).await.unwrap();
    until(&mut deaf, "ready").await;
    // More than any socket buffers.
    toy.journal.push(Bytes::from(format!("{{\"fill\":\"{}\"}}\n", "x".repeat(32 << 20))));
    deaf.readable().await.unwrap();
    toy.stop().await;
    let end = deaf.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_is_probed_within_a_minute() {
    let toy = Toy::serve(Limits::default(), journal::BYTES).await;
    let mut idle = TcpStream::connect(toy.at).await.unwrap();
    idle.write_all(get("/events").as_bytes()).await.unwrap();
    until(&mut idle, "ready").await;
    // The daemon's end, in the system's own table: which timer runs, and when it ends.
    let ports = (toy.at.port(), idle.local_addr().unwrap().port());
    let port = |text: &str| u16::from_str_radix(text.split_once(':').unwrap().1, 16).unwrap();
    let timer = || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        table.lines().skip(1).find_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let (kind, when) = columns[5].split_once(':').unwrap();
            let is_it = (port(columns[1]), port(columns[2])) == ports;
            is_it.then(|| (kind.to_owned(), u64::from_str_radix(when, 16).unwrap()))
        })
    };
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    let (mut kind, mut when) = timer().unwrap();
    // At first what was sent may wait for its acknowledgement.
    while kind != "02" && tokio::time::Instant::now() < end {
        tokio::task::yield_now().await;
        (kind, when) = timer().unwrap();
    }
    assert_eq!(kind, "02", "no keepalive timer");
    assert!(when <= 60 * 100, "{when} hundredths of a second");
    toy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_rates_are_capped() {
    let limits = Limits { connections: 2, requests_per_second: 3, ..Limits::default() };
    let toy = Toy::serve(limits, journal::BYTES).await;
    let mut both = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(toy.at).await.unwrap();
        stream.write_all(get("/events").as_bytes()).await.unwrap();
        until(&mut stream, "ready").await;
        both.push(stream);
    }
    assert_eq!(tcp(toy.at, &get("/ping")).await, "");
    assert_eq!(toy.counts.refused.load(Ordering::Relaxed), 1);
    drop(both);
    while toy.counts.open.load(Ordering::Relaxed) > 0 {
        tokio::task::yield_now().await;
    }
    // Six at once, two after a third of a second each; none is refused.
    let began = tokio::time::Instant::now();
    for _ in 0..8 {
        let answer = tcp(toy.at, &get("/ping")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    toy.stop().await;
}
