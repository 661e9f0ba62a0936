// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, whose pages
//! change nothing and cause no request, and a unix socket for root, where a VM is explained and what
//! the brake blocks is approved.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use daemon::agent::{self, invalid};
use daemon::http::{Body, Router, ok, wrong_method};
use daemon::metrics::answer;
use daemon::{Shutdown, Tasks};
use http::Response;
use sdc_clients::uuid_value;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::{explain, metrics, report};

type Routes = State<Arc<Agent>>;

/// The routes that both have: reading only.
fn pages() -> Router<Arc<Agent>> {
    let status = async |State(agent): Routes| ok(&report::status(&agent.parts));
    let metrics = async |State(agent): Routes| answer(&metrics::registry(&agent.parts));
    agent::pages(get(status), get(metrics))
}

/// The routes of the port.
fn port(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&report::plan(&agent.parts)));
    pages().route("/plan", plan).with_state(Arc::clone(agent))
}

/// The routes of the socket.
fn control(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&report::plan(&agent.parts)))
        .post(async |State(agent): Routes| ok(&agent.offer()));
    let approve = async |State(agent): Routes, request: Request| {
        agent::approve(request, "vms", |id, by| agent.parts.approve(id, by)).await
    };
    pages()
        .route("/plan", plan)
        .route("/vms/{uuid}", get(vm))
        .route("/approve", post(approve).fallback(async || wrong_method("POST")))
        .route("/claim", post(claim).fallback(async || wrong_method("POST")))
        .with_state(Arc::clone(agent))
}

async fn claim(State(agent): Routes, request: Request) -> Response<Body> {
    let parts = &agent.parts;
    let claim = async |node: String, by: String, really| parts.claim(&node, &by, really).await;
    agent::claim(request, parts.gate.cn_uuid(), claim).await
}

async fn vm(State(agent): Routes, Path(name): Path<String>) -> Response<Body> {
    match uuid::Uuid::try_parse(&name) {
        Ok(_) => ok(&explain::explain(&agent.parts, &uuid_value(&name)).await),
        Err(err) => invalid(&format!("{name}: {err}")),
    }
}

impl Agent {
    /// Serves the pages on this port, and the operator's requests on the configured socket, until the
    /// shutdown.
    pub fn listen(self: &Arc<Self>, listener: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let places = &self.parts.config.basics.places;
        agent::listen(places, (listener, port(self)), control(self), tasks, shutdown);
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
