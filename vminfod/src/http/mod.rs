// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The interface on 127.0.0.1:9090: the routes. Connections, their caps and their deadlines are
//! `daemon::http`'s. All routes serve shared bytes of the store; only `sync=true` and `/data` wait.

pub mod compat; // what deployed clients need of odd requests
mod data; // /data
mod error; // errors as responses
mod events; // /events
pub mod filter; // ?filter=1
mod metrics; // /metrics
mod pieces; // small parts as large chunks
mod rewrite; // an event as one listener asked for it
mod status; // /status
mod vms; // /vms
mod why; // /why

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::{Body, Counts, Listeners, Router, Start, call, name_ignored, reply};
use futures_util::stream;
use http::header::{ETAG, USER_AGENT};
use http::{HeaderMap, StatusCode};
use sdc_clients::vminfod::{INCOMPLETE, SYNCED};
use serde::Serialize;
use tokio::time::Instant;

use self::error::Refusal;
use self::events::Query;
use self::filter::Filter;
use self::rewrite::Format;
use self::vms::Shown;
use crate::reconcile::asks::Asks;
use crate::reconcile::status::Status;
use crate::store::Published;
use vm_model::js::to_ascii;
use vm_model::parse::text::is_lower_uuid;

/// The interface as OpenAPI has it.
const DOCUMENT: &str = include_str!("../../../docs/vminfod.openapi.json");
/// The header that names the parameters of a route of ours, which takes none.
const IGNORED: &str = "vminfod-ignored";
/// How long a `sync=true` request waits for its reading.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

type Answer = Result<Response, Refusal>;
type Routes = State<Arc<Shared>>;

/// The routes, and what they show.
#[derive(Clone, Debug)]
pub struct Api {
    /// VMs and events.
    pub published: Arc<Published>,
    router: Router,
}

/// What the routes need.
struct Shared {
    published: Arc<Published>,
    status: Status,
    asks: Asks,
    shutdown: Shutdown,
    counts: Arc<Counts>,
    listeners: Listeners,
    /// Readings at once, which RFD 39's status shows.
    max_jobs: usize,
}

