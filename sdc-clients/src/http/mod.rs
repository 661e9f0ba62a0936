// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! HTTP clients: one base URL, one user agent, one retry policy per service.
//!
//! [`Http`] builds requests, gives all attempts of a call one request id, sets deadlines, and turns
//! every answer that is not a success into an [`Error`]. A [`Transport`] moves the bytes: reqwest in
//! production, in process under simulated time. It follows no redirects, uses no proxy, and does not
//! repeat a write that may have arrived.

mod transport;

mod call;

mod answer;

mod exchange;

mod depth;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{self, HeaderName, HeaderValue};
use ::http::{HeaderMap, Method};
use futures_util::StreamExt as _;
use tokio::time::Instant;
use url::Url;

use crate::error::{Class, Error, Phase};
use crate::identity::Identity;
use crate::jitter::Jitter;
use crate::retry::{self, Budget, Policy};

pub use answer::{Reply, Versioned};
pub use call::{Call, Precondition};
pub use depth::JSON_DEPTH;
pub use exchange::{
    BODY_CAP, CONNECT_TIMEOUT, Duplex, LIST_TIMEOUT, Permit, Request, Response, STALL_TIMEOUT,
    StreamResponse, Switched, TOTAL_TIMEOUT, Transport,
};
pub use transport::{HttpTransport, Timeouts};

/// By how much the outer deadline trails the transport's own, which knows the phase.
const DEADLINE_SLACK: Duration = Duration::from_millis(250);

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A client of one service. Clones are cheap and share the connections, the retry budget and the
/// source of jitter.
#[derive(Clone)]
pub struct Http(Arc<Inner>);

struct Inner {
    base: Url,
    user_agent: HeaderValue,
    transport: Arc<dyn Transport>,
    policy: Policy,
    jitter: Mutex<Jitter>,
    budget: Budget,
    peer: Option<Identity>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("base", &shown(&self.0.base)).finish_non_exhaustive()
    }
}

impl Http {
    /// A client of the service at `base_url` (a path prefix and a trailing
    /// slash are fine; `unix:/PATH` is a unix socket) over real sockets, retrying as [`Policy::napi`] says.
    pub fn new(base_url: &str, user_agent: &str) -> Result<Http, Error> {
        Http::with_transport(base_url, user_agent, Arc::new(HttpTransport::to(base_url)?))
    }

