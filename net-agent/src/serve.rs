// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, whose pages
//! change nothing and cause no request, and a unix socket for root, where a plan is offered and
//! approved and a NIC is explained.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use daemon::approval::Refused;
use daemon::http::{Body, Limits, Router, Server, collect, refuse, reply_json};
use daemon::log::AUDIT;
use daemon::{Shutdown, Tasks};
use http::{Response, StatusCode, Uri};
use sdc_clients::MacAddr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::{changes, explain, metrics, report};

/// The longest body of a request to the socket, and the time to send it in.
const BODY: usize = 4096;
const BODY_TIME: Duration = Duration::from_secs(5);
/// Connections of each listener at once.
pub(crate) const CONNECTIONS: usize = 256;

fn limits() -> Limits {
    Limits { connections: CONNECTIONS, requests_per_second: 200, ..Limits::default() }
}

type Routes = State<Arc<Agent>>;

/// The routes of the port: reading only.
fn pages(agent: &Arc<Agent>) -> Router {
    Router::new()
        .route("/ping", get(async || reply_json(StatusCode::OK, &json!({"ping": "pong"}))))
        .route("/status", get(async |State(agent): Routes| ok(&agent.status_json().await)))
        .route("/plan", get(async |State(agent): Routes| ok(&agent.plan_json())))
        .route("/holds", get(async |State(agent): Routes| ok(&report::holds(&agent.parts).await)))
        .route("/metrics", get(page_of_metrics))
        .fallback(no_path)
        .method_not_allowed_fallback(async || wrong_method("GET"))
        .with_state(Arc::clone(agent))
}

/// The routes of the socket: those of the port, and the operator's requests.
fn control(agent: &Arc<Agent>) -> Router {
    Router::new()
        .route("/ping", get(async || reply_json(StatusCode::OK, &json!({"ping": "pong"}))))
        .route("/status", get(async |State(agent): Routes| ok(&agent.status_json().await)))
        .route(
            "/plan",
            get(async |State(agent): Routes| ok(&agent.plan_json()))
                .post(async |State(agent): Routes| ok(&agent.offer().await)),
        )
        .route("/holds", get(async |State(agent): Routes| ok(&report::holds(&agent.parts).await)))
        .route("/metrics", get(page_of_metrics))
        .route("/nics/{mac}", get(nic))
        .route("/approve", post(approve).fallback(async || wrong_method("POST")))
        .fallback(no_path)
        .method_not_allowed_fallback(async || wrong_method("GET"))
        .with_state(Arc::clone(agent))
}

fn ok(page: &Value) -> Response<Body> {
    reply_json(StatusCode::OK, page)
}

async fn no_path(uri: Uri) -> Response<Body> {
    let why = format!("{} does not exist", uri.path());
    refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
}

async fn page_of_metrics(State(agent): Routes) -> Response<Body> {
    let reading = report::metrics(&agent.parts).await;
    daemon::metrics::answer(&metrics::registry(reading))
}

async fn nic(State(agent): Routes, Path(mac): Path<String>) -> Response<Body> {
    match mac.parse::<MacAddr>() {
        Ok(mac) => ok(&agent.explain(mac).await),
        Err(err) => invalid(&format!("{mac}: {err}")),
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
    match agent.approve(id) {
        Ok(nics) => {
            tracing::warn!(target: AUDIT, audit = true, id, nics, "the operator approved a plan");
            ok(&json!({"id": id, "nics": nics}))
        }
        Err(refused) => {
            tracing::warn!(target: AUDIT, audit = true, id, reason = %refused, "refused an approval");
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &refused.to_string())
        }
    }
}

impl Agent {
    /// Serves the pages on this port, and the operator's requests on the configured socket, until
    /// the shutdown.
    pub fn listen(self: &Arc<Self>, port: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let server = Server::new(limits(), shutdown.clone());
        tasks.spawn("status", server.serve(port, pages(self)));
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
    pub async fn status_json(&self) -> Value {
        report::status(&self.parts).await
    }

    /// Returns `/plan`.
    pub fn plan_json(&self) -> Value {
        report::plan(&self.parts)
    }

    /// Returns what is known about one NIC.
    pub async fn explain(&self, mac: MacAddr) -> Value {
        explain::explain(&self.parts, mac).await
    }

    /// Returns what is known about one NIC, for a process in which the agent does not run.
    pub(crate) async fn explain_offline(&self, mac: MacAddr) -> Value {
        self.restore().await;
        self.explain(mac).await
    }

    /// Makes a plan from one look, for a process in which the agent does not run, and returns
    /// `/plan`.
    pub(crate) async fn rehearse(&self) -> Result<Value, explain::Unrehearsed> {
        self.restore().await;
        explain::rehearse(&self.parts).await?;
        Ok(self.plan_json())
    }

    /// Offers what the brake blocks for approval, and returns `/plan`.
    pub async fn offer(&self) -> Value {
        explain::offer(&self.parts).await;
        self.plan_json()
    }

    /// Approves an offer. Returns the number of records.
    ///
    /// # Errors
    /// If no valid offer has this id.
    pub fn approve(&self, id: &str) -> Result<usize, Refused> {
        let nics = self.parts.brake.approve(id)?;
        // Who approves has looked at the node as it is.
        self.parts.node.look(|inventory| self.parts.refer_to(&inventory.view));
        self.parts.departures.unbrake();
        changes::wake_departures(&self.parts);
        Ok(nics)
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
