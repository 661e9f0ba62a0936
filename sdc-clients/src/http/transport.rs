// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The transport over real sockets. No proxy whatever the environment says,
//! no redirects, no hidden retries; every phase has its deadline.

use std::error::Error as _;
use std::time::Duration;

use ::http::{Method, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::exchange::{
    CONNECT_TIMEOUT, Request, Response, STALL_TIMEOUT, StreamResponse, Switched, Transport,
};
use crate::error::{Class, Error, Phase};

/// Node closes idle connections after five seconds: be gone before that.
const POOL_IDLE: Duration = Duration::from_secs(4);
const POOL_SIZE: usize = 4;
/// A peer that vanished is noticed on an otherwise silent stream.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long each phase of an exchange may take. The whole of it has
/// [`Request::timeout`] besides, which no phase outlasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// From the start until the headers of the answer; `None` for as long as the whole may take.
    pub headers: Option<Duration>,
    /// Between two pieces of a body.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: CONNECT_TIMEOUT, headers: None, stall: STALL_TIMEOUT }
    }
}

/// Returns the path of the unix socket in `unix:/PATH`.
pub(super) fn socket_of(base_url: &str) -> Option<&str> {
    base_url.strip_prefix("unix:").filter(|path| path.starts_with('/'))
}

/// HTTP/1.1 through reqwest.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    client: reqwest::Client,
    timeouts: Timeouts,
}

impl HttpTransport {
    /// A transport with its own small pool of connections.
    pub fn new() -> Result<HttpTransport, Error> {
        HttpTransport::with_timeouts(Timeouts::default())
    }

    /// A transport to the service at `base_url`: through a unix socket where that is `unix:/PATH`.
    pub fn to(base_url: &str) -> Result<HttpTransport, Error> {
        HttpTransport::through(socket_of(base_url), Timeouts::default())
    }

    /// The same with other limits for the phases.
    pub fn with_timeouts(timeouts: Timeouts) -> Result<HttpTransport, Error> {
        HttpTransport::through(None, timeouts)
    }

    fn through(socket: Option<&str>, timeouts: Timeouts) -> Result<HttpTransport, Error> {
        let builder = reqwest::Client::builder();
        let builder = match socket {
            Some(path) => builder.unix_socket(path),
            None => builder,
        };
        builder
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .connect_timeout(timeouts.connect)
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .tcp_keepalive(KEEPALIVE)
            .build()
            .map(|client| HttpTransport { client, timeouts })
            .map_err(|e| {
                Error::new(Class::Request, &Method::GET, "", "no HTTP client").with_source(e)
            })
    }

    async fn headers(&self, mut request: Request) -> Result<(reqwest::Response, Exchange), Error> {
        let body = request.body.take().map(reqwest::Body::from);
        self.exchange(request, body).await
    }

    async fn exchange(
        &self,
        request: Request,
        body: Option<reqwest::Body>,
    ) -> Result<(reqwest::Response, Exchange), Error> {
        if request.peer.is_some() {
            let what = "the answer is to be proved, and this transport proves nothing";
            return Err(Error::new(Class::Request, &request.method, request.target(), what));
        }
        let exchange = Exchange {
            base: request.url.origin().ascii_serialization(),
            target: request.target(),
            method: request.method.clone(),
            limit: request.timeout,
            until: Instant::now() + request.timeout,
            timeouts: self.timeouts,
            body_cap: request.body_cap,
        };
        let (within, until) = match self.timeouts.headers {
            Some(headers) if headers < exchange.limit => (headers, Instant::now() + headers),
            _ => (exchange.limit, exchange.until),
        };
        let mut builder = self.client.request(request.method, request.url).headers(request.headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        match timeout_at(until, builder.send()).await {
            Ok(Ok(response)) => Ok((response, exchange)),
            Ok(Err(e)) => Err(exchange.failed(e)),
            Err(_) => Err(exchange.late(Phase::Answer, within)),
        }
    }
}

/// What errors need to know of the request after it is gone.
struct Exchange {
    /// Where the server is.
    base: String,
    method: Method,
    target: String,
    limit: Duration,
    until: Instant,
    timeouts: Timeouts,
    body_cap: usize,
}

impl Exchange {
    fn late(&self, phase: Phase, after: Duration) -> Error {
        Error::timed_out(phase, &self.method, self.target.as_str(), after)
    }

