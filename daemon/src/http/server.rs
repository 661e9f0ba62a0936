// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The accept loop: caps on connections, heads and rates, deadlines, and an orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use http::header::{CONNECTION, EXPECT, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::body::Body;
use super::first_line::{FirstLine, is_refused};
use super::guard::Guard;
use super::lasting;
use super::pace::Pace;
use super::stall::{Head, Stalling};
use super::unix::Socket;
use super::wire::{Handover, Wire};
use super::{refuse, reply};
use crate::tasks::Shutdown;

/// More than the shipped services take fits into the largest head.
const MAX_HEADERS: usize = 1024;

/// A peer that has been silent for this long is asked whether it lives,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// and again after this long,
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);
/// so many times in all; then it is dead.
const KEEPALIVE_TRIES: u32 = 4;

/// Caps and deadlines of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; more are closed as they come.
    pub connections: usize,
    /// Requests a second in the long run, twice as many at once; more get 429. 0: no limit.
    pub requests_per_second: u32,
    /// Largest head of a request, in bytes.
    pub head_bytes: usize,
    /// A head must be complete this long after its first byte.
    pub head: Duration,
    /// An idle connection is kept this long, as the shipped service does.
    pub idle: Duration,
    /// A peer must take some of our bytes within this.
    pub write: Duration,
    /// Streams have this long to end after a shutdown.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            requests_per_second: 10_000,
            head_bytes: 16 << 10,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            write: Duration::from_secs(60),
            drain: Duration::from_secs(3),
        }
    }
}

/// What a server counted since its start.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered, refusals included.
    pub requests: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Connections closed at once because too many were open.
    pub refused: AtomicU64,
    /// Requests answered with 403: not a local client.
    pub foreign: AtomicU64,
    /// Requests answered with 429.
    pub throttled: AtomicU64,
    /// Connections cut because the peer took nothing, or did not finish a request's head.
    pub stalled: AtomicU64,
    /// Event streams ended because their next event had left the ring.
    pub fell_behind: AtomicU64,
}

impl Counts {
    /// One more of these.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Acceptor {
    /// A TCP port.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(Socket),
}

impl From<TcpListener> for Acceptor {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<Socket> for Acceptor {
    fn from(socket: Socket) -> Self {
        Self::Unix(socket)
    }
}

enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Acceptor {
    async fn accept(&self) -> io::Result<Peer> {
        match self {
            Self::Tcp(listener) => Ok(Peer::Tcp(listener.accept().await?.0)),
            Self::Unix(socket) => Ok(Peer::Unix(socket.listener.accept().await?.0)),
        }
    }

    /// The rule of who may ask here. Browsers cannot be led to a unix socket, but it costs
    /// nothing to ask the same of its clients.
    fn guard(&self) -> Guard {
        let address: Option<SocketAddr> = match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        };
        address.map(Guard::at).unwrap_or_default()
    }
}

/// What all the listeners of one program share; cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    limits: Limits,
    counts: Arc<Counts>,
    permits: Arc<Semaphore>,
    pace: Arc<Pace>,
    shutdown: Shutdown,
}