    /// The same over a transport of the caller's.
    pub fn with_transport(
        base_url: &str,
        user_agent: &str,
        transport: Arc<dyn Transport>,
    ) -> Result<Http, Error> {
        let bad = |base: &str, what: &str| Error::new(Class::Request, &Method::GET, base, what);
        // What is at a unix socket has no name of its own.
        let base_url = transport::socket_of(base_url).map_or(base_url, |_| "http://localhost");
        let base = Url::parse(base_url)
            .map_err(|e| bad("", "the base URL cannot be read").with_source(e))?;
        let clean = shown(&base);
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(bad(&clean, "the base URL must be http://host…"));
        }
        let user_agent = HeaderValue::from_str(user_agent)
            .map_err(|e| bad(&clean, "the user agent is not a header value").with_source(e))?;
        Ok(Http(Arc::new(Inner {
            base,
            user_agent,
            transport,
            policy: Policy::napi(),
            jitter: Mutex::new(Jitter::from_entropy()),
            budget: Budget::new(),
            peer: None,
        })))
    }

    /// The same service with another retry policy and source of jitter, and a budget of its own.
    pub fn retrying(&self, policy: Policy, jitter: Jitter) -> Http {
        Http(Arc::new(Inner {
            base: self.0.base.clone(),
            user_agent: self.0.user_agent.clone(),
            transport: Arc::clone(&self.0.transport),
            policy,
            jitter: Mutex::new(jitter),
            budget: Budget::new(),
            peer: self.0.peer,
        }))
    }

    /// The same service, which has to prove that it is this program.
    pub fn to_peer(&self, peer: Identity) -> Http {
        Http(Arc::new(Inner {
            base: self.0.base.clone(),
            user_agent: self.0.user_agent.clone(),
            transport: Arc::clone(&self.0.transport),
            policy: self.0.policy.clone(),
            jitter: Mutex::new(self.fork_jitter()),
            budget: Budget::new(),
            peer: Some(peer),
        }))
    }

    /// The same service, every request sent once.
    pub fn without_retries(&self) -> Http {
        self.retrying(Policy::once(), Jitter::from_seed(0))
    }

    /// The base URL.
    pub fn base(&self) -> &Url {
        &self.0.base
    }

    /// Sends the call, again where that is safe, and returns the answer if it is a success.
    pub async fn execute(&self, call: Call) -> Result<Reply, Error> {
        let id = uuid::Uuid::new_v4().to_string();
        let is_final = call.is_final;
        let request = self.build(call, &id)?;
        let mut jitter = self.fork_jitter();
        let mut attempts = 0u32;
        // On the heap: every call of every service stands in its caller's future, which stands in its own caller's.
        let outcome =
            Box::pin(retry::with_retry(&self.0.policy, &mut jitter, Some(&self.0.budget), || {
                attempts += 1;
                let (request, nth) = (request.clone(), attempts);
                let id = id.as_str();
                async move {
                    match self.logged(request, id, nth).await {
                        // Kept from the retry loop: the caller means to ask for less.
                        Err(e) if is_final(&e) => Ok(Err(e)),
                        Err(e) => Err(e),
                        Ok(response) => Ok(Ok(response)),
                    }
                }
            }))
            .await
            .and_then(|inner| inner)
            .map_err(|e| e.with_request_id(&id))?;
        Ok(Reply::new(request.method.clone(), request.target(), id, attempts, outcome))
    }

    /// Sends the call once and returns when the headers of a success are there;
    /// the body then comes without a deadline.
    pub async fn open(&self, call: Call) -> Result<StreamResponse, Error> {
        let id = uuid::Uuid::new_v4().to_string();
        let request = self.build(call, &id)?;
        let (method, target, limit) = (request.method.clone(), request.target(), request.timeout);
        let _permit = self.0.transport.admit().await;
        let opened = tokio::time::timeout(limit + DEADLINE_SLACK, self.0.transport.stream(request))
            .await
            .unwrap_or_else(|_| Err(Error::timed_out(Phase::Answer, &method, &target, limit)))
            .map_err(|e| e.with_request_id(&id))?;
        if opened.status.is_success() {
            return Ok(opened);
        }
        let StreamResponse { status, headers, body } = opened;
        let rest = body.take_while(|piece| std::future::ready(piece.is_ok())).take(64);
        let rest = tokio::time::timeout(Duration::from_secs(5), rest.collect::<Vec<_>>());
        let pieces = rest.await.unwrap_or_default();
        let body: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
        Err(Error::from_answer(&method, target, status, &headers, &body).with_request_id(&id))
    }

    /// Sends the call once, with these headers besides, and returns the connection when the server has left
    /// HTTP.
    pub async fn upgrade(&self, call: Call, headers: HeaderMap) -> Result<Box<dyn Duplex>, Error> {
        let id = uuid::Uuid::new_v4().to_string();
        let mut request = self.build(call, &id)?;
        request.headers.extend(headers);
        let (method, target, limit) = (request.method.clone(), request.target(), request.timeout);
        let _permit = self.0.transport.admit().await;
        tokio::time::timeout(limit + DEADLINE_SLACK, self.0.transport.upgrade(request))
            .await
            .unwrap_or_else(|_| Err(Error::timed_out(Phase::Answer, &method, &target, limit)))
            .and_then(|switched| match switched {
                Switched::Left(_, io) => Ok(io),
                Switched::Stays(Response { status, headers, body }) => {
                    Err(Error::from_answer(&method, target, status, &headers, &body))
                }
            })
            .map_err(|e| e.with_request_id(&id))
    }

    /// One attempt and its line in the request log: neither headers nor bodies nor the base URL, where secrets may be.
    /// If no caller expects the answer, the log has the beginning of its text.
    async fn logged(&self, request: Request, id: &str, nth: u32) -> Result<Response, Error> {
        let (method, target) = (request.method.clone(), request.target());
        let _permit = self.0.transport.admit().await;
        let started = Instant::now();
        let outcome = self.attempt(request).await;
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, class, bytes) = match &outcome {
            Ok(response) => (Some(response.status.as_u16()), "ok", response.body.len()),
            Err(error) => (error.status(), error.class().as_str(), 0),
        };
        tracing::debug!(%method, target, status, class, bytes, ms, attempt = nth, request_id = id, "request");
        if let Err(error) = &outcome {
            log_refusal(error);
        }
        outcome
    }

    async fn attempt(&self, mut request: Request) -> Result<Response, Error> {
        request.timeout = self.0.transport.patience(request.timeout);
        let (method, target, limit) = (request.method.clone(), request.target(), request.timeout);
        let response = tokio::time::timeout(limit + DEADLINE_SLACK, self.0.transport.send(request))
            .await
            .unwrap_or_else(|_| Err(Error::timed_out(Phase::Answer, &method, &target, limit)))?;
        if response.status.is_success() {
            return Ok(response);
        }
        let Response { status, headers, body } = response;
        Err(Error::from_answer(&method, target, status, &headers, &body))
    }

    fn build(&self, call: Call, id: &str) -> Result<Request, Error> {
        let mut request = call.into_request(&self.0.base)?;
        request.peer = self.0.peer;
        let headers = &mut request.headers;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, self.0.user_agent.clone());
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(X_REQUEST_ID, value);
        }
        Ok(request)
    }

    fn fork_jitter(&self) -> Jitter {
        self.0.jitter.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

/// Returns the user agent of a node's service: `net-agent/1.0.0 server/<cn_uuid>`, without the server if
/// there is none.
pub fn user_agent(service: &str, version: &str, server_uuid: Option<&str>) -> String {
    match server_uuid {
        Some(server) => format!("{service}/{version} server/{server}"),
        None => format!("{service}/{version}"),
    }
}

/// A URL without the secrets it may carry.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that cannot carry any.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.into()
}

/// The statuses of refusals that callers ask for.
const EXPECTED: [u16; 4] = [404, 409, 410, 412];

/// Logs the text of an answer whose status no caller expects.
fn log_refusal(error: &Error) {
    let is_expected = error.status().is_some_and(|status| EXPECTED.contains(&status));
    if let Some(text) = error.logged_text().filter(|_| !is_expected) {
        let (method, target, status) = (error.method(), error.path(), error.status());
        tracing::warn!(%method, target, status, text, "a service refused a request");
    }
}
