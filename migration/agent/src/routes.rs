// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the services and other agents may ask. Who asks has been proved by the connection, and is the extension
//! `Option<Identity>`; a request without one has no known sender.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post, put};
use axum::{Extension, Json};
use daemon::http::{Body, Router, Table, endpoint, ok, ping, refuse, routes, table, with_refusals};
use http::{Response, StatusCode};
use sdc_clients::identity::Identity;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::failed::Failed;
use super::memory::NotTaken;
use super::node::NodeError;
use super::parts::Parts;
use super::snapshots::{self, NotDone};
use super::{execute, in_the_way, observe, receive};
use migration_core::protocol::{Clear, Observe, Offer, Order, Rate, Received, WAITS};

/// The longest body: an order brings over metadata.
const LONGEST: usize = 4 << 20;

type Routes = State<Arc<Parts>>;
type Named = Path<(Uuid, String)>;
type Peer = Extension<Identity>;
type JsonBody<T> = Result<Json<T>, JsonRejection>;

/// What migration-service asks.
const OF_SERVICE: Table<Arc<Parts>> = table(&[
    endpoint("/observe", "POST", || post(observed))
        .about("the state of a copy, from a reading that begins after the request")
        .does(&["POST Observe -> 200 Looked"]),
    endpoint("/orders", "POST", || post(ordered))
        .about("an order; one that is not done in the time that is waited goes on")
        .does(&["POST Order -> 200 Doing"]),
    endpoint("/node", "GET", || {
        get(async |State(parts): Routes| answer(observe::node(&parts).await))
    })
    .about("the node and its agent")
    .does(&["GET -> 200 Node"]),
    endpoint("/migrations", "GET", || {
        get(async |State(parts): Routes| answer(Ok(observe::open(&parts).await)))
    })
    .about("the migrations that are open on the node")
    .does(&["GET -> 200 [Open]"]),
    endpoint("/copies", "GET", || {
        get(async |State(parts): Routes| answer(observe::copies(&parts).await))
    })
    .about("what migrations left on the node")
    .does(&["GET -> 200 [Rest]"]),
    endpoint("/vms/{uuid}", "GET", || get(object))
        .about("the object of a VM")
        .does(&["GET -> 200 {}"]),
    endpoint("/vms/{uuid}/size", "GET", || get(size))
        .about("what a VM uses")
        .does(&["GET -> 200 Size"]),
    endpoint("/vms/{uuid}/datasets", "GET", || get(datasets))
        .about("the datasets of a VM")
        .does(&["GET -> 200 Datasets"]),
    endpoint("/vms/{uuid}/in-the-way", "GET", || get(in_the_way))
        .about("the datasets of a VM's name, of a VM that the node has no copy of")
        .does(&["GET -> 200 {}"]),
    endpoint("/rate", "PUT", || put(rate))
        .about("limits all streams of the node")
        .does(&["PUT Rate -> 200 {}"]),
    endpoint("/trust/news", "POST", || post(news))
        .about("the list of what is revoked has changed: the agent asks for it at once")
        .does(&["POST -> 200 {}"]),
]);

/// What volapi asks.
const OF_VOLAPI: Table<Arc<Parts>> = table(&[
    endpoint("/vms/{uuid}/snapshots", "GET", || get(listed))
        .about("the snapshots of the dataset that is delegated to a VM, the oldest first")
        .does(&["GET -> 200 [Snapshot]"]),
    endpoint("/vms/{uuid}/snapshots/{name}", "PUT, DELETE", || put(taken).delete(destroyed))
        .about("makes a snapshot; destroys it")
        .does(&["PUT -> 200 Snapshot: makes a snapshot", "DELETE -> 200 {}: destroys it"]),
    endpoint("/vms/{uuid}/snapshots/{name}/rollback", "POST", || post(rolled_back))
        .about("rolls the dataset back to a snapshot")
        .does(&["POST -> 200 RolledBack"]),
]);

/// What the agents of other nodes ask.
const OF_AGENTS: Table<Arc<Parts>> = table(&[
    endpoint("/received", "POST", || post(received))
        .about("what the receiver has")
        .does(&["POST Received -> 200 Datasets"]),
    endpoint("/clear", "POST", || post(cleared))
        .about("what must go from the receiver before a stream")
        .does(&["POST Clear -> 200 {}"]),
    endpoint("/streams", "POST", || post(offered))
        .about("offers one stream to the receiver")
        .does(&["POST Offer -> 200 Accepted"]),
]);

/// What all of them ask.
const OF_ALL: Table<Arc<Parts>> = table(&[ping().about("whether the agent answers")]);

/// Returns the paths as OpenAPI has them.
pub fn paths() -> Map<String, Value> {
    [OF_SERVICE, OF_VOLAPI, OF_AGENTS, OF_ALL].iter().flat_map(Table::paths).collect()
}

/// Returns the routes of the control listener.
pub(crate) fn control(parts: &Arc<Parts>) -> Router {
    let only = |routes: Router<Arc<Parts>>, may: May| {
        routes.layer(from_fn_with_state((Arc::clone(parts), may), check))
    };
    only(with_refusals(routes(&OF_ALL)), |_| true)
        .merge(only(routes(&OF_SERVICE), |it| it == Identity::Service))
        .merge(only(routes(&OF_VOLAPI), |it| it == Identity::Volapi))
        .merge(only(routes(&OF_AGENTS), |it| it.cn().is_some()))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::clone(parts))
}

/// Whether a program may make these requests.
type May = fn(Identity) -> bool;

