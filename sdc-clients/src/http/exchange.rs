// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Requests, answers, and the trait of what carries them.

use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

use crate::error::{Class, Error};
use crate::identity::Identity;

/// Deadline of an ordinary request, connecting included.
pub const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of a request for a list.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Deadline for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a body may stand still.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest body that is read.
pub const BODY_CAP: usize = 64 << 20;

/// One request, complete.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The whole address, query included.
    pub url: Url,
    /// All headers but those the connection needs.
    pub headers: HeaderMap,
    /// The body; `None` for methods without.
    pub body: Option<Bytes>,
    /// The deadline for the whole exchange (for a stream: until its headers).
    pub timeout: Duration,
    /// The longest body to read.
    pub body_cap: usize,
    /// Who alone may answer. A transport that cannot prove its peer's identity refuses such a request.
    pub peer: Option<Identity>,
}

impl Request {
    /// Path and query, as errors name it.
    pub fn target(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }
}

/// A complete answer, of whatever status.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// An answer whose body is still coming.
pub struct StreamResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, piece by piece; ends after an error.
    pub body: BoxStream<'static, Result<Bytes, Error>>,
}

impl std::fmt::Debug for StreamResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A connection that has left HTTP behind.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The answer to a request to leave HTTP.
pub enum Switched {
    /// The server answered 101, with these headers, and serves the connection.
    Left(HeaderMap, Box<dyn Duplex>),
    /// It answered something else.
    Stays(Response),
}

impl std::fmt::Debug for Switched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Switched::Left(headers, _) => {
                f.debug_tuple("Left").field(headers).finish_non_exhaustive()
            }
            Switched::Stays(response) => f.debug_tuple("Stays").field(response).finish(),
        }
    }
}

/// Sends one request and returns its answer, without retries and whatever the status is. An error
/// means that no complete answer came; [`Error::connect`], [`Error::broken`] and
/// [`Error::timed_out`] tell how far it got. Time spent inside counts against [`Request::timeout`]:
/// a transport that queues requests does so in [`Transport::admit`].
pub trait Transport: Send + Sync {
    /// Waits until a request may be sent. Called before each attempt; the wait counts against no
    /// deadline. The permit is kept until the answer is there. Must be cancel-safe. The default
    /// does not wait.
    fn admit(&self) -> BoxFuture<'_, Permit> {
        Box::pin(std::future::ready(Permit::default()))
    }

    /// Returns how long this exchange may take; `usual` is the call's own limit. A transport that
    /// knows its service to be overloaded may return more.
    fn patience(&self, usual: Duration) -> Duration {
        usual
    }

    /// Sends the request and reads the whole answer.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>>;

    /// Sends the request and returns once the headers are there. The body has
    /// no deadline. The default reads it all first, which suits answers that end.
    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        let whole = self.send(request);
        Box::pin(async move {
            let Response { status, headers, body } = whole.await?;
            let body = stream::once(async move { Ok(body) }).boxed();
            Ok(StreamResponse { status, headers, body })
        })
    }

    /// Sends the request with a body that is still coming, and returns once the headers of the answer are there. A body
    /// that breaks off breaks the request. The default reads it first, at most [`BODY_CAP`].
    fn pass(
        &self,
        mut request: Request,
        mut body: BoxStream<'static, Result<Bytes, Error>>,
    ) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let mut whole = BytesMut::new();
            while let Some(piece) = body.next().await {
                whole.extend_from_slice(&piece?);
                if whole.len() > BODY_CAP {
                    let (target, what) = (request.target(), "the body is too long");
                    return Err(Error::new(Class::Request, &request.method, target, what));
                }
            }
            request.body = Some(whole.freeze());
            self.stream(request).await
        })
    }

    /// Sends the request and returns the connection once the server has answered 101, or the whole of
    /// another answer. The connection has no deadline. The default refuses: not every transport has
    /// connections.
    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        let (method, target) = (&request.method, request.target());
        let refused = Error::new(Class::Request, method, target, "this transport speaks HTTP only");
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// The right to have one request under way; released when dropped.
#[derive(Default)]
pub struct Permit(Option<Box<dyn std::any::Any + Send>>);

impl Permit {
    /// A permit that holds `held` for as long as the request is under way.
    pub fn holding(held: impl std::any::Any + Send) -> Permit {
        Permit(Some(Box::new(held)))
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Permit").field(&self.0.is_some()).finish()
    }
}