impl Server {
    /// A server that ends its streams at the shutdown.
    pub fn new(limits: Limits, shutdown: Shutdown) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(limits.connections)),
            pace: Arc::new(Pace::per_second(limits.requests_per_second)),
            limits,
            counts: Arc::default(),
            shutdown,
        }
    }

    /// What it counted.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Serves until the shutdown, then lets every stream end at a line boundary. `answer` is
    /// called once for each request that a local client sent.
    pub async fn serve<S, F>(self, acceptor: impl Into<Acceptor>, answer: S)
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let acceptor = acceptor.into();
        let guard = acceptor.guard();
        let connections = TaskTracker::new();
        loop {
            // Cancel-safe: a connection not accepted here stays in the backlog.
            let accepted = tokio::select! {
                accepted = acceptor.accept() => accepted,
                () = self.shutdown.wait() => break,
            };
            let peer = match accepted {
                Ok(peer) => peer,
                Err(error) => {
                    // Out of descriptors, most likely: the loop must neither end nor spin.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                Counts::add(&self.counts.refused);
                tracing::warn!(
                    limit = self.limits.connections,
                    "connection refused: too many are open"
                );
                continue;
            };
            Counts::add(&self.counts.connections);
            Counts::add(&self.counts.open);
            let (server, answer) = (self.clone(), answer.clone());
            connections.spawn(async move {
                match peer {
                    Peer::Tcp(stream) => {
                        let _best_effort = stream.set_nodelay(true);
                        let _best_effort = keep_alive(&stream);
                        server.connection(stream, guard, answer).await;
                    }
                    Peer::Unix(stream) => server.connection(stream, guard, answer).await,
                }
                server.counts.open.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
            });
        }
        drop(acceptor);
        connections.close();
        if tokio::time::timeout(self.limits.drain, connections.wait()).await.is_err() {
            tracing::warn!(left = connections.len(), "connections cut at shutdown");
        }
    }

    async fn connection<T, S, F>(&self, stream: T, guard: Guard, answer: S)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let head = Head::default();
        let stream = FirstLine::new(stream, self.limits.head_bytes, head.clone());
        let mut io = Stalling::new(stream, head.clone(), self.limits.head, self.limits.write);
        let (stalled, blocked) = (io.has_stalled(), io.is_blocked());
        let limit = self.limits.head;
        let ended: Result<(), Box<dyn std::error::Error + Send + Sync>> = loop {
            let handover = Handover::default();
            let (head, left, answer) = (head.clone(), handover.clone(), answer.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                head.complete();
                let refusal = self.refusal(&request, guard);
                let (left, answer) = (left.clone(), answer.clone());
                let may_last = request.version() == Version::HTTP_11;
                let closes = closes(&request);
                // Boxed: the library keeps the room of one answer for as long as the connection
                // lives.
                Box::pin(async move {
                    if let Some(refusal) = refusal {
                        return Ok::<_, Infallible>(refusal.map(Wire::Whole));
                    }
                    if request.headers().contains_key(EXPECT) {
                        invite(request.body_mut(), limit).await;
                    }
                    let response = answer(request).await;
                    if !may_last || !response.body().lasts() {
                        return Ok(response.map(Wire::Whole));
                    }
                    let (parts, body) = response.into_parts();
                    left.leave(body, closes);
                    Ok(Response::from_parts(parts, Wire::Left(left)))
                })
            });
            let mut connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.limits.idle)
                .max_buf_size(self.limits.head_bytes)
                .max_headers(MAX_HEADERS)
                .title_case_headers(true)
                .serve_connection(TokioIo::new(io), service);
            // Both arms are cancel-safe: the connection stays here and is driven on below.
            let driven = tokio::select! {
                driven = drive(&mut connection, &handover, &blocked) => driven,
                () = self.shutdown.wait() => {
                    Pin::new(&mut connection).graceful_shutdown();
                    drive(&mut connection, &handover, &blocked).await
                }
            };
            if let Some(ended) = driven {
                break ended.map_err(Into::into);
            }
            let parts = connection.into_parts();
            io = parts.io.into_inner();
            // Copied, since what is left of the library's buffer would keep all of it.
            let mut ahead = BytesMut::from(&parts.read_buf[..]);
            drop((parts.read_buf, parts.service));
            let Some((body, closes)) = handover.take() else { break Ok(()) };
            if let Err(error) = lasting::write(&mut io, body, &mut ahead).await {
                break Err(error.into());
            }
            if closes || self.shutdown.is_triggered() {
                break io.shutdown().await.map_err(Into::into);
            }
            io.put_back(ahead);
        };
        if stalled.load(Ordering::Relaxed) {
            Counts::add(&self.counts.stalled);
        }
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }

    fn refusal(&self, request: &Request<Incoming>, guard: Guard) -> Option<Response<Body>> {
        Counts::add(&self.counts.requests);
        if !self.pace.take() {
            Counts::add(&self.counts.throttled);
            let mut response = refuse(
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "too many requests a second",
            );
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Some(response);
        }
        if is_refused(request) {
            let mut response = reply(StatusCode::BAD_REQUEST, Body::empty());
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Some(response);
        }
        if !guard.admits(request) {
            Counts::add(&self.counts.foreign);
            return Some(refuse(
                StatusCode::FORBIDDEN,
                "Forbidden",
                "only local clients are served",
            ));
        }
        None
    }
}

/// Drives a connection until it ends, or until the head of an answer that lasts is out and nothing
/// else waits to be written: `None`.
async fn drive<C: Future + Unpin>(
    connection: &mut C,
    handover: &Handover,
    blocked: &AtomicBool,
) -> Option<C::Output> {
    std::future::poll_fn(|cx| match Pin::new(&mut *connection).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if handover.is_asked() && !blocked.load(Ordering::Relaxed) => {
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Does the client want no other answer after this one?
fn closes<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    values.any(|value| {
        let mut words = value.as_bytes().split(|byte| *byte == b',');
        words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// Who waits to be asked for a body is asked: the library says `100 Continue` while somebody waits
/// for the body, and not at all when nobody does. Its first piece, or what comes within the
/// limit, is dropped.
async fn invite(body: &mut Incoming, limit: Duration) {
    let piece = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx));
    // Elapsed: the peer thought better of it.
    let _not_wanted = tokio::time::timeout(limit, piece).await;
}

/// Has the system ask a silent peer whether it lives. Nothing else ends a stream that nothing is
/// sent on; the system's own patience is hours.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES)
}