impl Api {
    /// Makes the routes.
    pub fn new(
        published: Arc<Published>,
        status: Status,
        asks: Asks,
        counts: Arc<Counts>,
        max_jobs: usize,
        shutdown: Shutdown,
    ) -> Self {
        let listeners = Listeners::default();
        let shared = Shared {
            published: Arc::clone(&published),
            status,
            asks,
            shutdown,
            counts,
            listeners,
            max_jobs,
        };
        let routes = Router::new()
            .route("/ping", get(async || reply(StatusCode::OK, r#"{"ping":"pong"}"#)))
            .route("/status", get(self::status))
            .route("/vms", get(vms))
            .route("/vms/{name}", get(vm))
            .route("/events", get(events))
            .route("/sysinfo", get(sysinfo))
            .route("/ready", get(ready))
            .route("/data", get(data))
            .route("/metrics", get(metrics))
            .route("/why/{name}", get(why))
            .route("/openapi.json", get(async || reply(StatusCode::OK, DOCUMENT)))
            .fallback(async || Refusal::UnsupportedPath)
            .with_state(Arc::new(shared));
        // Around the routes, not in them: what they add sees the request before it has a route.
        let router = Router::new().fallback_service(routes).layer(from_fn(compat::shipped));
        let router = name_ignored(router, IGNORED, is_own).layer(from_fn(logged));
        Self { published, router }
    }

    /// Returns the routes.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Answers a request of a client in the same process.
    pub async fn answer<B>(self, request: http::Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        call(self.router, request).await
    }
}

/// Routes that the shipped service does not have; none takes a parameter.
const OWN: [&str; 6] = ["/sysinfo", "/ready", "/data", "/metrics", "/why/", "/openapi.json"];

/// Returns true for a path of ours. The shipped service ignores all parameters of its own, and says nothing.
fn is_own(path: &str) -> bool {
    OWN.iter().any(|own| path == *own || (own.ends_with('/') && path.starts_with(own)))
}

async fn logged(request: Request, next: Next) -> Response {
    let (began, method, path) =
        (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(%method, path, status = response.status().as_u16(), us, "request");
    response
}

async fn status(State(api): Routes, RawQuery(query): RawQuery) -> Response {
    let query = query.as_deref();
    if Format::of(query) == Format::Rfd39 {
        return json(&status::rfd39(&api.status, api.max_jobs));
    }
    let full = compat::wants(query, "full");
    json(&status::body(&api.published, &api.status, &api.listeners, full))
}

async fn vms(State(api): Routes, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let query = query.as_deref();
    let incomplete = match compat::query(query, "sync") {
        Some("zones") => within(api.asks.zones()).await?,
        _ => {
            api.sync(query, None).await?;
            // Before the snapshot: a zone that is read in between is named all the same.
            api.status.edit(|view| view.incomplete())
        }
    };
    let snapshot = api.published.snapshot();
    let tag = vms::tag(&api.published, &snapshot);
    let mut response = if vms::is_known(&headers, &tag) {
        reply(StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        in_pieces(Shown { snapshot, filter: Filter::of(query) }.pieces())
    };
    if let Some(tag) = vms::header(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    if let Some(names) = incomplete.header() {
        response.headers_mut().insert(INCOMPLETE, names);
    }
    Ok(proving(response, query))
}

/// Adds to an answer that was read for its request that it was.
fn proving(mut response: Response, query: Option<&str>) -> Response {
    let sync =
        ["true", "zones"].into_iter().find(|sync| compat::query(query, "sync") == Some(sync));
    if let Some(sync) = sync {
        response.headers_mut().insert(SYNCED, http::HeaderValue::from_static(sync));
    }
    response
}

async fn vm(State(api): Routes, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    // A path is a name, compared literally; with `sync` a uuid is a value, in capitals too.
    let is_value = compat::query(query.as_deref(), "sync") == Some("true")
        && is_lower_uuid(&name.to_ascii_lowercase())
        && !api.published.snapshot().vms.contains_key(&*name);
    let wanted = if is_value { name.to_ascii_lowercase() } else { name.clone() };
    api.sync(query.as_deref(), Some(&wanted)).await?;
    match vms::one(&api.published.snapshot(), &wanted) {
        Some(json) => Ok(proving(reply(StatusCode::OK, json), query.as_deref())),
        None => Err(Refusal::NoVm(name)),
    }
}

async fn events(State(api): Routes, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let query = query.as_deref();
    let agent =
        headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let published = &api.published;
    let start = Start::of(query, &published.epoch, &published.journal).map_err(Refusal::Gone)?;
    let listener = api.listeners.add(agent.unwrap_or_default());
    let asked = Query { start, format: Format::of(query), filter: Filter::of(query) };
    let body =
        events::open(published, asked, listener, Arc::clone(&api.counts), api.shutdown.clone());
    Ok(reply(StatusCode::OK, body))
}

async fn sysinfo(State(api): Routes) -> Answer {
    let missing = || Refusal::Unavailable("sysinfo has not been read yet".to_owned());
    let view = api.status.sysinfo().ok_or_else(missing)?;
    let tail = format!(",\"age_ms\":{}}}", view.at.elapsed().as_millis());
    Ok(reply(StatusCode::OK, [b"{\"sysinfo\":", &*view.json, tail.as_bytes()].concat()))
}

async fn ready(State(api): Routes) -> Answer {
    if api.status.edit(|view| view.stale) {
        return Err(Refusal::Stale);
    }
    Ok(reply(StatusCode::OK, r#"{"ready":true}"#))
}

async fn data(State(api): Routes) -> Answer {
    let held = api.asks.held().await.map_err(Refusal::Unavailable)?;
    Ok(in_pieces(data::body(held)))
}

async fn metrics(State(api): Routes) -> Response {
    let listeners = api.listeners.list().len();
    daemon::metrics::answer(&metrics::registry(&api.published, &api.status, &api.counts, listeners))
}

async fn why(State(api): Routes, Path(name): Path<String>) -> Answer {
    let why = api.asks.why(&name).await.map_err(Refusal::Unavailable)?;
    let why = why.ok_or(Refusal::NoVm(name))?;
    Ok(json(&why::body(&why, &api.published.snapshot())))
}

impl Shared {
    /// With `sync=true`, waits for a reading of one VM or of the node that begins now.
    async fn sync(&self, query: Option<&str>, name: Option<&str>) -> Result<(), Refusal> {
        if compat::query(query, "sync") != Some("true") {
            return Ok(());
        }
        within(self.asks.fresh(name)).await
    }
}

async fn within<T>(read: impl Future<Output = Result<T, String>>) -> Result<T, Refusal> {
    match tokio::time::timeout(SYNC_LIMIT, read).await {
        Ok(read) => read.map_err(Refusal::Unavailable),
        Err(_elapsed) => Err(Refusal::Unavailable("no fresh reading within 30 s".to_owned())),
    }
}

fn json(value: &impl Serialize) -> Response {
    reply(StatusCode::OK, to_ascii(value))
}

fn in_pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Response {
    let pieces = stream::iter(pieces.map(Ok::<_, std::convert::Infallible>));
    reply(StatusCode::OK, Body::from_stream(pieces))
}
