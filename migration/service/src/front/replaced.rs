// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /agents/CN/replaced?open=ID.REVISION.OTHER.NONCE,…`: what the agent of a node that comes back asks before
//! anything else, and what one asks that receives no request. Only this service's own declaration makes a copy
//! replaced. The store may be lost, or older than what the other copy's agent has received: there is no answer about a
//! copy of a record before that agent has answered, too.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Extension, Router};
use daemon::http::{Body, Table, endpoint, table};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::Response;
use sdc_clients::identity::Identity;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::answer::{ok, respond, uuid};
use crate::records::Stored;
use crate::refused::Refused;
use crate::runner::{found_older, found_returned};
use crate::state::Service;
use migration_core::dead::Contact;
use migration_core::intent::End;
use migration_core::protocol::Replaced;
use migration_core::record::{is_on, is_over, node_of};

/// What agents ask, which have proved which node they are on.
pub const OF_AGENTS: Table<Service> =
    table(&[endpoint("/agents/{cn}/replaced", "GET", || get(replaced))
        .about("the node's agent: which of its open migrations were replaced, are known, are over")
        .does(&["GET ?open -> 200 Replaced"])]);

/// Returns the route for agents.
pub fn routes(service: Service) -> Router {
    daemon::http::routes(&OF_AGENTS).with_state(service)
}

/// The most migrations that one question names: more than the VMs that a node has.
const MOST_OPEN: usize = 1000;
/// So many other nodes are asked at once.
const AT_ONCE: usize = 16;
/// So many of them are named in a line of the log.
const NAMED: usize = 8;

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
        let Some(_asking) = service.contacts.asks(cn) else {
            let why = "another question of this node is being answered";
            return Err(Refused::coded(503, "ServiceUnavailableError", why));
        };
        service.contacts.note(cn, Contact::Question, service.clock.now()).await;
        let open: Vec<&str> = open.open.split(',').filter(|it| !it.is_empty()).collect();
        if open.len() > MOST_OPEN {
            let why = format!("{} migrations are named, of at most {MOST_OPEN}", open.len());
            return Err(Refused::coded(413, "RequestTooLarge", &why));
        }
        let open = open.into_iter().map(open_migration).collect::<Result<Vec<_>, _>>()?;
        let mut known = known(&service, cn, &open).await?;
        let silent = compared(&service, cn, &known).await?;
        known.retain(|id| !silent.contains(id));
        let mut replaced = Vec::new();
        for mut kept in service.records.ends.of_cn(cn).await? {
            replaced.push(kept.row.migration);
            if kept.row.returned.is_none() {
                kept.row.returned = Some(service.clock.now());
                // Where a check has changed it meanwhile, the agent asks again.
                let recorded = async {
                    service.records.ends.write(&mut kept, None).await?;
                    found_returned(&service, &kept, None).await
                };
                if let Err(why) = recorded.await {
                    tracing::warn!(
                        %cn,
                        migration = %kept.row.migration,
                        reason = %why,
                        "cannot record the alarm for a node that is back; its agent asks again"
                    );
                }
            }
        }
        let over = over(&service, &known, &replaced).await?;
        known.extend(replaced.iter().filter(|id| !known.contains(id)).copied().collect::<Vec<_>>());
        let unknown = open.iter().map(|it| it.migration).filter(|id| !known.contains(id));
        let unknown: Vec<Uuid> = unknown.collect();
        if !unknown.is_empty() {
            let named = unknown.iter().take(NAMED).map(Uuid::to_string).collect::<Vec<_>>();
            tracing::error!(
                %cn,
                count = unknown.len(),
                unknown = named.join(", "),
                "the store does not know migrations that a node has open, or the other node's agent does not answer \
                 about them; `sdc-migrate adopt VM` for each VM that `migration-service status` names as unknown"
            );
        }
        ok(&json!(Replaced { replaced, known, over }))
    };
    respond(answer.await)
}

/// A migration as its agent has it.
struct OpenMigration {
    migration: Uuid,
    /// The highest revision.
    revision: u64,
    nonce: Option<u32>,
}

