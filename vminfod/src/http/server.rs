// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The accept loop: caps on connections and heads, deadlines, and an orderly end.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::Api;
use super::stall::{Head, Stalling};

/// Connections at once; more are closed as they come.
const CONNECTIONS: usize = 16_384;
/// Largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// A head must be complete this long after its first byte.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// An idle connection is kept this long, as the shipped service does.
const IDLE_LIMIT: Duration = Duration::from_secs(120);
/// A peer must take some of our bytes within this.
const WRITE_LIMIT: Duration = Duration::from_secs(60);
/// Streams have this long to end after a shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Serves until the shutdown, then lets every stream end at a line boundary.
pub async fn serve(listener: TcpListener, api: Api) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        // Cancel-safe: a connection not accepted here stays in the backlog.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = api.shutdown.wait() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: the loop must neither end nor spin.
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(limit = CONNECTIONS, "connection refused: too many are open");
            continue;
        };
        let api = api.clone();
        connections.spawn(async move {
            connection(stream, api).await;
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(DRAIN_LIMIT, connections.wait()).await.is_err() {
        tracing::warn!(left = connections.len(), "connections cut at shutdown");
    }
}

async fn connection(stream: TcpStream, api: Api) {
    let _best_effort = stream.set_nodelay(true);
    let _best_effort = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let head = Head::default();
    let io = TokioIo::new(Stalling::new(stream, head.clone(), HEAD_LIMIT, WRITE_LIMIT));
    let shutdown = api.shutdown.clone();
    let service = service_fn(move |request| {
        head.complete();
        api.clone().answer(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .title_case_headers(true)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    // Both arms are cancel-safe: the connection stays pinned here and is polled on below.
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
