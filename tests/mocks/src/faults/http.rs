// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The listener of the mock services. A handler may also answer with half a body or cut the
//! connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sdc_clients::http::Duplex;
use tokio_util::sync::CancellationToken;

/// The answer of a mock.
#[derive(Debug)]
pub enum Reply {
    /// A whole answer.
    Full(Response<Bytes>),
    /// The headers of the whole answer, then this many bytes, then nothing.
    Truncated(Response<Bytes>, usize),
    /// The connection closes without an answer.
    Cut,
}

type Serve = dyn Fn(Box<dyn Duplex>) -> BoxFuture<'static, ()> + Send + Sync;

/// What happens to a connection after a 101 answer, in whose extensions it is.
#[derive(Clone)]
pub struct Takeover(Arc<Serve>);

impl Takeover {
    /// The connection is served by this function.
    pub fn new(
        serve: impl Fn(Box<dyn Duplex>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(serve))
    }

    /// Serves a connection until it ends.
    pub fn serve(&self, io: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        (self.0)(io)
    }
}

/// A mock service: one function from request to reply.
pub trait Mock: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply>;
}

impl Reply {
    /// The answer as an axum response; a cut becomes a body that fails at once.
    pub fn into_axum(self) -> Response<Body> {
        match self {
            Reply::Full(response) => response.map(Body::from),
            Reply::Truncated(response, bytes) => response.map(|body| cut_body(&body, bytes)),
            Reply::Cut => Response::new(cut_body(&Bytes::new(), 0)),
        }
    }
}

/// A body that fails after so many bytes. The pause gives hyper time to send them.
fn cut_body(body: &Bytes, bytes: usize) -> Body {
    let head = body.slice(..bytes.min(body.len()));
    let chunks = futures_util::stream::unfold(Some(head), |state| async move {
        match state {
            Some(head) if !head.is_empty() => Some((Ok(head), Some(Bytes::new()))),
            Some(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some((Err(std::io::Error::other("cut by a fault rule")), None))
            }
            None => None,
        }
    });
    Body::from_stream(chunks)
}

/// A running listener.
#[derive(Debug)]
pub struct Listening {
    addr: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Listening {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Closes the listener and every connection, and waits until the port is free.
    pub async fn stop(self) {
        self.stop.cancel();
        // The accept task only fails if it panicked; then the port is free as well.
        drop(self.task.await);
    }

    /// Waits until the listener ends.
    pub async fn wait(self) {
        drop(self.task.await);
    }
}

/// Serves the mock on the address until [`Listening::stop`].
pub async fn listen(addr: SocketAddr, mock: Arc<dyn Mock>) -> std::io::Result<Listening> {
    let listener = tokio::net::TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                () = token.cancelled() => break,
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        drop(stream.set_nodelay(true));
                        connections.spawn(serve(stream, Arc::clone(&mock)));
                    }
                }
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
        connections.shutdown().await;
    });
    Ok(Listening { addr, stop, task })
}

#[derive(Debug, thiserror::Error)]
#[error("cut by a fault rule")]
struct CutError;

async fn serve(stream: tokio::net::TcpStream, mock: Arc<dyn Mock>) {
    let taken_over = Mutex::new(None);
    let service = service_fn(|mut request: Request<hyper::body::Incoming>| {
        let (mock, taken_over) = (Arc::clone(&mock), &taken_over);
        let upgrade = hyper::upgrade::on(&mut request);
        async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(_) => return Err(CutError),
            };
            match mock.handle(Request::from_parts(parts, body)).await {
                Reply::Cut => Err(CutError),
                reply => {
                    let response = reply.into_axum();
                    if let Some(takeover) = response.extensions().get::<Takeover>() {
                        let mut taken_over =
                            taken_over.lock().unwrap_or_else(PoisonError::into_inner);
                        *taken_over = Some((upgrade, takeover.clone()));
                    }
                    Ok(response)
                }
            }
        }
    });
    // The connection ends with the client, or by a cut: neither is an error.
    let ended = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    drop(ended);
    let taken_over = taken_over.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((upgrade, takeover)) = taken_over
        && let Ok(io) = upgrade.await
    {
        takeover.serve(Box::new(TokioIo::new(io))).await;
    }
}
