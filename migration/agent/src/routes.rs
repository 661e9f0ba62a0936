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
use daemon::http::{Body, Router, ok, refuse, with_ping};
use http::{Response, StatusCode};
use sdc_clients::identity::Identity;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::failed::Failed;
use super::memory::NotTaken;
use super::node::NodeError;
use super::parts::Parts;
use super::snapshots::{self, NotDone};
use super::{execute, observe, receive};
use migration_core::protocol::{Clear, Observe, Offer, Order, Rate, Received, WAITS};

/// The longest body: an order brings over metadata.
const LONGEST: usize = 4 << 20;

type Routes = State<Arc<Parts>>;
type Named = Path<(Uuid, String)>;
type Peer = Extension<Identity>;
type JsonBody<T> = Result<Json<T>, JsonRejection>;

/// Returns the routes of the control listener.
pub fn control(parts: &Arc<Parts>) -> Router {
    let of_service = Router::new()
        .route("/observe", post(observed))
        .route("/orders", post(ordered))
        .route("/node", get(async |State(parts): Routes| answer(observe::node(&parts).await)))
        .route("/migrations", get(async |State(parts): Routes| answer(Ok(observe::open(&parts)))))
        .route("/copies", get(async |State(parts): Routes| answer(observe::copies(&parts).await)))
        .route("/vms/{uuid}", get(object))
        .route("/vms/{uuid}/size", get(size))
        .route("/vms/{uuid}/datasets", get(datasets))
        .route("/rate", put(rate));
    let of_volapi = Router::new()
        .route("/vms/{uuid}/snapshots", get(listed))
        .route("/vms/{uuid}/snapshots/{name}", put(taken).delete(destroyed))
        .route("/vms/{uuid}/snapshots/{name}/rollback", post(rolled_back));
    let of_agents = Router::new()
        .route("/received", post(received))
        .route("/clear", post(cleared))
        .route("/streams", post(offered));
    let only = |routes: Router<Arc<Parts>>, may: May| {
        routes.layer(from_fn_with_state((Arc::clone(parts), may), check))
    };
    only(of_service, |it| it == Identity::Service)
        .merge(only(of_volapi, |it| it == Identity::Volapi))
        .merge(only(of_agents, |it| it.cn().is_some()))
        .merge(only(with_ping(Router::new()), |_| true))
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
        Ok(Json(asked)) => answer(observe::observe(&parts, &asked).await),
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
