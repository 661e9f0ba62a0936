// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /agents/CN/replaced?open=ID.REVISION,…`: what the agent of a node that comes back asks before anything else,
//! and what one asks that hears nothing.

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Extension, Router};
use daemon::http::Body;
use http::Response;
use sdc_clients::identity::Identity;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::answer::{ok, respond, uuid};
use crate::refused::Refused;
use crate::runner::{found_older, found_returned};
use crate::state::Service;
use migration_core::dead::Word;
use migration_core::protocol::Replaced;
use migration_core::record::{is_on, is_over};

/// Returns the route for agents, which have proved which node they are on.
pub fn routes(service: Service) -> Router {
    Router::new().route("/agents/{cn}/replaced", get(replaced)).with_state(service)
}

/// The migrations that the agent has open.
#[derive(Debug, Default, Deserialize)]
struct Open {
    #[serde(default)]
    open: String,
}

async fn replaced(
    State(service): State<Service>,
    Path(cn): Path<String>,
    Query(open): Query<Open>,
    peer: Option<Extension<Option<Identity>>>,
) -> Response<Body> {
    let answer = async {
        let cn = uuid(&cn)?;
        if peer.and_then(|Extension(peer)| peer) != Some(Identity::Agent(cn)) {
            let why = "an agent asks this for its own node alone";
            return Err(Refused::coded(403, "NotAuthorized", why));
        }
        service.heard.note(cn, Word::Question, service.clock.now()).await;
        let open = open.open.split(',').filter(|it| !it.is_empty());
        let open = open.map(heard).collect::<Result<Vec<_>, _>>()?;
        let mut known = known(&service, cn, &open).await?;
        let mut replaced = Vec::new();
        for mut kept in service.records.ends.of_cn(cn).await? {
            replaced.push(kept.row.migration);
            if kept.row.returned.is_none() {
                kept.row.returned = Some(service.clock.now());
                // Where a look has changed it meanwhile, the agent asks again.
                let told = async {
                    service.records.ends.write(&mut kept, None).await?;
                    found_returned(&service, &kept, None).await
                };
                if let Err(why) = told.await {
                    tracing::warn!(?why, "cannot record the alarm for a node that is back");
                }
            }
        }
        let over = over(&service, &known, &replaced).await?;
        known.extend(replaced.iter().filter(|id| !known.contains(id)).copied().collect::<Vec<_>>());
        let unknown = open.iter().map(|(id, _)| id).filter(|id| !known.contains(id));
        let unknown: Vec<&Uuid> = unknown.collect();
        if !unknown.is_empty() {
            tracing::error!(%cn, ?unknown, "a node has open migrations that the store does not know");
        }
        ok(&json!(Replaced { replaced, known, over }))
    };
    respond(answer.await)
}

/// Reads a migration and the highest revision of it that the agent has heard.
fn heard(text: &str) -> Result<(Uuid, u64), Refused> {
    let (id, revision) = text.split_once('.').unwrap_or((text, ""));
    let revision = revision.parse();
    Ok((uuid(id)?, revision.map_err(|_| Refused::parameter("open", "Invalid revision"))?))
}

/// Returns those that are over, but for copies that were replaced, which are watched. The end of the others was not
/// heard, or nobody told it: a begin that chose no node is given up without a round.
async fn over(service: &Service, known: &[Uuid], replaced: &[Uuid]) -> Result<Vec<Uuid>, Refused> {
    let mut over = Vec::new();
    for id in known.iter().filter(|id| !replaced.contains(id)) {
        if service.records.get(*id).await?.is_none_or(|kept| is_over(&kept.record)) {
            over.push(*id);
        }
    }
    Ok(over)
}

/// Returns those that the service knows or knew. Of a record that is older than what the agent has heard it knows
/// nothing, nor does it say anything of one that has other nodes.
async fn known(service: &Service, cn: Uuid, open: &[(Uuid, u64)]) -> Result<Vec<Uuid>, Refused> {
    let ids: Vec<Uuid> = open.iter().map(|(id, _)| *id).collect();
    let mut known = service.records.known(&ids).await?;
    for (id, revision) in open.iter().filter(|(id, _)| ids.contains(id)) {
        let Some(mut kept) = service.records.get(*id).await? else { continue };
        if !is_on(&kept.record, cn) {
            known.retain(|it| it != id);
        } else if *revision > kept.record.journal.revision {
            known.retain(|it| it != id);
            if kept.record.journal.older.is_none()
                && let Err(why) = found_older(service, &mut kept, None).await
            {
                tracing::warn!(
                    ?why,
                    "cannot record that the store is older than the agents: the alarm is missing"
                );
            }
        }
    }
    Ok(known)
}
