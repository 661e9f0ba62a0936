// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The nodes: what vminfod would show of each, over HTTP. They outlive the processes of their agents, as nodes do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use mocks::hub::Hub;
use sdc_clients::http::{Request as Asked, Transport as _};
use sdc_clients::vminfod::VmObject;
use serde_json::json;
use tokio::net::TcpListener;

/// The nodes by uuid.
pub(crate) type Hubs = Arc<BTreeMap<String, Hub>>;

/// Events that a node keeps: few enough for some to be lost.
const RING: usize = 60;

/// A uuid that is a number.
pub(crate) fn cn(nth: usize) -> String {
    format!("c0000000-0000-4000-8000-{nth:012x}")
}

/// A VM of a node, in its state number `turn`.
pub(crate) fn vm(cn: &str, nth: usize, turn: u64) -> VmObject {
    let uuid = format!(
        "40000000-{:04x}-4000-8000-{nth:012x}",
        cn.bytes().fold(0u16, |sum, it| sum.wrapping_mul(31).wrapping_add(it.into()))
    );
    let vm = json!({"zonename": uuid, "uuid": uuid, "alias": format!("vm-{turn}"), "state": "running",
        "brand": "joyent", "customer_metadata": {"turn": turn.to_string()}});
    vm.as_object().cloned().unwrap_or_default()
}

/// So many empty nodes.
pub(crate) fn hubs(count: usize) -> Hubs {
    Arc::new((0..count).map(cn).map(|cn| (cn.clone(), Hub::new(&cn, RING))).collect())
}

/// Serves all of them, each under its uuid; returns the address.
pub(crate) async fn serve(hubs: &Hubs) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = axum::Router::new().fallback(answer).with_state(Arc::clone(hubs));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

async fn answer(State(hubs): State<Hubs>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    try_answer(&hubs, parts).await.unwrap_or_else(|| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    })
}

async fn try_answer(hubs: &Hubs, request: http::request::Parts) -> Option<Response> {
    let (cn, path) = request.uri.path().trim_start_matches('/').split_once('/')?;
    let query = request.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let asked = Asked {
        method: request.method.clone(),
        url: format!("http://hub/{path}{query}").parse().ok()?,
        headers: request.headers.clone(),
        body: None,
        timeout: std::time::Duration::from_secs(30),
        body_cap: 64 << 20,
        peer: None,
    };
    let hub = hubs.get(cn)?;
    let (status, headers, body) = match path {
        "events" => {
            let answer = hub.stream(asked).await.ok()?;
            (answer.status, answer.headers, Body::from_stream(answer.body))
        }
        _ => {
            let answer = hub.send(asked).await.ok()?;
            (answer.status, answer.headers, Body::from(answer.body))
        }
    };
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Some(response)
}
