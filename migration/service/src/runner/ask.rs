// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When a service begins to do the rounds it asks every agent which migrations are open: its store may be empty, or
//! older than what the agents received.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use migration_core::intent::End;
use migration_core::protocol::{Observe, Open};
use migration_core::record::is_on;
use sdc_clients::cnapi::ServerQuery;
use store::Fence;
use tokio::time::sleep;
use uuid::Uuid;

use super::ending::is_busy;
use super::observe::about;
use super::order::Failed;
use crate::records::Stored;
use crate::state::Service;
use crate::strangers::Stranger;

/// Those that did not answer are asked again after so long.
const PAUSE: Duration = Duration::from_secs(60);
/// So many nodes are asked at once.
const AT_ONCE: usize = 16;
/// So many of one node are kept: more than the VMs that a node has.
const MOST_OF_CN: usize = 1000;

/// Asks each agent until it has answered once, and those of strangers again and again.
pub async fn ask(service: &Service, fence: &Fence) {
    let mut answered: BTreeSet<Uuid> = BTreeSet::new();
    loop {
        match nodes(service).await {
            Ok(nodes) => {
                let due: Vec<Uuid> = nodes.difference(&answered).copied().collect();
                let asked = stream::iter(due).map(|cn| async move {
                    match of_node(service, fence, cn).await {
                        Ok(()) => Some(cn),
                        Err(why) => {
                            tracing::debug!(%cn, reason = %why, "an agent did not report its open migrations");
                            None
                        }
                    }
                });
                answered.extend(
                    asked
                        .buffer_unordered(AT_ONCE)
                        .filter_map(std::future::ready)
                        .collect::<Vec<_>>()
                        .await,
                );
            }
            Err(why) => {
                tracing::warn!(reason = %why, "cannot list the nodes to ask for open migrations; trying again")
            }
        }
        if let Err(why) = again(service).await {
            tracing::warn!(reason = %why, "cannot check the migrations that the store does not know; trying again");
        }
        sleep(PAUSE).await;
    }
}

/// The nodes that CNAPI has, and those of the records, which CNAPI may have forgotten.
async fn nodes(service: &Service) -> Result<BTreeSet<Uuid>, Failed> {
    let open = service.records.open_ones().await?;
    let of_records = open.iter().flat_map(|kept| {
        std::iter::once(kept.record.source_server_uuid).chain(kept.record.target_server_uuid)
    });
    let mut nodes: BTreeSet<Uuid> = of_records.collect();
    let listed = service.peers.cnapi.list_servers(&ServerQuery::default()).await?;
    nodes.extend(listed.iter().filter_map(|server| server.uuid.parse::<Uuid>().ok()));
    Ok(nodes)
}

async fn of_node(service: &Service, fence: &Fence, cn: Uuid) -> Result<(), Failed> {
    let open = service.agents.open(cn).await?;
    let ids: Vec<Uuid> = open.iter().map(|it| it.migration).collect();
    let known = service.records.known(&ids).await?;
    let strangers = service.records.strangers.all().await?;
    let mut room =
        MOST_OF_CN.saturating_sub(strangers.iter().filter(|it| it.cn_uuid == cn).count());
    for it in open {
        let Open { migration, vm, end, revision, nonce, .. } = it;
        if !known.contains(&migration) {
            if room == 0 {
                tracing::error!(
                    %cn,
                    %vm,
                    %migration,
                    "ignored an open migration: its agent has too many that the store does not know, and the status \
                     does not show this one; adopt those that it shows first, or revoke the agent's key"
                );
                return Ok(());
            }
            room -= 1;
            tracing::error!(
                %cn,
                %vm,
                %migration,
                "the store does not know a migration that an agent has open: none of its steps are executed until \
                 `sdc-migrate adopt VM`"
            );
            let (vm_uuid, cn_uuid, heard) = (vm, cn, service.clock.now());
            let stranger = Stranger { migration, end, vm_uuid, cn_uuid, heard, instead: None };
            service.records.strangers.keep(&stranger).await?;
        } else if let Some(mut kept) = service.records.get(migration).await?
            && kept.record.intent.is_behind(revision, nonce)
            && is_on(&kept.record, cn)
        {
            found_older(service, &mut kept, cn, Some(fence)).await?;
        }
        service.claimed(cn, &it).await?;
    }
    of_records(service, fence, cn, &ids).await?;
    service.contacts.compared(cn);
    Ok(())
}

/// Asks a node about the records on it of which nothing runs and which it does not have open: they may be over.
async fn of_records(
    service: &Service,
    fence: &Fence,
    cn: Uuid,
    open: &[Uuid],
) -> Result<(), Failed> {
    let mut records = service.records.open_ones().await?;
    records.retain(|it| is_on(&it.record, cn) && !open.contains(&it.record.id));
    records.retain(|it| !is_busy(&it.record) && it.record.intent.older.is_none());
    for mut kept in records {
        let end = if kept.record.source_server_uuid == cn { End::Source } else { End::Target };
        let asked = Observe { about: about(&kept.record, end), brief: true };
        if service.agents.observe(cn, &asked).await?.over {
            found_older(service, &mut kept, cn, Some(fence)).await?;
        }
    }
    Ok(())
}

/// Forgets the strangers that are known now, that their agents have no more, or whose node was revoked.
async fn again(service: &Service) -> Result<(), Failed> {
    let strangers = service.records.strangers.all().await?;
    let nodes: BTreeSet<Uuid> = strangers.iter().map(|it| it.cn_uuid).collect();
    for cn in nodes {
        if service.is_revoked(cn) {
            service.disbelieve(cn).await?;
            continue;
        }
        let of_cn: Vec<_> = strangers.iter().filter(|it| it.cn_uuid == cn).collect();
        let ids: Vec<Uuid> = of_cn.iter().map(|it| it.migration).collect();
        let known = service.records.known(&ids).await?;
        let open = service.agents.open(cn).await.ok();
        for stranger in of_cn {
            let id = stranger.migration;
            let has_gone =
                open.as_ref().is_some_and(|all| !all.iter().any(|it| it.migration == id));
            let is_settled = match stranger.instead {
                Some(other) => service.has_declared(id, stranger.end.other(), other).await?,
                None => known.contains(&id),
            };
            if has_gone || is_settled {
                service.records.strangers.forget(stranger).await?;
            }
        }
    }
    Ok(())
}

/// Writes into a record that a node's agent received a later revision, or knows that it is over: from now on it is not
/// acted on.
pub async fn found_older(
    service: &Service,
    kept: &mut Stored,
    cn: Uuid,
    fence: Option<&Fence>,
) -> Result<(), Failed> {
    let (vm, id) = (kept.record.vm_uuid, kept.record.id);
    tracing::error!(
        %vm,
        %id,
        %cn,
        "the node's agent has accepted a later order than the store has: no step of the migration is executed until \
         `sdc-migrate adopt VM`, or `sdc-migrate trust revoke CN` if it lies"
    );
    (kept.record.intent.older, kept.record.intent.older_by) = (Some(service.clock.now()), Some(cn));
    Ok(service.records.write(kept, fence).await?)
}
