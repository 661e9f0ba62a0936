// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The listeners of an agent, and what their routes share: a loopback port for every process of the node,
//! whose pages change nothing and cause no request, and a unix socket for root.

use std::time::Duration;

use axum::extract::Request;
use axum::routing::{MethodRouter, get};
use http::{Response, StatusCode};
use sdc_clients::restify::{Endpoint, Endpoints, Slashes};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::approval::{Approval, Refused};
use crate::config::lower_uuid;
use crate::http::{
    Body, Limits, Router, Server, bind_unix, collect, name_ignored, ok, refuse, reply, with_ping,
    with_refusals,
};
use crate::log::{AUDIT, clip};
use crate::metrics;
use crate::tasks::{Shutdown, Tasks};

use super::basics::Places;
use super::claims::Unclaimed;

/// The longest body of a request to the socket, and the time to send it in.
const BODY: usize = 4096;
const BODY_TIME: Duration = Duration::from_secs(5);
/// Connections of each listener at once.
pub(super) const CONNECTIONS: usize = 256;

/// The header that names the parameters of a request for a page: no page of an agent takes one.
const IGNORED: &str = "agent-ignored";

/// Returns the refusal of a parameter or body.
pub fn invalid(why: &str) -> Response<Body> {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, "InvalidParameters", why)
}

/// Answers an approval, whose body is `{"id": PLAN-ID, "by": NAME}`; `approve` returns how many `what` it stands for.
pub async fn approve(
    request: Request,
    what: &str,
    approve: impl FnOnce(&str, &str) -> Result<usize, Refused>,
) -> Response<Body> {
    let asked = match body(request).await {
        Ok(asked) => asked,
        Err(refused) => return *refused,
    };
    let Some(id) = asked.get("id").and_then(Value::as_str) else {
        return invalid("the body must be {\"id\": PLAN-ID}");
    };
    let by = who(&asked);
    match approve(id, &by) {
        Ok(count) => {
            tracing::warn!(target: AUDIT, audit = true, id, by, count, what, "the operator approved a plan");
            ok(&json!({"id": id, what: count}))
        }
        Err(refused) => {
            tracing::warn!(target: AUDIT, audit = true, id, by, reason = %refused, "refused an operator's approval");
            refuse(StatusCode::NOT_FOUND, "ResourceNotFound", &refused.to_string())
        }
    }
}

/// Answers a claim, whose body is `{"node": UUID, "by": NAME, "really": BOOL}`; without a node it is `cn_uuid`.
pub async fn claim<F>(
    request: Request,
    cn_uuid: &str,
    claim: impl FnOnce(String, String, bool) -> F,
) -> Response<Body>
where
    F: Future<Output = Result<(), Unclaimed>>,
{
    let asked = match body(request).await {
        Ok(asked) => asked,
        Err(refused) => return *refused,
    };
    let node = match asked.get("node").map(|node| node.as_str().map(lower_uuid)) {
        None => cn_uuid.to_owned(),
        Some(Some(Ok(node))) => node,
        Some(_) => return invalid("the body must be {\"node\": UUID}"),
    };
    let really = asked.get("really") == Some(&Value::Bool(true));
    match claim(node.clone(), who(&asked), really).await {
        Ok(()) => ok(&json!({"node": node})),
        Err(refused) => refuse(StatusCode::CONFLICT, "Refused", &refused.to_string()),
    }
}

/// Reads the body of a request to the socket.
async fn body(request: Request) -> Result<Value, Box<Response<Body>>> {
    let bytes = collect(request.into_body(), BODY, BODY_TIME).await;
    let late = || Box::new(invalid("the body is too long or did not arrive in time"));
    Ok(serde_json::from_slice(&bytes.ok_or_else(late)?).unwrap_or_default())
}

fn who(asked: &Value) -> String {
    clip(asked.get("by").and_then(Value::as_str).unwrap_or("somebody"))
}

/// Returns an approval for a page.
pub fn approval_json(approval: &Approval, now: Duration) -> Value {
    let Approval { by, at, count, left } = approval;
    json!({"by": by, "ago_s": now.saturating_sub(*at).as_secs(), "count": count, "left": left})
}

