// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `GET /agents/CN/replaced?open=ID.REVISION.OTHER.NONCE,…`: what the agent of a node that comes back asks before
//! anything else, and what one asks that receives no request. The store may be lost, or older than what the other
//! copy's agent has received: there is no answer about a copy before that agent has answered, too.

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Extension, Router};
use daemon::http::{Body, Table, endpoint, table};
use futures_util::future::join_all;
use http::Response;
use sdc_clients::identity::Identity;
use sdc_clients::restify::Shape;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::answer::{ok, respond, uuid};
use crate::ends::{Replaced as Row, Sight};
use crate::records::Stored;
use crate::refused::Refused;
use crate::runner::{found_older, found_returned, node_of};
use crate::state::Service;
use migration_core::dead::Contact;
use migration_core::intent::End;
use migration_core::protocol::Replaced;
use migration_core::record::{is_on, is_over};

/// What agents ask, which have proved which node they are on.
pub const OF_AGENTS: Table<Service> =
    table(&[endpoint("/agents/{cn}/replaced", "GET", || get(replaced))
        .about("the node's agent: which of its open migrations were replaced, are known, are over")
        .shapes(&[Shape::get(&["open"], "")])]);

/// Returns the route for agents.
pub fn routes(service: Service) -> Router {
    daemon::http::routes(&OF_AGENTS).with_state(service)
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
        service.contacts.note(cn, Contact::Question, service.clock.now()).await;
        let open = open.open.split(',').filter(|it| !it.is_empty());
        let open = open.map(open_migration).collect::<Result<Vec<_>, _>>()?;
        let mut known = known(&service, cn, &open).await?;
        let mut silent = Vec::new();
        let asked = join_all(open.iter().map(|it| compared(&service, cn, it))).await;
        for (it, compared) in open.iter().zip(asked) {
            if !compared? {
                silent.push(it.migration);
            }
        }
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
        let unknown = open.iter().map(|it| &it.migration).filter(|id| !known.contains(id));
        let unknown = unknown.map(Uuid::to_string).collect::<Vec<_>>().join(", ");
        if !unknown.is_empty() {
            tracing::error!(
                %cn,
                unknown,
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
    /// The node of the other copy.
    other: Option<Uuid>,
}

fn open_migration(text: &str) -> Result<OpenMigration, Refused> {
    let mut words = text.split('.');
    let migration = uuid(words.next().unwrap_or_default())?;
    let revision = words.next().and_then(|it| it.parse().ok());
    let revision = revision.ok_or_else(|| Refused::parameter("open", "Invalid revision"))?;
    let mut next = || words.next().filter(|it| !it.is_empty());
    let other = next().map(uuid).transpose()?;
    let nonce = next().map(str::parse).transpose();
    let nonce = nonce.map_err(|_| Refused::parameter("open", "Invalid nonce"))?;
    Ok(OpenMigration { migration, revision, nonce, other })
}

/// Compares the store with what the agent of the other copy received. One that was ordered to be used instead of the
/// copy of the asking node has replaced it, whatever the store has lost; both nodes have to name each other.
/// Returns false where it is unknown what it received.
async fn compared(service: &Service, cn: Uuid, theirs: &OpenMigration) -> Result<bool, Refused> {
    let id = theirs.migration;
    let record = service.records.get(id).await?.map(|kept| kept.record);
    if record.as_ref().is_some_and(|it| is_over(it) || !is_on(it, cn)) {
        return Ok(true);
    }
    let end = record.as_ref().map(|it| match it.source_server_uuid == cn {
        true => End::Target,
        false => End::Source,
    });
    let is_dead = record.as_ref().zip(end).is_some_and(|(it, end)| it.intent.is_dead(end));
    let by_record = record.as_ref().zip(end).and_then(|(it, end)| node_of(it, end));
    let Some(other) = by_record.or(theirs.other).filter(|_| !is_dead) else { return Ok(true) };
    let Ok(open) = service.agents.open(other).await else {
        return Ok(record.is_none() || service.contacts.is_compared(other));
    };
    let Some(it) = open.into_iter().find(|it| it.migration == id) else { return Ok(true) };
    let mut record = service.records.get(id).await?; // as it is after the answer
    let is_behind = |kept: &Stored| kept.record.intent.is_behind(it.revision, it.nonce);
    if record.as_ref().is_some_and(|kept| !is_behind(kept)) {
        return Ok(true);
    }
    if let Some(kept) = record.as_mut().filter(|kept| kept.record.intent.older.is_none())
        && let Err(why) = found_older(service, kept, None).await
    {
        tracing::warn!(
            reason = %why,
            "cannot record that the store is older than the agents: the alarm is missing"
        );
    }
    if it.instead == Some(cn) && it.revision > theirs.revision {
        let (vm, now) = (it.vm, service.clock.now());
        tracing::error!(%cn, %vm, %other, "the store has lost that this node was declared dead; the other node's agent remembers it; this copy stays down");
        let row = Row {
            migration: id,
            end: it.end.other(),
            vm_uuid: vm,
            cn_uuid: cn,
            revision: it.revision,
            nonce: it.nonce,
            declared: now,
            returned: Some(now),
            sight: Sight::Unwell,
        };
        service.records.ends.keep(&row).await?;
    }
    Ok(record.is_none())
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
            if kept.record.intent.older.is_none()
                && let Err(why) = found_older(service, &mut kept, None).await
            {
                tracing::warn!(
                    reason = %why,
                    "cannot record that the store is older than the agents: the alarm is missing"
                );
            }
        }
    }
    Ok(known)
}
