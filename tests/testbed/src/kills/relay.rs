// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Between the programs: passes each request on, and makes a point of each that changes something.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use mocks::faults::{Listening, Mock, Reply, listen};
use sdc_clients::http::{HttpTransport, Transport};
use serde_json::Value;

use super::points::{Points, normal};
use crate::explore::points::Moment;

/// Longer than anybody waits for an answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Larger than any answer here.
const CAP: usize = 64 << 20;

/// Whose requests are passed on.
pub enum To {
    /// The migration-agent of this node.
    Agent(usize),
    Service(&'static str),
}

/// The relay in front of one program.
struct Relay {
    to: To,
    base: String,
    points: Arc<Points>,
    transport: HttpTransport,
}

/// Starts a relay in front of the program at `base`.
pub async fn relay(to: To, base: &str, points: &Arc<Points>) -> anyhow::Result<Listening> {
    let (base, points) = (base.to_owned(), Arc::clone(points));
    let relay = Relay { to, base, points, transport: HttpTransport::new()? };
    Ok(listen((Ipv4Addr::LOCALHOST, 0).into(), Arc::new(relay)).await?)
}

impl Relay {
    /// The name of the point: who asks whom for what.
    fn label(&self, request: &Request<Bytes>) -> String {
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let from = agent.split('/').next().unwrap_or_default();
        let to = match self.to {
            To::Agent(node) => format!("the {}'s agent", self.points.end_of(node)),
            To::Service(name) => name.to_owned(),
        };
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let order = body["order"]["name"].as_str().unwrap_or_default();
        let (method, path) = (request.method(), request.uri().path());
        normal(&format!("{from} asks {to} {method} {path} {order}"))
    }

    async fn pass(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let url = reqwest::Url::parse(&format!("{}{path}", self.base)).ok()?;
        let mut headers = request.headers().clone();
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            headers.remove(name);
        }
        let (method, body) = (request.method().clone(), request.into_body());
        let body = Some(body).filter(|body| !body.is_empty());
        let asked = sdc_clients::http::Request {
            method,
            url,
            headers,
            body,
            timeout: PATIENCE,
            body_cap: CAP,
        };
        let answer = self.transport.send(asked).await.ok()?;
        let mut response = Response::new(answer.body);
        *response.status_mut() = answer.status;
        for (name, value) in &answer.headers {
            if ![CONNECTION, TRANSFER_ENCODING].contains(name) {
                response.headers_mut().append(name, value.clone());
            }
        }
        Some(response)
    }
}

impl Mock for Relay {
    fn handle(&self, request: Request<Bytes>) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let label = match *request.method() {
                Method::GET | Method::HEAD => None,
                _ => Some(self.label(&request)),
            };
            if let Some(label) = &label {
                self.points.meet(label, Moment::Before).await;
            }
            // Whoever asked may have been killed: then nobody polls this any more, and it was never sent.
            let Some(response) = self.pass(request).await else { return Reply::Cut };
            if let Some(label) = &label {
                self.points.meet(label, Moment::After).await;
            }
            Reply::Full(response)
        })
    }
}