    fn failed(&self, e: reqwest::Error) -> Error {
        let e = e.without_url();
        let mut what = e.to_string();
        let mut cause = e.source();
        while let Some(inner) = cause {
            what = inner.to_string();
            cause = inner.source();
        }
        let error = if e.is_builder() {
            Error::new(Class::Request, &self.method, self.target.as_str(), what)
        } else if e.is_connect() && e.is_timeout() {
            self.late(Phase::Connect, self.timeouts.connect)
        } else if e.is_connect() {
            let what = format!("nothing answers on {}: {what}", self.base);
            Error::connect(&self.method, self.target.as_str(), what)
        } else {
            Error::broken(&self.method, self.target.as_str(), what)
        };
        error.with_source(e)
    }

    fn too_long(&self, response: &reqwest::Response) -> Error {
        let expected = format!("a body of at most {} bytes", self.body_cap);
        let status = Some(response.status());
        Error::protocol(&self.method, self.target.as_str(), status, &expected, b"more")
    }

    async fn body(&self, response: &mut reqwest::Response) -> Result<Bytes, Error> {
        let announced = response.content_length().unwrap_or(0);
        if usize::try_from(announced).map_or(true, |n| n > self.body_cap) {
            return Err(self.too_long(response));
        }
        let mut whole = BytesMut::new();
        loop {
            let stalled = Instant::now() + self.timeouts.stall;
            match timeout_at(self.until.min(stalled), response.chunk()).await {
                Ok(Ok(Some(piece))) if whole.len() + piece.len() > self.body_cap => {
                    return Err(self.too_long(response));
                }
                Ok(Ok(Some(piece))) => whole.extend_from_slice(&piece),
                Ok(Ok(None)) => return Ok(whole.freeze()),
                Ok(Err(e)) => return Err(self.failed(e)),
                Err(_) if stalled < self.until => {
                    return Err(self.late(Phase::Body, self.timeouts.stall));
                }
                Err(_) => return Err(self.late(Phase::Total, self.limit)),
            }
        }
    }
}

fn streamed(mut response: reqwest::Response, exchange: Exchange) -> StreamResponse {
    let headers = std::mem::take(response.headers_mut());
    let status = response.status();
    let pieces = response.bytes_stream();
    let body = stream::unfold(Some((pieces, exchange)), |state| async move {
        let (mut pieces, exchange) = state?;
        match pieces.next().await? {
            Ok(piece) => Some((Ok(piece), Some((pieces, exchange)))),
            Err(e) => Some((Err(exchange.failed(e)), None)),
        }
    });
    StreamResponse { status, headers, body: body.boxed() }
}

impl Transport for HttpTransport {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let (mut response, exchange) = self.headers(request).await?;
            let body = exchange.body(&mut response).await?;
            let headers = std::mem::take(response.headers_mut());
            Ok(Response { status: response.status(), headers, body })
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let (response, exchange) = self.headers(request).await?;
            Ok(streamed(response, exchange))
        })
    }

    fn pass(
        &self,
        request: Request,
        body: BoxStream<'static, Result<Bytes, Error>>,
    ) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let body = reqwest::Body::wrap_stream(body);
            let (response, exchange) = self.exchange(request, Some(body)).await?;
            Ok(streamed(response, exchange))
        })
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        Box::pin(async move {
            let (mut response, exchange) = self.headers(request).await?;
            let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
            if status != StatusCode::SWITCHING_PROTOCOLS {
                let body = exchange.body(&mut response).await?;
                return Ok(Switched::Stays(Response { status, headers, body }));
            }
            let io = response.upgrade().await.map_err(|e| exchange.failed(e))?;
            Ok(Switched::Left(headers, Box::new(io)))
        })
    }
}