async fn check(
    State((parts, may)): State<(Arc<Parts>, May)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let peer = request.extensions().get::<Option<Identity>>().copied().flatten();
    match peer {
        Some(peer) if may(peer) => {
            request.extensions_mut().insert(peer);
            next.run(request).await
        }
        peer => {
            parts.counts.refused();
            let who =
                peer.map_or("a client without a certificate".to_owned(), |peer| peer.to_string());
            let path = request.uri().path();
            tracing::warn!(
                who,
                path,
                "refused a request: its sender's certificate does not allow it"
            );
            let why = format!("{who} may not send this request");
            refuse(StatusCode::FORBIDDEN, "NotAuthorized", &why)
        }
    }
}

/// The node whose agent asks; `check` has let no other program through.
fn node(peer: Identity) -> Uuid {
    peer.cn().unwrap_or_default()
}

async fn observed(State(parts): Routes, asked: JsonBody<Observe>) -> Response<Body> {
    match asked {
        Ok(Json(asked)) => answer(observe::look(&parts, asked).await),
        Err(why) => invalid(&why),
    }
}

async fn ordered(State(parts): Routes, asked: JsonBody<Order>) -> Response<Body> {
    match asked {
        Ok(Json(order)) => answer(execute::order(&parts, order).await.map_err(Failed::from)),
        Err(why) => invalid(&why),
    }
}

async fn received(
    State(parts): Routes,
    Extension(peer): Peer,
    asked: JsonBody<Received>,
) -> Response<Body> {
    match asked {
        Ok(Json(asked)) => answer(receive::received(&parts, &asked, node(peer)).await),
        Err(why) => invalid(&why),
    }
}

async fn cleared(
    State(parts): Routes,
    Extension(peer): Peer,
    asked: JsonBody<Clear>,
) -> Response<Body> {
    match asked {
        Ok(Json(clear)) => {
            answer(receive::clear(&parts, &clear, node(peer)).await.map(|()| json!({})))
        }
        Err(why) => invalid(&why),
    }
}

async fn offered(
    State(parts): Routes,
    Extension(peer): Peer,
    asked: JsonBody<Offer>,
) -> Response<Body> {
    match asked {
        Ok(Json(offer)) => answer(receive::accept(&parts, offer, node(peer)).await),
        Err(why) => invalid(&why),
    }
}

async fn object(State(parts): Routes, Path(vm): Path<Uuid>) -> Response<Body> {
    answer(parts.node.existing(vm).await.map_err(Failed::from))
}

async fn size(State(parts): Routes, Path(vm): Path<Uuid>) -> Response<Body> {
    answer(observe::size(&parts, vm).await)
}

async fn datasets(State(parts): Routes, Path(vm): Path<Uuid>) -> Response<Body> {
    answer(observe::datasets(&parts, vm).await)
}

async fn in_the_way(State(parts): Routes, Path(vm): Path<Uuid>) -> Response<Body> {
    answer(in_the_way::absent(&parts, vm).await)
}

async fn rate(State(parts): Routes, asked: JsonBody<Rate>) -> Response<Body> {
    match asked {
        Ok(Json(Rate { mbps })) => {
            tracing::info!(mbps, "changed the rate limit of streams");
            parts.streams.rate.set(mbps);
            ok(&json!({}))
        }
        Err(why) => invalid(&why),
    }
}

async fn news(State(parts): Routes) -> Response<Body> {
    parts.trust_news.notify_one();
    ok(&json!({}))
}

async fn listed(State(parts): Routes, Path(vm): Path<Uuid>) -> Response<Body> {
    done(snapshots::list(&parts, vm).await)
}

async fn taken(State(parts): Routes, Path((vm, name)): Named) -> Response<Body> {
    done(snapshots::create(&parts, vm, &name).await)
}

async fn destroyed(State(parts): Routes, Path((vm, name)): Named) -> Response<Body> {
    done(snapshots::destroy(&parts, vm, &name).await.map(|()| json!({})))
}

async fn rolled_back(State(parts): Routes, Path((vm, name)): Named) -> Response<Body> {
    done(snapshots::roll_back(&parts, vm, &name).await)
}

fn done<T: Serialize>(done: Result<T, NotDone>) -> Response<Body> {
    match done {
        Ok(done) => answer(Ok(done)),
        Err(not_done) => {
            let (status, code) = not_done.answer();
            refuse(status, code, &not_done.to_string())
        }
    }
}

fn invalid(why: &JsonRejection) -> Response<Body> {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, "InvalidParameters", &why.body_text())
}

fn answer<T: Serialize>(done: Result<T, Failed>) -> Response<Body> {
    let failed = match done.map(|done| serde_json::to_value(done)) {
        Ok(Ok(value)) => return ok(&value),
        Ok(Err(error)) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return refuse(status, "InternalError", &error.to_string());
        }
        Err(failed) => failed,
    };
    let (status, code) = match &failed {
        Failed::NotTaken(NotTaken::Old { .. } | NotTaken::Restored { .. }) => {
            (StatusCode::CONFLICT, "OldOrder")
        }
        Failed::NotTaken(NotTaken::Over(_)) => (StatusCode::CONFLICT, "MigrationOver"),
        Failed::NotTaken(NotTaken::Waits) => (StatusCode::CONFLICT, WAITS),
        Failed::NotTaken(NotTaken::Other(_)) => (StatusCode::CONFLICT, "OtherCopy"),
        Failed::NotOff => (StatusCode::CONFLICT, "NotOff"),
        Failed::Cancelled => (StatusCode::CONFLICT, "NotReceiving"),
        Failed::NotSender(_) => (StatusCode::FORBIDDEN, "NotAuthorized"),
        Failed::Foreign(_) => (StatusCode::CONFLICT, "ForeignDataset"),
        Failed::Node(NodeError::NoVm(_)) => (StatusCode::NOT_FOUND, "ResourceNotFound"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
    };
    refuse(status, code, &failed.to_string())
}
