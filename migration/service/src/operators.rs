// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operators' routes for enrolment, and for migrations that the store lost: at the unix socket, which only the
//! service's user and root may connect to, or at the port of agents, under an operator's certificate.

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use axum::{Json, Router};
use daemon::http::{Body, Table, endpoint, refuse, table, with_ping};
use futures_util::{StreamExt as _, stream};
use http::{Response, StatusCode};
use sdc_clients::cnapi::ServerQuery;
use sdc_clients::identity::Identity;
use sdc_clients::migrations::Migration;
use sdc_clients::restify::openapi;
use sdc_clients::schema::Schemas;
use serde::Deserialize;
use serde_json::Value;
use trust::exchange::{self, Asks, Join, Joined};
use uuid::Uuid;

use super::agents::Agents;
use super::enrol::{
    self, Enrolment, JsonBody, OF_OPERATORS, OF_PROGRAMS, Whom, answer, identity, invalid,
};
use super::front::{ADOPTION, OF_AGENTS, adoption};
use super::refused::Refused;
use super::state::Service;
use migration_core::protocol::Replaced;

/// A request is short.
const LONGEST: usize = 64 << 10;
/// Agents whose identity is checked at once.
const AT_ONCE: usize = 16;
/// Agents that are told of a revocation at once.
const TOLD_AT_ONCE: usize = 64;
/// So many nodes are named in a refusal.
const NAMED: usize = 20;

type Routes = State<(Service, Enrolment)>;

/// What operators ask that needs the service, too.
const OF_BOTH: Table<(Service, Enrolment)> = table(&[
    endpoint("/trust/revoke", "POST", || post(revoke))
        .about("operators: revokes keys")
        .does(&["POST Whom -> 200 {}"]),
    endpoint("/trust/require", "POST", || post(require))
        .about("operators: from now on every agent has to be authenticated, or no more")
        .does(&["POST Requirement -> 200 {}"]),
]);

/// Returns the document of the port of agents and of the unix socket.
pub fn document() -> Value {
    let tables = [OF_PROGRAMS.paths(), OF_AGENTS.paths(), OF_OPERATORS.paths(), OF_BOTH.paths()];
    let paths = tables.into_iter().chain([ADOPTION.paths()]).flatten().collect();
    let schemas = Schemas::default()
        .with::<Join>()
        .with::<Joined>()
        .with::<Asks>()
        .with::<exchange::State>()
        .with::<Replaced>()
        .with::<Migration>()
        .fields("NewToken", &["for! any", "seconds! integer"])
        .fields("Whom", &["who! string", "key string"])
        .fields("Rotation", &["without boolean"])
        .fields("Requirement", &["off boolean", "without boolean"]);
    openapi("trust", env!("CARGO_PKG_VERSION"), paths, schemas.all())
}

/// Returns the routes of the unix socket.
fn routes(service: Service, enrolment: Enrolment) -> Router {
    daemon::http::routes(&OF_BOTH)
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state((service.clone(), enrolment.clone()))
        .merge(enrol::operators(enrolment))
        .merge(adoption(service))
}

/// Returns the routes of the unix socket.
pub fn at_socket(service: Service, enrolment: Enrolment) -> Router {
    with_ping(routes(service, enrolment))
}

/// Returns the same for clients with an operator's certificate.
pub fn proved(service: Service, enrolment: Enrolment) -> Router {
    routes(service, enrolment).layer(from_fn(check))
}

async fn check(request: Request, next: Next) -> Response<Body> {
    let peer = request.extensions().get::<Option<Identity>>().copied().flatten();
    if peer == Some(Identity::Operator) {
        let (method, path) = (request.method(), request.uri().path());
        tracing::info!(target: daemon::log::AUDIT, audit = true, %method, path, "an operator sent a request with a certificate");
        return next.run(request).await;
    }
    let who = peer.map_or("a client without a certificate".to_owned(), |peer| peer.to_string());
    let path = request.uri().path();
    tracing::warn!(who, path, "refused a request: its certificate is not an operator's");
    let why = format!("{who} may not send this request: it needs an operator's certificate");
    refuse(StatusCode::FORBIDDEN, "NotAuthorized", &why)
}

/// Tells all agents, again and again, that something was revoked: each asks for the list at once. One that is not
/// reached asks within a minute. Never returns.
pub async fn tell(enrolment: &Enrolment, agents: &Agents) {
    loop {
        let told = stream::iter(enrolment.revoked_now().await).map(|cn| agents.has_news(cn));
        told.buffer_unordered(TOLD_AT_ONCE).for_each(|()| std::future::ready(())).await;
    }
}

/// Revokes keys. What rests on the word of the node is dropped.
async fn revoke(State((service, enrolment)): Routes, asked: JsonBody<Whom>) -> Response<Body> {
    let Json(Whom { who, key }) = match asked {
        Ok(asked) => asked,
        Err(why) => return invalid(&why),
    };
    let revoked = async {
        let who = identity(&who)?;
        let revoked = enrolment.revoke(who, key.as_deref()).await?;
        if let Some(cn) = who.cn()
            && enrolment.is_revoked(cn)
        {
            service.disbelieve(cn).await?;
        }
        Ok(revoked)
    };
    answer(revoked.await)
}

#[derive(Debug, Deserialize)]
struct Requirement {
    /// It is required no more.
    #[serde(default)]
    off: bool,
    /// Even if some are not authenticated.
    #[serde(default)]
    without: bool,
}

/// Requires every agent to be authenticated.
async fn require(
    State((service, enrolment)): Routes,
    asked: JsonBody<Requirement>,
) -> Response<Body> {
    let Json(Requirement { off, without }) = match asked {
        Ok(asked) => asked,
        Err(why) => return invalid(&why),
    };
    let done = async {
        if off {
            enrolment.require_no_more().await?;
            return enrolment.list().await;
        }
        let unproved = unproved(&service).await?;
        if !unproved.is_empty() && !without {
            return Err(not_proved(&unproved));
        }
        enrolment.require().await?;
        enrolment.list().await
    };
    answer::<Value>(done.await)
}

/// Returns the nodes where the peer at the agent's port is not authenticated as the agent: it is of the
/// version before, or its certificate has expired or was revoked.
async fn unproved(service: &Service) -> Result<Vec<Uuid>, Refused> {
    let listed = service.peers.cnapi.list_servers(&ServerQuery::default()).await?;
    let nodes: Vec<Uuid> = listed.iter().filter_map(|it| it.uuid.parse().ok()).collect();
    let asked = stream::iter(nodes).map(|cn| async move {
        let error = service.agents.open(cn).await.err()?;
        trust::has_answered(&error).then_some(cn)
    });
    let mut unproved: Vec<Uuid> =
        asked.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    unproved.sort_unstable();
    Ok(unproved)
}

fn not_proved(nodes: &[Uuid]) -> Refused {
    let named: Vec<String> = nodes.iter().take(NAMED).map(Uuid::to_string).collect();
    let more = match nodes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = "what answers there does not prove that it is the migration-agent";
    Refused::coded(409, "NotProved", &format!("{what}: {}{more}", named.join(", ")))
}
