// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /agents/CN/replaced?open=ID,…`: what the agent of a node that comes back asks before anything else, and what
//! one asks that hears nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use daemon::http::{Body, signed};
use http::Response;
use sdc_clients::signed::Verifier;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::answer::{ok, respond, uuid};
use crate::runner::is_returned;
use crate::state::Service;
use migration_core::protocol::Replaced;

/// What is signed for this service is signed for this name.
pub const AUDIENCE: &str = "migration-service";
/// No body is needed.
const LONGEST: usize = 4096;

/// Returns the signed routes.
pub fn routes(service: Service, verifier: Arc<Verifier>) -> Router {
    let routes = Router::new().route("/agents/{cn}/replaced", get(replaced)).with_state(service);
    signed(routes, verifier, LONGEST)
}

/// The migrations that the agent has open; an agent of an earlier version does not say.
#[derive(Debug, Default, Deserialize)]
struct Open {
    #[serde(default)]
    open: String,
}

async fn replaced(
    State(service): State<Service>,
    Path(cn): Path<String>,
    Query(open): Query<Open>,
) -> Response<Body> {
    let answer = async {
        let cn = uuid(&cn)?;
        let ids = open.open.split(',').filter(|id| !id.is_empty());
        let open = ids.map(uuid).collect::<Result<Vec<_>, _>>()?;
        let mut known = service.records.known(&open).await?;
        let mut replaced = Vec::new();
        for mut kept in service.records.ends.of_cn(cn).await? {
            replaced.push(kept.row.migration);
            if kept.row.returned.is_none() {
                kept.row.returned = Some(service.clock.now());
                // Where a look has changed it meanwhile, the agent asks again.
                let told = async {
                    service.records.ends.write(&mut kept, None).await?;
                    is_returned(&service, &kept, None).await
                };
                if let Err(why) = told.await {
                    tracing::warn!(?why, "people are not told that it is back");
                }
            }
        }
        known.extend(replaced.iter().filter(|id| !known.contains(id)).copied().collect::<Vec<_>>());
        let unknown: Vec<&Uuid> = open.iter().filter(|id| !known.contains(id)).collect();
        if !unknown.is_empty() {
            tracing::error!(%cn, ?unknown, "a node has migrations open that the store does not know");
        }
        ok(&json!(Replaced { replaced, known }))
    };
    respond(answer.await)
}
