// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, whose pages
//! change nothing and cause no request, and a unix socket for root, where a VM is explained and what
//! the brake blocks is approved.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use daemon::http::{Body, Limits, Router, Server, collect, refuse, reply_json};
use daemon::log::AUDIT;
use daemon::{Shutdown, Tasks};
use http::{Response, StatusCode, Uri};
use sdc_clients::uuid_value;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::{explain, metrics, report};

/// The longest body of a request to the socket, and the time to send it in.
const BODY: usize = 4096;
const BODY_TIME: Duration = Duration::from_secs(5);
/// Connections of each listener at once.
pub(crate) const CONNECTIONS: usize = 256;

fn limits() -> Limits {
    Limits { connections: CONNECTIONS, requests_per_second: 200, ..Limits::default() }
}

type Routes = State<Arc<Agent>>;

/// The routes that both have: reading only.
fn pages() -> Router<Arc<Agent>> {
    Router::new()
        .route("/ping", get(async || ok(&json!({"ping": "pong"}))))
        .route("/status", get(async |State(agent): Routes| ok(&report::status(&agent.parts))))
        .route(
            "/metrics",
            get(async |State(agent): Routes| {
                daemon::metrics::answer(&metrics::registry(&agent.parts))
            }),
        )
        .fallback(no_path)
        .method_not_allowed_fallback(async || wrong_method("GET"))
}

/// The routes of the port.
fn port(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&report::plan(&agent.parts)));
    pages().route("/plan", plan).with_state(Arc::clone(agent))
}

/// The routes of the socket.
fn control(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&report::plan(&agent.parts))).post(
        async |State(agent): Routes| {
            agent.parts.offer();
            ok(&report::plan(&agent.parts))
        },
    );
    pages()
        .route("/plan", plan)
        .route("/vms/{uuid}", get(vm))
        .route("/approve", post(approve).fallback(async || wrong_method("POST")))
        .with_state(Arc::clone(agent))
}

fn ok(page: &Value) -> Response<Body> {
    reply_json(StatusCode::OK, page)
}

async fn no_path(uri: Uri) -> Response<Body> {
    let why = format!("{} does not exist", uri.path());
    refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
}

async fn vm(State(agent): Routes, Path(name): Path<String>) -> Response<Body> {
    match uuid::Uuid::try_parse(&name) {
        Ok(_) => ok(&explain::explain(&agent.parts, &uuid_value(&name)).await),
        Err(err) => invalid(&format!("{name}: {err}")),
    }
}

async fn approve(State(agent): Routes, request: Request) -> Response<Body> {
    let Some(bytes) = collect(request.into_body(), BODY, BODY_TIME).await else {
        return invalid("the body is too long or did not arrive in time");
    };
    let asked: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let Some(id) = asked.get("id").and_then(Value::as_str) else {
        return invalid("the body must be {\"id\": PLAN-ID}");
    };
    match agent.parts.approve(id) {
        Ok(vms) => {
            tracing::warn!(target: AUDIT, audit = true, id, vms, "the operator approved a plan");
            ok(&json!({"id": id, "vms": vms}))
        }
        Err(refused) => {
            tracing::warn!(target: AUDIT, audit = true, id, reason = %refused, "refused an approval");
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &refused.to_string())
        }
    }
}

impl Agent {
    /// Serves the pages on this port, and the operator's requests on the configured socket, until the
    /// shutdown.
    pub fn listen(self: &Arc<Self>, listener: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let server = Server::new(limits(), shutdown.clone());
        tasks.spawn("status", server.serve(listener, port(self)));
        let socket = &self.parts.config.places.control_socket;
        match daemon::http::bind_unix(socket, 0o600) {
            Ok(bound) => {
                let server = Server::new(limits(), shutdown.clone());
                tasks.spawn("control", server.serve(bound, control(self)));
            }
            // Everything but approvals works without it.
            Err(err) => {
                let socket = socket.display();
                tracing::error!(%socket, reason = %err, "no control socket: approvals have to wait");
            }
        }
    }

    /// Returns `/status`.
    pub fn status_json(&self) -> Value {
        report::status(&self.parts)
    }

    /// Returns `/plan`, with an offer of what the brake blocks.
    pub fn offer(&self) -> Value {
        self.parts.offer();
        report::plan(&self.parts)
    }
}

fn invalid(why: &str) -> Response<Body> {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, "InvalidParameters", why)
}

fn wrong_method(right: &'static str) -> Response<Body> {
    let why = format!("only {right} is allowed");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", &why);
    response.headers_mut().insert(http::header::ALLOW, http::HeaderValue::from_static(right));
    response
}
