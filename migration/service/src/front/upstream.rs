// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMAPI behind this service: requests go to it as they came, and its answers come back as they are sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::http::{Body, Takeover};
use futures_util::StreamExt;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sdc_clients::Error;
use sdc_clients::http::{Request, Switched, Transport};
use tokio::io::copy_bidirectional;
use url::Url;

use super::answer::Answer;
use crate::refused::Refused;

/// How long VMAPI may take to begin its answer: it asks nodes, which may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Headers that belong to a connection, not to a message.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HOST,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The VMAPI behind this service.
#[derive(Clone)]
pub struct Upstream {
    base: Url,
    transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Returns the VMAPI at this address.
    pub fn new(base: &str, transport: Arc<dyn Transport>) -> Result<Upstream, url::ParseError> {
        Ok(Upstream { base: Url::parse(base)?, transport })
    }

    /// Sends a request on.
    pub async fn send(&self, parts: Parts, body: Bytes) -> Answer {
        let request = self.request(parts, body)?;
        let _permit = self.transport.admit().await;
        let answer = self.transport.stream(request).await.map_err(silent)?;
        let body = answer.body.map(|piece| piece.map_err(axum::BoxError::from));
        Ok(response(answer.status, carried(&answer.headers), Body::from_stream(body)))
    }

    /// Sends a request on whose body is still coming: it is read as fast as VMAPI takes it.
    pub async fn pass(&self, parts: Parts, body: Body) -> Answer {
        let length = parts.headers.get(CONTENT_LENGTH).cloned();
        let mut request = self.request(parts, Bytes::new())?;
        request.headers.extend(length.map(|length| (CONTENT_LENGTH, length)));
        let (method, target) = (request.method.clone(), request.target());
        let body = body.into_data_stream().map(move |piece| {
            piece.map_err(|error| Error::broken(&method, target.as_str(), error.to_string()))
        });
        let _permit = self.transport.admit().await;
        let answer = self.transport.pass(request, body.boxed()).await.map_err(silent)?;
        let body = answer.body.map(|piece| piece.map_err(axum::BoxError::from));
        Ok(response(answer.status, carried(&answer.headers), Body::from_stream(body)))
    }

    /// Sends a request for a WebSocket on, and connects the client with VMAPI if VMAPI agrees.
    pub async fn connect(&self, parts: Parts, body: Bytes) -> Answer {
        let mut request = self.request(parts, body)?;
        request.headers.extend(to_web_socket());
        let _permit = self.transport.admit().await;
        match self.transport.upgrade(request).await.map_err(silent)? {
            Switched::Stays(answer) => {
                Ok(response(answer.status, carried(&answer.headers), answer.body.into()))
            }
            Switched::Left(headers, mut vmapi) => {
                let mut headers = carried(&headers);
                headers.extend(to_web_socket());
                let mut response =
                    response(StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty());
                response.extensions_mut().insert(Takeover::new(|mut client| {
                    Box::pin(async move {
                        match copy_bidirectional(&mut client, &mut vmapi).await {
                            Ok((sent, received)) => {
                                tracing::debug!(sent, received, "a WebSocket to VMAPI ended");
                            }
                            Err(error) => tracing::debug!(%error, "a WebSocket to VMAPI broke"),
                        }
                    })
                }));
                Ok(response)
            }
        }
    }

    /// What is decided on is what is sent: a path that would be written otherwise is refused.
    fn request(&self, parts: Parts, body: Bytes) -> Result<Request, Refused> {
        let mut url = self.base.clone();
        let prefix = self.base.path().trim_end_matches('/').to_owned();
        let path = format!("{prefix}{}", parts.uri.path());
        url.set_path(&path);
        if url.path() != path {
            let why = "The path has characters that must be percent-encoded";
            return Err(Refused::coded(400, "InvalidPath", why));
        }
        if parts.headers.contains_key(CONTENT_LENGTH)
            && parts.headers.contains_key(TRANSFER_ENCODING)
        {
            let why = "The body has both a length and chunks";
            return Err(Refused::coded(400, "BadRequest", why));
        }
        url.set_query(parts.uri.query());
        let mut headers = carried(&parts.headers);
        headers.remove(CONTENT_LENGTH);
        let body = Some(body).filter(|body| !body.is_empty());
        let (method, timeout, body_cap) = (parts.method, PATIENCE, usize::MAX);
        Ok(Request { method, url, headers, body, timeout, body_cap, peer: None })
    }
}

fn silent(error: Error) -> Refused {
    tracing::warn!(reason = %error, "no answer from VMAPI; answering its client with 503");
    Refused::coded(503, "ServiceUnavailableError", "VMAPI does not answer")
}

fn response(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// Returns true if a client asks for a WebSocket. No other protocol is passed on: a client that offers HTTP/2 is
/// answered in HTTP/1.1, as RFC 9110 §7.8 allows.
pub fn is_web_socket(headers: &HeaderMap) -> bool {
    let protocol = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

fn to_web_socket() -> [(HeaderName, HeaderValue); 2] {
    [
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
    ]
}

/// Returns the headers that are not the connection's: those of HTTP, and those that `Connection` names.
fn carried(headers: &HeaderMap) -> HeaderMap {
    let mut carried = headers.clone();
    let named = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|value| value.split(',')) {
        carried.remove(name.trim());
    }
    for name in &OF_CONNECTION {
        carried.remove(name);
    }
    carried
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        all.iter().map(pair).collect()
    }

    #[test] // M30
    fn headers_that_the_connection_names_are_its_own() {
        let came = headers(&[
            ("connection", "close, X-Internal"),
            ("x-internal", "1"),
            ("keep-alive", "9"),
            ("x-request-id", "r"),
        ]);
        assert_eq!(carried(&came), headers(&[("x-request-id", "r")]));
    }

    #[test] // M127
    fn a_body_with_a_length_and_chunks_is_refused() {
        #[derive(Debug)]
        struct Nowhere;
        impl Transport for Nowhere {
            fn send(
                &self,
                request: Request,
            ) -> futures_util::future::BoxFuture<'_, Result<sdc_clients::http::Response, Error>>
            {
                let error = Error::connect(&request.method, request.target(), "nowhere");
                Box::pin(std::future::ready(Err(error)))
            }
        }
        let upstream = Upstream::new("http://vmapi.sim", Arc::new(Nowhere)).unwrap();
        let mut request = http::Request::post("/vms").body(()).unwrap();
        *request.headers_mut() =
            headers(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        let refused = upstream.request(request.into_parts().0, Bytes::new()).unwrap_err();
        assert_eq!(refused.status(), 400);
    }
}
