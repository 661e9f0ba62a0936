// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes: the page and its files, what is passed on from vminfod and the agents, and console's
//! own `/ping` and `/status`. Only GET is answered.

use std::sync::Arc;

use daemon::http::{Body, refuse, reply, reply_json};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::config::Config;
use crate::page;
use crate::relay::Relay;

/// Nothing but the page's own files: no inline script, no foreign origin, no frame, no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the routes need.
#[derive(Clone)]
pub(crate) struct Api {
    config: Arc<Config>,
    relay: Relay,
    started: Instant,
}

impl Api {
    pub(crate) fn new(config: Config, relay: Relay) -> Self {
        Self { config: Arc::new(config), relay, started: Instant::now() }
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(self, request: Request<B>) -> Response<Body> {
        let (parts, _) = request.into_parts();
        if parts.method != Method::GET {
            let message = "only GET is served";
            return secured(refuse(StatusCode::METHOD_NOT_ALLOWED, "BadMethod", message));
        }
        let path: Vec<&str> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let answer = match path.as_slice() {
            [] => Some(to_the_page()),
            ["ping"] => Some(reply_json(StatusCode::OK, &json!({"ping": "pong"}))),
            ["status"] => Some(self.status()),
            ["ui"] => page::file("index.html"),
            ["ui", "agents"] => Some(self.relay.names()),
            ["ui", "agents", name, page] => self.relay.answer(name, page, parts.uri.query()).await,
            ["ui", name] => page::file(name),
            _ => None,
        };
        let missing = || refuse(StatusCode::NOT_FOUND, "ResourceNotFound", "no such path");
        secured(answer.unwrap_or_else(missing))
    }

    fn status(&self) -> Response<Body> {
        let agents = self.config.agents.iter();
        let agents: Map<_, _> = agents.map(|(name, at)| (name.clone(), json!(at))).collect();
        let body = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "up_s": self.started.elapsed().as_secs(),
            "vminfod": self.config.vminfod,
            "agents": agents,
            "streams": self.relay.open_streams(),
        });
        reply_json(StatusCode::OK, &body)
    }
}

fn to_the_page() -> Response<Body> {
    let mut response = reply(StatusCode::FOUND, Body::empty());
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui"));
    response
}

fn secured(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
