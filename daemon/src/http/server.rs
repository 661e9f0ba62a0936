// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The accept loop: caps on connections, heads and rates, deadlines, and an orderly end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::{BoxError, Router};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use sdc_clients::http::Duplex;
use sdc_clients::identity::Identity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::first_line::FirstLine;
use super::guard::Guard;
use super::limits::{Counts, Limits};
use super::pace::Pace;
use super::reply::refuse;
use super::socket::{Progress, Proved, Reset, Socket};
use super::takeover::Afterwards;
use super::unix::UnixSocket;
use crate::tasks::Shutdown;

/// More header fields than the shipped services take from a head of the largest size.
const MAX_HEADERS: usize = 1024;

/// A TCP peer is probed after this long without traffic,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// again after this long,
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);
/// and given up after so many probes.
const KEEPALIVE_TRIES: u32 = 4;
/// How long connections that are cut at the shutdown have to close.
const CUT: Duration = Duration::from_millis(100);

/// Where connections come from.
#[derive(Debug)]
pub enum Acceptor {
    /// A TCP port.
    Tcp(TcpListener),
    Unix(UnixSocket),
    /// A TCP port whose clients prove who they are.
    Secure(TcpListener, Arc<dyn Secure>),
}

/// Makes the client of a connection prove who it is. What it is given back by has its bounds in number and time.
pub trait Secure: std::fmt::Debug + Send + Sync {
    /// Shakes hands on a connection from this address.
    fn secure(&self, stream: TcpStream, from: IpAddr) -> BoxFuture<'static, io::Result<Secured>>;
}

/// A connection whose client is known. The routes find him as the extension `Option<Identity>`, and what he has shown
/// as `Option<Shown>`.
pub struct Secured {
    /// The connection. What it does not carry to its end is an error to the other end.
    pub stream: Box<dyn Duplex>,
    /// Who has proved to be there; none where that is not asked for.
    pub peer: Option<Identity>,
    /// The certificate with which he has.
    pub shown: Option<Shown>,
    /// Whether that was revoked since. Each request is judged by it.
    pub is_revoked: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// A certificate that a client has authenticated with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number, as hexadecimal text.
    pub serial: String,
    /// The fingerprint of its key.
    pub key: String,
    /// The name of the authority that signed it.
    pub issuer: String,
    /// Until when it is valid, in seconds since 1970.
    pub until: i64,
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secured").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl From<TcpListener> for Acceptor {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixSocket> for Acceptor {
    fn from(socket: UnixSocket) -> Self {
        Self::Unix(socket)
    }
}

enum Peer {
    Tcp(TcpStream),
    Unix(UnixStream),
    Secure(BoxFuture<'static, io::Result<Secured>>),
}

impl Acceptor {
    async fn accept(&self) -> io::Result<Peer> {
        match self {
            Self::Tcp(listener) => Ok(Peer::Tcp(listener.accept().await?.0)),
            Self::Unix(socket) => Ok(Peer::Unix(socket.listener.accept().await?.0)),
            Self::Secure(listener, secure) => {
                let (stream, from) = listener.accept().await?;
                let _best_effort = stream.set_nodelay(true);
                let _best_effort = keep_alive(&stream);
                Ok(Peer::Secure(secure.secure(stream, from.ip())))
            }
        }
    }