fn open_migration(text: &str) -> Result<OpenMigration, Refused> {
    let mut words = text.split('.');
    let migration = uuid(words.next().unwrap_or_default())?;
    let revision = words.next().and_then(|it| it.parse().ok());
    let revision = revision.ok_or_else(|| Refused::parameter("open", "Invalid revision"))?;
    // The node of the other copy comes third: the record knows it.
    let nonce = words.nth(1).filter(|it| !it.is_empty()).map(str::parse).transpose();
    let nonce = nonce.map_err(|_| Refused::parameter("open", "Invalid nonce"))?;
    Ok(OpenMigration { migration, revision, nonce })
}

/// Compares the records of these migrations with what the agents of the other copies received; each agent is asked
/// once. What an agent says of the node that asks is kept as a claim, and says nothing about its copy.
/// Returns those of which it is unknown what was received, and those of which the store is older.
async fn compared(service: &Service, cn: Uuid, ids: &[Uuid]) -> Result<Vec<Uuid>, Refused> {
    let mut by_other: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
    for id in ids {
        let Some(Stored { record, .. }) = service.records.get(*id).await? else { continue };
        if is_over(&record) || !is_on(&record, cn) {
            continue;
        }
        let end = if record.source_server_uuid == cn { End::Target } else { End::Source };
        if let Some(other) = node_of(&record, end).filter(|_| !record.intent.is_dead(end)) {
            by_other.entry(other).or_default().push(*id);
        }
    }
    let asked = stream::iter(by_other).map(|(other, ids)| async move {
        let open = match service.is_revoked(other) {
            true => Some(Vec::new()),
            false => service.agents.open(other).await.ok(),
        };
        (other, ids, open)
    });
    let mut silent = Vec::new();
    for (other, ids, open) in asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        let Some(open) = open else {
            silent.extend(ids.iter().filter(|_| !service.contacts.is_compared(other)));
            continue;
        };
        for it in open.into_iter().filter(|it| ids.contains(&it.migration)) {
            service.claimed(other, &it).await?;
            // As it is after the answer.
            let Some(mut kept) = service.records.get(it.migration).await? else { continue };
            if kept.record.intent.is_behind(it.revision, it.nonce) {
                silent.push(it.migration);
                is_older(service, &mut kept, other).await;
            }
        }
    }
    Ok(silent)
}

/// Records that an agent received more than the store has, once.
async fn is_older(service: &Service, kept: &mut Stored, by: Uuid) {
    if kept.record.intent.older.is_none()
        && let Err(why) = found_older(service, kept, by, None).await
    {
        tracing::warn!(
            reason = %why,
            "cannot record that the store is older than the agents: the alarm is missing"
        );
    }
}

/// Returns those that are over, but for copies that were replaced, which are watched. The others' agents did not
/// receive the end, or it was not sent: a begin that chose no node is given up without a round.
async fn over(service: &Service, known: &[Uuid], replaced: &[Uuid]) -> Result<Vec<Uuid>, Refused> {
    let mut over = Vec::new();
    for id in known.iter().filter(|id| !replaced.contains(id)) {
        if service.records.get(*id).await?.is_none_or(|kept| is_over(&kept.record)) {
            over.push(*id);
        }
    }
    Ok(over)
}

/// Returns those that the service knows or knew. Of a record that is older than what the agent received it knows
/// nothing, nor does it answer about one that has other nodes.
async fn known(service: &Service, cn: Uuid, open: &[OpenMigration]) -> Result<Vec<Uuid>, Refused> {
    let ids: Vec<Uuid> = open.iter().map(|it| it.migration).collect();
    let mut known = service.records.known(&ids).await?;
    for OpenMigration { migration: id, revision, nonce, .. } in open {
        let Some(mut kept) = service.records.get(*id).await? else { continue };
        if !is_on(&kept.record, cn) {
            known.retain(|it| it != id);
        } else if kept.record.intent.is_behind(*revision, *nonce) {
            known.retain(|it| it != id);
            is_older(service, &mut kept, cn).await;
        }
    }
    Ok(known)
}
