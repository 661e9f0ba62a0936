// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Between the programs: passes each request on, and makes a point of each that changes something.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use daemon::Shutdown;
use daemon::http::{Acceptor, Limits, Server};
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use migration_service::enrol::Authorities;
use mocks::faults::{Listening, Mock, Reply, listen};
use sdc_clients::http::{HttpTransport, Transport};
use sdc_clients::identity::Identity;
use serde_json::Value;
use trust::exchange::Known;
use trust::{Admits, Doors, Holder};
use uuid::Uuid;

use super::points::{Points, normal};
use crate::faults::Moment;

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
    transport: Arc<dyn Transport>,
    /// Who is asked, where that is proved.
    peer: Option<Identity>,
}

/// Starts a relay in front of the service at `base`.
pub async fn relay(name: &'static str, base: &str, points: &Arc<Points>) -> Result<Listening> {
    let (base, points) = (base.to_owned(), Arc::clone(points));
    let transport = Arc::new(HttpTransport::new()?);
    let relay = Relay { to: To::Service(name), base, points, transport, peer: None };
    Ok(listen((Ipv4Addr::LOCALHOST, 0).into(), Arc::new(relay)).await?)
}

/// A relay in front of an agent, which has certificates of the agent and of the service: with nothing less could
/// anybody stand between them.
pub struct Between {
    /// Where it listens.
    pub at: SocketAddr,
    cn: Uuid,
    front: Arc<Holder>,
    back: Arc<Holder>,
    shutdown: Shutdown,
}

impl Between {
    /// Starts the relay in front of the agent of this node. It carries nothing before [`Between::hold`].
    pub async fn start(
        (number, cn): (usize, Uuid),
        base: &str,
        points: &Arc<Points>,
    ) -> Result<Between> {
        let (front, back) = (Holder::new(Admits::Known), Holder::new(Admits::Known));
        let relay = Arc::new(Relay {
            to: To::Agent(number),
            base: base.to_owned(),
            points: Arc::clone(points),
            transport: Arc::new(trust::Client::new(&back)),
            peer: Some(Identity::Agent(cn)),
        });
        let carry = move |request: Request<Body>| {
            let relay = Arc::clone(&relay);
            async move { carried(&relay, request).await }
        };
        let (listener, at) = daemon::http::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let shutdown = Shutdown::new();
        let doors = Acceptor::Secure(listener, Arc::new(Doors::new(&front)));
        let server = Server::new(Limits::default(), shutdown.clone()).under_any_name();
        tokio::spawn(server.serve(doors, Router::new().fallback(carry)));
        Ok(Between { at, cn, front, back, shutdown })
    }

    /// Takes certificates of both from the authority in this file.
    pub fn hold(&self, file: &Path) -> Result<()> {
        let kept: Option<Authorities> = trust::read_private(file)?;
        let kept = kept.context("there is no authority yet")?;
        let authority = kept.all.first().context("there is no authority yet")?;
        let now = self.front.now();
        let roots = vec![authority.certificate.clone()];
        let known = Known { roots, revoked: vec![authority.list(&[], now)?] };
        self.front.hold(authority.equip(Identity::Agent(self.cn), known.clone(), now)?)?;
        Ok(self.back.hold(authority.equip(Identity::Service, known, now)?)?)
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

/// The answer of the agent; a connection that breaks off where it has none.
async fn carried(relay: &Relay, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let reply = match axum::body::to_bytes(body, CAP).await {
        Ok(body) => relay.handle(Request::from_parts(head, body)).await,
        Err(_) => Reply::Cut,
    };
    match reply {
        Reply::Full(answer) => answer.map(Body::from),
        _ => {
            let broken = Err::<Bytes, _>(std::io::Error::other("cut"));
            Response::new(Body::from_stream(futures_util::stream::iter([broken])))
        }
    }
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
        normal(format!("{from} asks {to} {method} {path} {order}").trim_end())
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
            peer: self.peer,
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