    /// Browsers cannot reach a unix socket, but the same rule there costs nothing.
    fn guard(&self) -> Guard {
        let address = match self {
            Self::Tcp(listener) | Self::Secure(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        };
        address.map(Guard::at).unwrap_or_default()
    }
}

/// What all listeners of one program share; cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    limits: Limits,
    counts: Arc<Counts>,
    permits: Arc<Semaphore>,
    pace: Arc<Pace>,
    first_line: Option<FirstLine>,
    names: Arc<[String]>,
    any_name: bool,
    shutdown: Shutdown,
}

impl Server {
    /// Makes a server that ends at the shutdown.
    pub fn new(limits: Limits, shutdown: Shutdown) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(limits.connections)),
            pace: Arc::new(Pace::per_second(limits.requests_per_second)),
            limits,
            counts: Arc::default(),
            first_line: None,
            names: Arc::default(),
            any_name: false,
            shutdown,
        }
    }

    /// Passes the start of each connection through `first_line` before it is parsed.
    pub fn with_first_line(self, first_line: FirstLine) -> Self {
        Self { first_line: Some(first_line), ..self }
    }

    /// Answers requests for these host names as well.
    pub fn with_names(self, names: &[String]) -> Self {
        Self { names: names.into(), ..self }
    }

    /// Answers requests for any host name, also of other nodes.
    pub fn under_any_name(self) -> Self {
        Self { any_name: true, ..self }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Serves until the shutdown, then waits until every stream has ended at a line boundary. What
    /// has not ended after the drain time is reset.
    pub async fn serve(self, acceptor: impl Into<Acceptor>, router: Router) {
        let acceptor = acceptor.into();
        let guard =
            acceptor.guard().with_names(Arc::clone(&self.names)).under_any_name(self.any_name);
        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        loop {
            // Cancel-safe: a connection not accepted here stays in the backlog.
            let accepted = tokio::select! {
                accepted = acceptor.accept() => accepted,
                () = self.shutdown.wait() => break,
            };
            let peer = match accepted {
                Ok(peer) => peer,
                Err(error) => {
                    // Probably out of descriptors: the loop must neither end nor spin.
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                Counts::add(&self.counts.refused);
                tracing::warn!(
                    limit = self.limits.connections,
                    "refused a connection: too many are open"
                );
                continue;
            };
            Counts::add(&self.counts.connections);
            Counts::add(&self.counts.open);
            let (server, router, cut) = (self.clone(), router.clone(), cut.clone());
            let guard = guard.clone();
            connections.spawn(async move {
                match peer {
                    Peer::Tcp(stream) => {
                        let _best_effort = stream.set_nodelay(true);
                        let _best_effort = keep_alive(&stream);
                        server.connection(stream, guard, router, cut).await;
                    }
                    Peer::Unix(stream) => server.connection(stream, guard, router, cut).await,
                    Peer::Secure(shaking) => server.secured(shaking, guard, router, cut).await,
                }
                server.counts.open.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
            });
        }
        drop(acceptor);
        connections.close();
        if tokio::time::timeout(self.limits.drain, connections.wait()).await.is_err() {
            tracing::warn!(
                left = connections.len(),
                "reset the connections that were left at shutdown"
            );
            cut.cancel();
            let _left_to_the_exit = tokio::time::timeout(CUT, connections.wait()).await;
        }
    }

    /// Serves a connection once its client is known.
    async fn secured(
        &self,
        shaking: BoxFuture<'static, io::Result<Secured>>,
        guard: Guard,
        router: Router,
        cut: CancellationToken,
    ) {
        // All arms are cancel-safe: nothing was asked yet.
        let shaken = tokio::select! {
            shaken = shaking => shaken,
            () = self.shutdown.wait() => return,
        };
        let Secured { stream, peer, shown, is_revoked } = match shaken {
            Ok(secured) => secured,
            Err(error) => {
                tracing::warn!(%error, "refused a connection: the client did not authenticate");
                return;
            }
        };
        let judged = move |request, next: axum::middleware::Next| {
            let is_revoked = is_revoked();
            async move {
                match is_revoked {
                    true => {
                        refuse(StatusCode::FORBIDDEN, "Revoked", "your certificate was revoked")
                    }
                    false => next.run(request).await,
                }
            }
        };
        let router = router.layer(axum::Extension(peer)).layer(axum::Extension(shown));
        let router = router.layer(axum::middleware::from_fn(judged));
        self.connection(Proved(stream), guard, router, cut).await;
    }

    async fn connection<T>(&self, stream: T, guard: Guard, router: Router, cut: CancellationToken)
    where
        T: AsyncRead + AsyncWrite + Reset + Unpin + Send + 'static,
    {
        let socket = Socket::new(stream, self.limits, self.first_line);
        let progress = socket.progress();
        let afterwards = Afterwards::default();
        let service = {
            let (server, ending) = (self.clone(), (progress.clone(), afterwards.clone()));
            // Boxed: hyper keeps the space of one future for as long as the connection lives.
            service_fn(move |request| {
                let (server, guard) = (server.clone(), guard.clone());
                Box::pin(server.answer(request, guard, router.clone(), ending.clone()))
            })
        };
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle)
            .max_buf_size(self.limits.head_bytes)
            .max_headers(MAX_HEADERS)
            .title_case_headers(true)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        let mut stopping = false;
        let ended = loop {
            // All arms are cancel-safe: the connection stays here, the others only observe.
            tokio::select! {
                ended = &mut connection => break ended,
                () = self.shutdown.wait(), if !stopping => {
                    stopping = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
                () = cut.cancelled() => {
                    if let Some(parts) = connection.into_parts() {
                        parts.io.into_inner().reset();
                    }
                    return;
                }
            }
        };
        tokio::select! {
            () = afterwards.serve() => {}
            () = self.shutdown.wait() => {}
        }
        if progress.has_stalled() {
            Counts::add(&self.counts.stalled);
        }
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }

    async fn answer(
        self,
        mut request: Request<Incoming>,
        guard: Guard,
        router: Router,
        (progress, afterwards): (Arc<Progress>, Afterwards),
    ) -> Result<Response<Body>, Infallible> {
        progress.head_complete();
        Counts::add(&self.counts.requests);
        self.pace.turn().await;
        if let Some(refusal) = self.refusal(&request, guard) {
            return Ok(refusal);
        }
        let has_body = !request.body().is_end_stream();
        let upgrade = Afterwards::of(&mut request);
        let response = call(router, request).await;
        if afterwards.follows(&response, upgrade) {
            progress.leave_http();
        }
        if has_body {
            // The bytes of the body were taken for those of the next head.
            progress.head_complete();
        }
        Ok(response)
    }

    fn refusal(&self, request: &Request<Incoming>, guard: Guard) -> Option<Response<Body>> {
        if guard.admits(request) {
            return None;
        }
        Counts::add(&self.counts.foreign);
        Some(refuse(StatusCode::FORBIDDEN, "Forbidden", "only local clients are served"))
    }
}

/// Returns the router's answer; for clients in the same process, too.
pub async fn call<B>(router: Router, request: Request<B>) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Makes the system probe a silent peer. Nothing else ends a stream on which nothing is sent; the
/// system's default is hours.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES)
}
