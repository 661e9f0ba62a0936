// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, whose pages
//! change nothing and cause no request, and a unix socket for root, where a plan is offered and
//! approved and a NIC is explained.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use daemon::agent::{self, invalid};
use daemon::approval::Refused;
use daemon::http::{Body, Router, ok, wrong_method};
use daemon::{Shutdown, Tasks};
use http::Response;
use sdc_clients::MacAddr;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::{changes, explain, metrics, report};

type Routes = State<Arc<Agent>>;

/// The routes that both have: reading only.
fn pages() -> Router<Arc<Agent>> {
    let status = get(async |State(agent): Routes| ok(&agent.status_json().await));
    let holds = get(async |State(agent): Routes| ok(&report::holds(&agent.parts).await));
    agent::pages(status, get(page_of_metrics)).route("/holds", holds)
}

/// The routes of the port.
fn port(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&agent.plan_json()));
    let history = get(async |State(agent): Routes| report::history(&agent.parts).await);
    pages().route("/plan", plan).route("/history", history).with_state(Arc::clone(agent))
}

/// The routes of the socket.
fn control(agent: &Arc<Agent>) -> Router {
    let plan = get(async |State(agent): Routes| ok(&agent.plan_json()))
        .post(async |State(agent): Routes| ok(&agent.offer().await));
    let approve = async |State(agent): Routes, request: Request| {
        agent::approve(request, "nics", |id, by| agent.approve(id, by)).await
    };
    pages()
        .route("/plan", plan)
        .route("/nics/{mac}", get(nic))
        .route("/approve", post(approve).fallback(async || wrong_method("POST")))
        .route("/claim", post(claim).fallback(async || wrong_method("POST")))
        .with_state(Arc::clone(agent))
}

async fn claim(State(agent): Routes, request: Request) -> Response<Body> {
    let parts = &agent.parts;
    let claim = async |node: String, by: String, really| parts.claim(&node, &by, really).await;
    agent::claim(request, parts.gate.cn_uuid(), claim).await
}

async fn page_of_metrics(State(agent): Routes) -> Response<Body> {
    let holds = report::in_force(&agent.parts).await;
    daemon::metrics::answer(&metrics::registry(&agent.parts, &holds))
}

async fn nic(State(agent): Routes, Path(mac): Path<String>) -> Response<Body> {
    match mac.parse::<MacAddr>() {
        Ok(mac) => ok(&agent.explain(mac).await),
        Err(err) => invalid(&format!("{mac}: {err}")),
    }
}

impl Agent {
    /// Serves the pages on this port, and the operator's requests on the configured socket, until
    /// the shutdown.
    pub fn listen(self: &Arc<Self>, listener: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let places = &self.parts.config.basics.places;
        agent::listen(places, (listener, port(self)), control(self), tasks, shutdown);
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
    /// Fails if no valid offer has this id.
    pub fn approve(&self, id: &str, by: &str) -> Result<usize, Refused> {
        let nics = self.parts.brake.approve(id, by)?;
        // Who approves has looked at the node as it is.
        self.parts.node.with(|inventory| {
            self.parts.refer_to(&inventory.view);
            self.parts.brake.accept(|vm| inventory.view.has_vm(vm));
        });
        self.parts.departures.unbrake();
        changes::wake_departures(&self.parts);
        Ok(nics)
    }
}
