// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each phase of an exchange has its own limit, and an error names the one that passed.

use std::sync::Arc;
use std::time::Duration;

use pretty_assertions::assert_eq;
use sdc_clients::http::{Call, HttpTransport, Timeouts};
use sdc_clients::{Class, Error, Http, Phase};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";

#[derive(Clone, Copy)]
enum Server {
    /// Takes the request and says nothing.
    Silent,
    /// Begins the body and stops.
    Stalls,
    /// Goes on with the body, a byte at a time.
    Drips,
}

async fn serve(kind: Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = [0u8; 4096];
        assert!(socket.read(&mut request).await.unwrap() > 0);
        match kind {
            Server::Silent => {}
            Server::Stalls => {
                socket.write_all(HEAD).await.unwrap();
                socket.write_all(b"{").await.unwrap();
            }
            Server::Drips => {
                socket.write_all(HEAD).await.unwrap();
                let mut tick = tokio::time::interval(Duration::from_millis(10));
                while socket.write_all(b" ").await.is_ok() {
                    tick.tick().await;
                }
            }
        }
        std::future::pending::<()>().await;
    });
    base
}

async fn fail(kind: Server, timeouts: Timeouts, total: u64, method: &str) -> Error {
    let transport = Arc::new(HttpTransport::with_timeouts(timeouts).unwrap());
    let base = serve(kind).await;
    let http = Http::with_transport(&base, "t", transport).unwrap().without_retries();
    let call = Call::new(method.parse().unwrap(), &["x"]).timeout(Duration::from_millis(total));
    http.execute(call).await.unwrap_err()
}

fn limits(headers: Option<u64>, stall: u64) -> Timeouts {
    Timeouts {
        headers: headers.map(Duration::from_millis),
        stall: Duration::from_millis(stall),
        ..Timeouts::default()
    }
}

#[tokio::test]
async fn every_phase_has_its_name() {
    let cases = [
        (Server::Silent, limits(Some(100), 60_000), 60_000, Phase::Answer, "100ms"),
        (Server::Silent, limits(None, 60_000), 120, Phase::Answer, "120ms"),
        (Server::Silent, limits(Some(60_000), 60_000), 130, Phase::Answer, "130ms"),
        (Server::Stalls, limits(None, 140), 60_000, Phase::Body, "140ms"),
        (Server::Drips, limits(None, 60_000), 300, Phase::Total, "300ms"),
    ];
    for (kind, timeouts, total, phase, within) in cases {
        let error = fail(kind, timeouts, total, "GET").await;
        assert_eq!(error.class(), Class::Timeout(phase), "{error}");
        assert!(error.message().contains(within), "{error}");
        assert!(error.is_retryable() && error.is_timeout());
        let error = fail(kind, timeouts, total, "DELETE").await;
        assert_eq!((error.class(), error.phase()), (Class::UnknownOutcome, Some(phase)), "{error}");
        assert!(!error.is_retryable() && error.may_have_applied());
    }
}

#[tokio::test]
async fn a_connection_has_a_limit_of_its_own() {
    // A full backlog leaves further connections unanswered; nothing leaves this machine.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    loop {
        let connect = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connect).await {
            Ok(Ok(stream)) if waiting.len() < 64 => waiting.push(stream),
            Ok(_) => return eprintln!("skipped: this system never leaves a connection waiting"),
            Err(_) => break,
        }
    }
    let connect = Duration::from_millis(100);
    let timeouts = Timeouts { connect, ..Timeouts::default() };
    let transport = Arc::new(HttpTransport::with_timeouts(timeouts).unwrap());
    let http = Http::with_transport(&format!("http://{address}"), "t", transport).unwrap();
    let call = Call::new("PUT".parse().unwrap(), &["x"]);
    let error = http.without_retries().execute(call).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Phase::Connect), "{error}");
    assert!(error.is_retryable() && !error.may_have_applied(), "nothing was sent");
}
