// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Bodies that are passed on while they come, over real connections.

use std::sync::Arc;
use std::time::Duration;

use daemon::Shutdown;
use daemon::http::{Limits, Server};
use pretty_assertions::assert_eq;
use sdc_clients::http::{HttpTransport, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Upstream, router, world};

const SOON: Duration = Duration::from_secs(20);

/// Reads until the end of the head, and returns it with what follows it already.
async fn head(socket: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        let at = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(at) = at {
            let rest = bytes.split_off(at + 4);
            return (String::from_utf8(bytes).unwrap().to_lowercase(), rest);
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "it closed");
    }
}

#[tokio::test] // M127
async fn a_body_that_is_passed_on_is_not_held() {
    let vmapi = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", vmapi.local_addr().unwrap());
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().unwrap());
    let upstream = Upstream::new(&base, transport).unwrap();
    let routes = router(world().await.service.clone(), upstream);
    let (listener, address) = daemon::http::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let shutdown = Shutdown::new();
    let server = Server::new(Limits::default(), shutdown.clone()).under_any_name();
    tokio::spawn(server.serve(listener, routes));
    for (length, chunked) in [("content-length: 15", false), ("transfer-encoding: chunked", true)] {
        let framed = |text: &str| match chunked {
            true => format!("{:x}\r\n{text}\r\n", text.len()),
            false => text.to_owned(),
        };
        let mut client = TcpStream::connect(address).await.unwrap();
        let ask = format!("POST /vms HTTP/1.1\r\nhost: x\r\n{length}\r\nconnection: close\r\n\r\n");
        client.write_all((ask + &framed("{\"half\":")).as_bytes()).await.unwrap();
        // VMAPI has the first half before there is a second.
        let (mut socket, _) = timeout(SOON, vmapi.accept()).await.expect("it is held").unwrap();
        let (sent, mut body) = timeout(SOON, head(&mut socket)).await.expect("it is held");
        assert!(sent.contains(length), "{sent}");
        while !String::from_utf8_lossy(&body).contains("half") {
            timeout(SOON, socket.read_buf(&mut body)).await.expect("it is held").unwrap();
        }
        let rest = framed("\"done\"}") + if chunked { "0\r\n\r\n" } else { "" };
        client.write_all(&rest.as_bytes()[..rest.len() - usize::from(!chunked)]).await.unwrap();
        while !String::from_utf8_lossy(&body).contains("done") {
            timeout(SOON, socket.read_buf(&mut body)).await.unwrap().unwrap();
        }
        if !chunked {
            // The client goes away before its end: nothing that is whole reaches VMAPI.
            drop(client);
            let end = timeout(SOON, socket.read_to_end(&mut body)).await.unwrap();
            assert!(end.is_ok_and(|_| body.len() < 15), "{}", String::from_utf8_lossy(&body));
            continue;
        }
        socket.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        let mut answer = String::new();
        timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
        assert_eq!(answer.split("\r\n\r\n").nth(1).map(|it| it.contains("{}")), Some(true));
    }
    shutdown.trigger();
}
