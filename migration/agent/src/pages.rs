// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners for the node itself: a loopback port for every process, whose pages change nothing, and a unix
//! socket for root.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::routing::{get, post};
use daemon::agent::{self, invalid};
use daemon::http::{Body, Router, ok, refuse, wrong_method};
use daemon::{Shutdown, Tasks};
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::run::Agent;

type Routes = State<Arc<Agent>>;

#[derive(Deserialize)]
struct Vm {
    vm: Uuid,
}

fn pages() -> Router<Arc<Agent>> {
    let status = async |State(agent): Routes| ok(&agent.status());
    let metrics = async |State(agent): Routes| daemon::metrics::answer(&agent.metrics());
    agent::pages(get(status), get(metrics))
}

async fn release(State(agent): Routes, asked: Result<Json<Vm>, JsonRejection>) -> Response<Body> {
    let Json(Vm { vm }) = match asked {
        Ok(asked) => asked,
        Err(why) => return invalid(&why.body_text()),
    };
    tracing::warn!(target: daemon::log::AUDIT, audit = true, %vm, "an operator released a VM that was waiting for migration-service");
    match agent.release(vm).await {
        Ok(true) => ok(&json!({"vm": vm})),
        Ok(false) => {
            let why = format!("{vm} does not wait for migration-service");
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &why)
        }
        Err(why) => refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &why),
    }
}

/// Serves the pages on this port, and the operator's requests on the control socket, until the shutdown.
pub fn listen(
    agent: &Arc<Agent>,
    places: &agent::Places,
    listener: TcpListener,
    tasks: &Tasks,
    shutdown: &Shutdown,
) {
    let port = pages().with_state(Arc::clone(agent));
    let release = post(release).fallback(async || wrong_method("POST"));
    let control = pages().route("/release", release).with_state(Arc::clone(agent));
    agent::listen(places, (listener, port), control, tasks, shutdown);
}
