// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, whose pages
//! change nothing and cause no request, and a unix socket for root, where a plan is offered and
//! approved and a NIC is explained.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::{Body, Limits, Server, collect, refuse, reply_json};
use daemon::log::AUDIT;
use daemon::{Shutdown, Tasks};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use sdc_clients::MacAddr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::brake::Refused;
use crate::{changes, explain, metrics, report};

/// The longest body of a request to the socket, and the time to send it in.
const BODY: usize = 4096;
const BODY_TIME: Duration = Duration::from_secs(5);
/// Connections of each listener at once.
pub(crate) const CONNECTIONS: usize = 256;

fn limits() -> Limits {
    Limits { connections: CONNECTIONS, requests_per_second: 200, ..Limits::default() }
}

impl Agent {
    /// Serves the pages on this port, and the operator's requests on the configured socket, until
    /// the shutdown.
    pub fn listen(self: &Arc<Self>, port: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let (agent, server) = (Arc::clone(self), Server::new(limits(), shutdown.clone()));
        let serve = server.serve(port, move |asked| Arc::clone(&agent).answer(asked));
        tasks.spawn("status", serve);
        let socket = &self.parts.config.places.control_socket;
        match daemon::http::bind_unix(socket, 0o600) {
            Ok(bound) => {
                let (agent, server) = (Arc::clone(self), Server::new(limits(), shutdown.clone()));
                let serve = server.serve(bound, move |asked| Arc::clone(&agent).control(asked));
                tasks.spawn("control", serve);
            }
            // Everything but approvals works without it.
            Err(err) => {
                let socket = socket.display();
                tracing::error!(%socket, reason = %err, "no control socket: approvals have to wait");
            }
        }
    }

    /// The routes of the port.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        self.page(request.method(), request.uri().path()).await
    }

    async fn page(&self, method: &Method, path: &str) -> Response<Body> {
        let parts = &self.parts;
        if !matches!(path, "/ping" | "/status" | "/plan" | "/holds" | "/metrics") {
            let why = format!("{path} does not exist");
            return refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why);
        }
        if method != Method::GET {
            return wrong_method("GET");
        }
        let page = match path {
            "/ping" => json!({"ping": "pong"}),
            "/status" => report::status(parts).await,
            "/plan" => report::plan(parts),
            "/holds" => report::holds(parts).await,
            _ => {
                let reading = report::metrics(parts).await;
                return daemon::metrics::answer(&metrics::registry(reading));
            }
        };
        reply_json(StatusCode::OK, &page)
    }

    /// The routes of the socket: those of the port, and the operator's requests.
    async fn control(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        match (&parts.method, path, path.strip_prefix("/nics/")) {
            (&Method::POST, "/plan", _) => reply_json(StatusCode::OK, &self.offer().await),
            (&Method::POST, "/approve", _) => self.asked_to_approve(body).await,
            (_, "/approve", _) => wrong_method("POST"),
            (&Method::GET, _, Some(mac)) => match mac.parse::<MacAddr>() {
                Ok(mac) => reply_json(StatusCode::OK, &self.explain(mac).await),
                Err(err) => invalid(&format!("{mac}: {err}")),
            },
            (_, _, Some(_)) => wrong_method("GET"),
            (method, path, None) => self.page(method, path).await,
        }
    }

    async fn asked_to_approve(&self, body: Incoming) -> Response<Body> {
        let Ok(Ok(bytes)) = tokio::time::timeout(BODY_TIME, collect(body, BODY)).await else {
            return invalid("the body is too long or did not arrive in time");
        };
        let asked: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Some(id) = asked.get("id").and_then(Value::as_str) else {
            return invalid("the body must be {\"id\": PLAN-ID}");
        };
        match self.approve(id) {
            Ok(nics) => {
                tracing::warn!(target: AUDIT, audit = true, id, nics, "the operator approved a plan");
                reply_json(StatusCode::OK, &json!({"id": id, "nics": nics}))
            }
            Err(refused) => {
                tracing::warn!(target: AUDIT, audit = true, id, reason = %refused, "refused an approval");
                refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &refused.to_string())
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
