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
use crate::state::Service;
use migration_core::journal::End;
use migration_core::protocol::Replaced;
use migration_core::record::Record;

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
        let unknown = service.records.unknown(&open).await?;
        if !unknown.is_empty() {
            tracing::error!(%cn, ?unknown, "a node has migrations open that the store does not know");
        }
        let (mut replaced, mut migrations) = (Vec::new(), Vec::new());
        for mut kept in service.records.all().await? {
            if !is_replaced(&kept.record, cn) {
                continue;
            }
            replaced.push(kept.record.vm_uuid);
            migrations.push(kept.record.id);
            if kept.record.journal.returned.is_none() {
                tracing::error!(%cn, vm = %kept.record.vm_uuid, "a node that was declared dead is back");
                kept.record.journal.returned = Some(service.clock.now());
                // Where a round has changed it meanwhile, the agent asks again when it starts.
                if let Err(error) = service.records.write(&mut kept, None).await {
                    tracing::warn!(reason = %error, "people are not told that it is back");
                }
            }
        }
        ok(&json!(Replaced { replaced, migrations: Some(migrations), unknown }))
    };
    respond(answer.await)
}

/// Returns true if the copy on this node is not to be used again.
fn is_replaced(record: &Record, cn: Uuid) -> bool {
    let is_on = |end: End| match end {
        End::Source => record.source_server_uuid == cn,
        End::Target => record.target_server_uuid == Some(cn),
    };
    [End::Source, End::Target].into_iter().any(|end| is_on(end) && record.journal.is_replaced(end))
}
