// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! HTTP requests to a peer that proves its identity: one connection for each, so that each is judged by the
//! certificates of now.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use sdc_clients::http::{CONNECT_TIMEOUT, Duplex, Request, Response, Transport};
use sdc_clients::identity::Identity;
use sdc_clients::{Class, Error, Phase};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::doors::{connect, shake};
use crate::holder::Holder;
use crate::words::{of_tls, said};

/// Requests over TLS.
#[derive(Debug)]
pub struct Client(Proof);

/// What a client proves itself with.
#[derive(Debug)]
enum Proof {
    /// What is in use at the time.
    Held(Arc<Holder>),
    /// This.
    Fixed(Arc<ClientConfig>),
}

impl Client {
    /// Returns a client in the name of the program whose certificate this is.
    pub fn new(holder: &Arc<Holder>) -> Client {
        Client(Proof::Held(Arc::clone(holder)))
    }

    pub(crate) fn with(config: Arc<ClientConfig>) -> Client {
        Client(Proof::Fixed(config))
    }

    async fn shaken(&self, stream: TcpStream, to: Identity) -> io::Result<Box<dyn Duplex>> {
        match &self.0 {
            Proof::Held(holder) => connect(holder, stream, to).await,
            Proof::Fixed(config) => Ok(Box::new(shake(Arc::clone(config), stream, to).await?)),
        }
    }

    async fn exchange(&self, request: Request) -> Result<Response, Error> {
        let (method, target) = (request.method.clone(), request.target());
        let failed = |what: &str| Error::connect(&method, target.as_str(), what);
        let to = request.peer.ok_or_else(|| {
            Error::new(Class::Request, &method, target.as_str(), "the request names no peer")
        })?;
        if let Proof::Held(holder) = &self.0 {
            holder.used().map_err(|error| failed(&error.to_string()))?;
        }
        let address = address(&request).ok_or_else(|| failed("the address has no host"))?;
        let dialed = timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
        let late = |_| Error::timed_out(Phase::Connect, &method, target.as_str(), CONNECT_TIMEOUT);
        let stream = dialed.map_err(late)?.map_err(|error| failed(&error.to_string()))?;
        let _best_effort = stream.set_nodelay(true);
        let stream = self
            .shaken(stream, to)
            .await
            .map_err(|error| failed(&unshaken(to, &address, &error)).with_source(error))?;
        self.ask(stream, request, to).await
    }

    async fn ask(
        &self,
        stream: Box<dyn Duplex>,
        request: Request,
        to: Identity,
    ) -> Result<Response, Error> {
        let (method, target) = (request.method.clone(), request.target());
        let broken = |error: hyper::Error| broken(&method, &target, to, error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let asked = async {
            let answer = sender.send_request(written(&request)).await.map_err(broken)?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, request.body_cap).collect().await.map_err(|error| {
                match error.downcast::<hyper::Error>() {
                    Ok(error) => broken(*error),
                    Err(_) => {
                        let expected = format!("a body of at most {} bytes", request.body_cap);
                        let status = Some(head.status);
                        Error::protocol(&method, target.as_str(), status, &expected, b"more")
                    }
                }
            })?;
            Ok(Response { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        tokio::pin!(asked);
        tokio::select! {
            answer = &mut asked => answer,
            // It may end when the answer is there, and then has nothing to say; if it fails, so does the request.
            _ended = connection => asked.await,
        }
    }
}

impl Transport for Client {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let (method, target) = (request.method.clone(), request.target());
            let within = request.timeout;
            let late = |_| Error::timed_out(Phase::Answer, &method, target.as_str(), within);
            timeout(within, self.exchange(request)).await.unwrap_or_else(|after| Err(late(after)))
        })
    }
}

/// A peer that says nothing has not failed to prove who it is: it hangs.
fn unshaken(to: Identity, address: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("{to} at {address} does not answer: {error}"),
        _ => format!("{to} at {address} did not authenticate: {error}"),
    }
}

/// Returns host and port.
fn address(request: &Request) -> Option<String> {
    let port = request.url.port_or_known_default()?;
    Some(format!("{}:{port}", request.url.host_str()?))
}

fn written(request: &Request) -> http::Request<Full<Bytes>> {
    let mut written = http::Request::new(Full::new(request.body.clone().unwrap_or_default()));
    *written.method_mut() = request.method.clone();
    // A URL's path and query are a URI's.
    *written.uri_mut() = request.target().parse().unwrap_or_default();
    *written.headers_mut() = request.headers.clone();
    if let Some(host) = address(request).and_then(|host| HeaderValue::from_str(&host).ok()) {
        written.headers_mut().insert(HOST, host);
    }
    written
}

/// The answer did not come. A peer that refuses our certificate says so only now.
fn broken(method: &Method, target: &str, to: Identity, error: hyper::Error) -> Error {
    let mut what = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        what = inner.to_string();
        cause = inner.source();
    }
    let what = of_tls(&error).map_or(what, said);
    Error::broken(method, target, format!("{to}: {what}")).with_source(error)
}

/// Returns true if a peer has answered a handshake, though not with what was expected: there is a machine. A peer that
/// speaks something else is one, too, such as an agent of the versions before TLS.
pub fn has_answered(error: &Error) -> bool {
    of_tls(error).is_some_and(is_answer)
}

fn is_answer(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::AlertReceived(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. }
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::PeerMisbehaved(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_is_not_accused() {
        let said =
            |kind, text| unshaken(Identity::Volapi, "10.0.0.1:5314", &io::Error::new(kind, text));
        let silent = said(io::ErrorKind::TimedOut, "no handshake within 10 s");
        assert!(
            silent.ends_with("at 10.0.0.1:5314 does not answer: no handshake within 10 s"),
            "{silent}"
        );
        let other = said(io::ErrorKind::InvalidData, "another authority");
        assert!(other.ends_with("did not authenticate: another authority"), "{other}");
    }
}
