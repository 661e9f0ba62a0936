// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface on 127.0.0.1:9090: the routes. Connections, their caps and their deadlines are
//! `daemon::http`'s.
//!
//! Serves shared bytes of the store; must never wait for the node, except where a request asks
//! for a fresh reading (`sync=true`).

pub mod compat;

mod data;
mod events;
pub mod filter;
pub mod lens;
mod metrics;
mod status;
mod vms;
mod why;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::{Body, Counts, Gone, Listeners, Start, reply};
use http::header::{ETAG, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::compat::Route;
use self::events::Asked;
use self::filter::Filter;
use self::lens::Format;
use self::vms::Shown;
use crate::converge::Asks;
use crate::converge::board::Board;
use crate::json::to_ascii;
use crate::store::Published;

/// How long a `sync=true` request waits for its load.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// What the routes need.
#[derive(Clone)]
pub struct Api {
    /// VMs and events.
    pub published: Arc<Published>,
    /// Status and sysinfo.
    pub board: Board,
    /// Fresh readings on request.
    pub asks: Asks,
    /// Ends the streams.
    pub shutdown: Shutdown,
    counts: Arc<Counts>,
    listeners: Listeners,
    /// Readings at once, as RFD 39's status shows it.
    max_jobs: usize,
}

impl Api {
    /// The routes over these.
    pub fn new(
        published: Arc<Published>,
        board: Board,
        asks: Asks,
        counts: Arc<Counts>,
        max_jobs: usize,
        shutdown: Shutdown,
    ) -> Self {
        let listeners = Listeners::default();
        Self { published, board, asks, shutdown, counts, listeners, max_jobs }
    }

    /// Answers one request.
    pub async fn answer<B>(self, request: Request<B>) -> Response<Body> {
        let began = Instant::now();
        let (parts, _) = request.into_parts();
        let response =
            self.route(&parts.method, parts.uri.path(), parts.uri.query(), &parts.headers).await;
        tracing::debug!(method = %parts.method, path = parts.uri.path(), status = response.status().as_u16(),
            us = began.elapsed().as_micros() as u64, "request");
        response
    }

    async fn route(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Response<Body> {
        if method != Method::GET {
            return reply(StatusCode::BAD_REQUEST, Body::empty());
        }
        let parts = compat::normalise(path);
        match compat::route(&parts) {
            Route::Ping => ok(Body::once(r#"{"ping":"pong"}"#)),
            Route::Status => {
                let full = compat::wants(query, "full");
                if Format::of(query) == Format::Rfd39 {
                    return ok(Body::once(to_ascii(&status::rfd39(&self.board, self.max_jobs))));
                }
                let value = status::body(&self.published, &self.board, &self.listeners, full);
                ok(Body::once(to_ascii(&value)))
            }
            Route::Vms => {
                if wants_sync(query)
                    && let Err(refusal) = self.sync(None).await
                {
                    return refusal;
                }
                self.vms(query, headers)
            }
            Route::Vm(name) => {
                if wants_sync(query)
                    && let Err(refusal) = self.sync(Some(name)).await
                {
                    return refusal;
                }
                match vms::one(&self.published.snapshot(), name) {
                    Some(json) => ok(Body::once(json)),
                    None => reply(StatusCode::NOT_FOUND, Body::once(compat::vm_not_found(name))),
                }
            }
            Route::Events => self.events(query, headers),
            Route::Sysinfo => self.sysinfo(),
            Route::Ready => self.ready(),
            Route::Data => match self.asks.held().await {
                Ok(held) => ok(data::body(held)),
                Err(stopping) => unavailable(&stopping.to_string()),
            },
            Route::Metrics => {
                let listeners = self.listeners.list().len();
                let registry =
                    metrics::registry(&self.published, &self.board, &self.counts, listeners);
                daemon::metrics::answer(&registry)
            }
            Route::Why(name) => match self.asks.why(name).await {
                Ok(Some(why)) => {
                    ok(Body::once(to_ascii(&why::body(&why, &self.published.snapshot()))))
                }
                Ok(None) => reply(StatusCode::NOT_FOUND, Body::once(compat::vm_not_found(name))),
                Err(stopping) => unavailable(&stopping.to_string()),
            },
            Route::Unknown => reply(StatusCode::NOT_FOUND, Body::once(compat::UNSUPPORTED_PATH)),
        }
    }

    /// Waits for a load of one VM, or of the node, that starts after this moment.
    async fn sync(&self, name: Option<&str>) -> Result<(), Response<Body>> {
        match tokio::time::timeout(SYNC_LIMIT, self.asks.fresh(name)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(unavailable(&message)),
            Err(_elapsed) => Err(unavailable("no fresh reading within 30 s")),
        }
    }

    fn vms(&self, query: Option<&str>, headers: &HeaderMap) -> Response<Body> {
        let snapshot = self.published.snapshot();
        let tag = vms::tag(&self.published, &snapshot);
        let mut response = if vms::is_known(headers, &tag) {
            reply(StatusCode::NOT_MODIFIED, Body::empty())
        } else {
            ok(Shown { snapshot, filter: Filter::of(query) }.body())
        };
        if let Some(tag) = vms::header(&tag) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }

    fn events(&self, query: Option<&str>, headers: &HeaderMap) -> Response<Body> {
        let agent = headers
            .get(USER_AGENT)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let published = &self.published;
        match Start::of(query, &published.epoch, &published.journal) {
            Ok(start) => {
                let listener = self.listeners.enter(agent.unwrap_or_default());
                let counts = Arc::clone(&self.counts);
                let asked = Asked { start, format: Format::of(query), filter: Filter::of(query) };
                ok(events::open(published, asked, listener, counts, self.shutdown.clone()))
            }
            Err(gone) => self.gone(&gone),
        }
    }

    fn gone(&self, gone: &Gone) -> Response<Body> {
        let value = gone.body(&self.published.epoch);
        reply(StatusCode::GONE, Body::once(to_ascii(&value)))
    }

    fn sysinfo(&self) -> Response<Body> {
        let Some(view) = self.board.sysinfo() else {
            return unavailable("sysinfo has not been read yet");
        };
        let tail = format!(",\"age_ms\":{}}}", view.at.elapsed().as_millis());
        let pieces = [Bytes::from_static(b"{\"sysinfo\":"), view.json.clone(), Bytes::from(tail)];
        ok(Body::pieces(pieces))
    }

    fn ready(&self) -> Response<Body> {
        if self.board.edit(|view| view.stale) {
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "Stale",
                "a node-wide source has not answered for two refreshes",
            );
        }
        ok(Body::once(r#"{"ready":true}"#))
    }
}

fn wants_sync(query: Option<&str>) -> bool {
    compat::query(query, "sync") == Some("true")
}

fn ok(body: Body) -> Response<Body> {
    reply(StatusCode::OK, body)
}

fn unavailable(message: &str) -> Response<Body> {
    failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
}

fn failure(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let value: Value = json!({"code": code, "message": message});
    reply(status, Body::once(to_ascii(&value)))
}