/// Returns the routes of both listeners of each agent, whose own are added to them.
pub fn pages<S: Clone + Send + Sync + 'static>(
    status: MethodRouter<S>,
    metrics: MethodRouter<S>,
) -> Router<S> {
    with_ping(Router::new().route("/status", status).route("/metrics", metrics))
}

/// The paths of the agents: those of the port, which all have ([`pages`], and what [`listen`] adds), and those that
/// only some have, or that root has at the socket.
pub const ENDPOINTS: Endpoints<()> = Endpoints {
    all: &[
        Endpoint::new("/ping", "GET", ()).about("whether the agent answers").does(&["GET -> 200 {}"]),
        Endpoint::new("/status", "GET", ())
            .about("what it has done, and what it waits for")
            .does(&["GET -> 200 AgentStatus"]),
        Endpoint::new("/metrics", "GET", ())
            .about("its metrics, as OpenMetrics has them")
            .does(&["GET -> 200 text"]),
        Endpoint::new("/openapi.json", "GET", ()).about("this document").does(&["GET -> 200 {}"]),
        Endpoint::new("/plan", "GET, POST", ()).about("net-agent, vm-agent: what it would change").does(&[
            "GET -> 200 {}",
            "POST -> 200 {}: net-agent, vm-agent, at the socket: the same, and it may be approved",
        ]),
        Endpoint::new("/holds", "GET", ())
            .about("net-agent: the holds in force")
            .does(&["GET -> 200 [{}]"]),
        Endpoint::new("/history", "GET", ())
            .about("net-agent: the newest entries of its history, the oldest of them first")
            .does(&["GET -> 200 [{}]"]),
        Endpoint::new("/nics/{mac}", "GET", ())
            .about("net-agent, at the socket: what is known about a NIC")
            .does(&["GET -> 200 {}"]),
        Endpoint::new("/vms/{uuid}", "GET", ())
            .about("vm-agent, at the socket: what is known about a VM")
            .does(&["GET -> 200 {}"]),
        Endpoint::new("/approve", "POST", ())
            .about("net-agent, vm-agent, at the socket: approves what was offered")
            .does(&["POST Approval -> 200 {}"]),
        Endpoint::new("/claim", "POST", ())
            .about("net-agent, vm-agent, at the socket: this machine is, or was, a node")
            .does(&["POST Claim -> 200 {}"]),
        Endpoint::new("/release", "POST", ())
            .about("migration-agent, at the socket: a VM no longer waits for migration-service")
            .does(&["POST Release -> 200 {}"]),
    ],
    slashes: Slashes::Kept,
};

/// The same as OpenAPI has it, which `testbed openapi agents` makes of the table and the types.
const DOCUMENT: &str = include_str!("../../../docs/agents.openapi.json");

/// Serves the routes of the port and those of the socket until the shutdown.
pub fn listen(
    places: &Places,
    (listener, port): (TcpListener, Router),
    control: Router,
    tasks: &Tasks,
    shutdown: &Shutdown,
) {
    let port = port.route("/openapi.json", get(async || reply(StatusCode::OK, DOCUMENT)));
    // Again: the agent's own routes came after those of all agents.
    let port = name_ignored(with_refusals(port), IGNORED, |_| true);
    let socket = &places.control_socket;
    let limits = Limits { connections: CONNECTIONS, requests_per_second: 200, ..Limits::default() };
    let server = || Server::new(limits, shutdown.clone());
    metrics::serve(places.metrics_listen, port.clone(), tasks, shutdown);
    tasks.spawn("status", server().serve(listener, port));
    match bind_unix(socket, 0o600) {
        Ok(bound) => drop(tasks.spawn("control", server().serve(bound, with_refusals(control)))),
        // Everything but approvals works without it.
        Err(err) => {
            let socket = socket.display();
            tracing::error!(%socket, reason = %err, "cannot open the control socket; approve and ping fail until it opens");
        }
    }
}
