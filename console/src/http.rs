// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes: the page and its files, what is passed on from vminfod and the agents, and console's
//! own `/ping` and `/status`. Only GET is answered.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::middleware::map_response;
use axum::routing::get;
use daemon::http::{Body, Router, refuse, reply, reply_json, with_ping};
use daemon::metrics::{gauges, size};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::config::Config;
use crate::page::{self, Page};
use crate::relay::Relay;

/// Nothing but the page's own files: no inline script, no foreign origin, no frame, no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the routes need.
struct Api {
    config: Config,
    relay: Relay,
    started: Instant,
}

type Routes = State<Arc<Api>>;

/// Returns the routes.
pub(crate) fn router(config: Config, relay: Relay) -> Router {
    let api = Arc::new(Api { config, relay: relay.clone(), started: Instant::now() });
    let own = Router::new()
        .route("/status", get(async |State(api): Routes| api.status()))
        .route("/metrics", get(async |State(api): Routes| api.metrics()))
        .with_state(api);
    with_page(own, page::NODE, relay)
}

/// Adds a page with its files, the programs that it asks, and `/ping`.
pub(crate) fn with_page(own: Router, page: Page, relay: Relay) -> Router {
    let files = Router::new()
        .route("/", get(async || to_the_page()))
        .route("/ui", get(async move || page.response()))
        .route("/ui/", get(async move || page.response()))
        .route("/ui/{name}", get(async |Path(name): Path<String>| file(&name)))
        .route("/ui/agents", get(async |State(relay): State<Relay>| relay.names()))
        .route("/ui/agents/{name}/{page}", get(relayed))
        .with_state(relay);
    with_ping(own.merge(files)).layer(map_response(secured))
}

pub(crate) fn no_path() -> Response<Body> {
    refuse(StatusCode::NOT_FOUND, "ResourceNotFound", "no such path")
}

fn file(name: &str) -> Response<Body> {
    page::file(name).unwrap_or_else(no_path)
}

async fn relayed(
    State(relay): State<Relay>,
    Path((name, page)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    relay.answer(&name, &page, query.as_deref()).await.unwrap_or_else(no_path)
}

impl Api {
    fn status(&self) -> Response<Body> {
        let agents = self.config.agents.iter();
        let agents: Map<_, _> = agents.map(|(name, at)| (name.clone(), json!(at))).collect();
        let body = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "up_s": self.started.elapsed().as_secs(),
            "vminfod": self.config.vminfod,
            "agents": agents,
            "migrations": self.config.migrations,
            "streams": self.relay.open_streams(),
        });
        reply_json(StatusCode::OK, &body)
    }

    fn metrics(&self) -> Response<Body> {
        let (streams, up) = (size(self.relay.open_streams()), self.started.elapsed());
        daemon::metrics::answer(&daemon::metrics::registry("console", |registry| {
            gauges(
                registry,
                [
                    ("streams", "Streams of events and VMs that are open", streams),
                    ("uptime_seconds", "Time since the start", up.as_secs_f64()),
                ],
            );
        }))
    }
}

fn to_the_page() -> Response<Body> {
    let mut response = reply(StatusCode::FOUND, Body::empty());
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui"));
    response
}

async fn secured(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
