// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The transport over real sockets. No proxy whatever the environment says,
//! no redirects, no hidden retries; every phase has its deadline.

use std::error::Error as _;
use std::time::Duration;

use ::http::Method;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::{CONNECT_TIMEOUT, Request, Response, StreamResponse, Transport};
use crate::error::{Class, Error, Phase};

/// Node closes idle connections after five seconds: be gone before that.
const POOL_IDLE: Duration = Duration::from_secs(4);
const POOL_SIZE: usize = 4;
/// A peer that vanished is noticed on an otherwise silent stream.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// HTTP/1.1 through reqwest.
#[derive(Debug, Clone)]
pub struct HttpTransport(reqwest::Client);

impl HttpTransport {
    /// A transport with its own small pool of connections.
    pub fn new() -> Result<HttpTransport, Error> {
        reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .tcp_keepalive(KEEPALIVE)
            .build()
            .map(HttpTransport)
            .map_err(|e| {
                Error::new(Class::Request, &Method::GET, "", "no HTTP client").with_source(e)
            })
    }

    async fn headers(&self, request: Request) -> Result<(reqwest::Response, Exchange), Error> {
        let exchange = Exchange {
            target: request.target(),
            method: request.method.clone(),
            limit: request.timeout,
            until: Instant::now() + request.timeout,
            body_cap: request.body_cap,
        };
        let mut builder = self.0.request(request.method, request.url).headers(request.headers);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        match timeout_at(exchange.until, builder.send()).await {
            Ok(Ok(response)) => Ok((response, exchange)),
            Ok(Err(e)) => Err(exchange.failed(e)),
            Err(_) => Err(exchange.late(Phase::Answer)),
        }
    }
}

/// What errors need to know of the request after it is gone.
struct Exchange {
    method: Method,
    target: String,
    limit: Duration,
    until: Instant,
    body_cap: usize,
}

impl Exchange {
    fn late(&self, phase: Phase) -> Error {
        Error::timed_out(phase, &self.method, self.target.as_str(), self.limit)
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
            Error::timed_out(Phase::Connect, &self.method, self.target.as_str(), CONNECT_TIMEOUT)
        } else if e.is_connect() {
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
            match timeout_at(self.until, response.chunk()).await {
                Ok(Ok(Some(piece))) if whole.len() + piece.len() > self.body_cap => {
                    return Err(self.too_long(response));
                }
                Ok(Ok(Some(piece))) => whole.extend_from_slice(&piece),
                Ok(Ok(None)) => return Ok(whole.freeze()),
                Ok(Err(e)) => return Err(self.failed(e)),
                Err(_) => return Err(self.late(Phase::Body)),
            }
        }
    }
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
            let (mut response, exchange) = self.headers(request).await?;
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
            Ok(StreamResponse { status, headers, body: body.boxed() })
        })
    }
}
