// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI's tickets: no other service places a VM, or works on this one, meanwhile. A ticket names its migration, and is
//! released whatever dies: by the end of the operation, or by the next one in its queue.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use sdc_clients::cnapi::{DEFAULT_SERVER, ServerQuery, Ticket, TicketOrder};
use serde_json::{Map, Value, json};
use store::{Expect, Fence, Query};
use tokio::time::sleep;
use uuid::Uuid;

use super::order::Failed;
use crate::ends::rows;
use crate::peers::{MARK, OF_VM};
use crate::records::Stored;
use crate::state::Service;
use migration_core::record::Record;
use migration_core::time::Time;

/// So many nodes' tickets are asked for at once.
const AT_ONCE: usize = 16;
/// Between two tries to release what could not be released.
const AGAIN: Duration = Duration::from_secs(60);
/// How long a ticket is waited for in one round.
const WITHIN: Duration = Duration::from_secs(60);
/// How long a placement may take, a switch with its last sync, and a migration whose target CNAPI counts.
const PLACEMENT_MS: i64 = 5 * 60_000;
const SWITCH_MS: i64 = 7 * 3_600_000;
const RESERVATION_MS: i64 = 7 * 24 * 3_600_000;
/// The action of the tickets that CNAPI counts as VMs when it chooses a node.
const PROVISION: &str = "provision";
/// What it counts of them.
const COUNTED: [&str; 7] =
    ["owner_uuid", "max_physical_memory", "ram", "cpu_cap", "quota", "brand", "disks"];

/// What a ticket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A placement: one in the data centre at a time.
    Placement,
    /// A switch or a rollback.
    Switch,
}

/// Orders a ticket, waits until it is active, and notes it in the record. What a service that died has left in the same
/// queue is given back.
pub async fn take(
    service: &Service,
    kept: &mut Stored,
    fence: &Fence,
    what: For,
) -> Result<(), Failed> {
    let record = &kept.record;
    let vm = record.vm_uuid.to_string();
    let (server, scope, id, action, ms) = match what {
        For::Placement => {
            let (server, scope, id) = (DEFAULT_SERVER.to_owned(), "vm-allocate", "global");
            (server, scope, id.to_owned(), "allocate", PLACEMENT_MS)
        }
        For::Switch => (record.source_server_uuid.to_string(), OF_VM, vm, "migrate", SWITCH_MS),
    };
    let order = TicketOrder {
        scope: scope.to_owned(),
        id,
        expires_at: until(service, ms),
        action: Some(action.to_owned()),
        extra: Some(marked(record.id)),
    };
    let ticket = own(service, record.id, &server, &order).await?;
    kept.record.intent.ticket = Some(ticket);
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

/// Makes CNAPI count the target among the VMs of its node until VMAPI has it there: two begins do not fill one node
/// twice. No other program creates this VM there meanwhile.
pub async fn reserve(
    service: &Service,
    kept: &mut Stored,
    fence: &Fence,
    target: Uuid,
    vm: &Map<String, Value>,
) -> Result<(), Failed> {
    let record = &kept.record;
    let mut extra = marked(record.id);
    let counted =
        COUNTED.into_iter().filter_map(|name| Some((name.to_owned(), vm.get(name)?.clone())));
    extra.extend(counted);
    let order = TicketOrder {
        scope: OF_VM.to_owned(),
        id: record.vm_uuid.to_string(),
        expires_at: until(service, RESERVATION_MS),
        action: Some(PROVISION.to_owned()),
        extra: Some(extra),
    };
    let ticket = own(service, record.id, &target.to_string(), &order).await?;
    kept.record.intent.reservation = Some(ticket);
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

fn until(service: &Service, ms: i64) -> jiff::Timestamp {
    let until = service.clock.now().plus(ms).millis();
    jiff::Timestamp::from_millisecond(until).unwrap_or(jiff::Timestamp::MAX)
}

fn marked(migration: Uuid) -> Map<String, Value> {
    Map::from_iter([(MARK.to_owned(), json!(migration))])
}

/// Orders a ticket and waits until it is active.
async fn own(
    service: &Service,
    migration: Uuid,
    server: &str,
    order: &TicketOrder,
) -> Result<String, Failed> {
    let queued = service.peers.cnapi.queue_ticket(server, order).await?;
    let before = queued.queue.iter().filter(|ticket| ticket.uuid != queued.uuid);
    for left in before.filter(|ticket| is_left(ticket, migration)) {
        tracing::warn!(ticket = left.uuid, "released a CNAPI ticket that an earlier run left");
        release(service, &left.uuid).await;
    }
    if let Err(error) = service.peers.cnapi.wait_ticket(&queued.uuid, WITHIN).await {
        release(service, &queued.uuid).await;
        return Err(error.into());
    }
    Ok(queued.uuid)
}

/// Returns true for a ticket whose holder is gone: one of this migration, or an older one of its VM. Of a VM one
/// migration is open, and one service does its rounds.
fn is_left(ticket: &Ticket, migration: Uuid) -> bool {
    match ticket.other.get("extra").and_then(|extra| extra[MARK].as_str()) {
        Some(whose) => ticket.scope == OF_VM || whose == migration.to_string(),
        None => false,
    }
}

/// Gives the record's ticket back, if it has one. The next write of the record writes that, too.
pub async fn give_back(service: &Service, kept: &mut Stored) {
    if let Some(ticket) = kept.record.intent.ticket.take() {
        release(service, &ticket).await;
    }
}

/// Gives the room on the target's node back, if the record has some. The next write of the record writes that, too.
pub async fn free(service: &Service, kept: &mut Stored) {
    if let Some(ticket) = kept.record.intent.reservation.take() {
        release(service, &ticket).await;
    }
}

/// Gives back what migrations of this VM hold on any node and no record names, since a store has lost it. Returns
/// whether there was something.
pub async fn give_back_lost(service: &Service, vm: Uuid) -> Result<bool, Failed> {
    let query = ServerQuery { setup: Some(true), ..ServerQuery::default() };
    let servers = service.peers.cnapi.list_servers(&query).await?;
    let nodes: Vec<Uuid> = servers.into_iter().filter_map(|it| it.uuid.parse().ok()).collect();
    let released = stream::iter(nodes)
        .map(|cn| service.peers.release_left(cn, vm))
        .buffer_unordered(AT_ONCE)
        .fold(false, async |any, released| any || released);
    Ok(released.await)
}

/// Gives back what a record holds that goes without an end of its operation.
pub async fn let_go(service: &Service, record: &Record) {
    for ticket in [&record.intent.ticket, &record.intent.reservation].into_iter().flatten() {
        release(service, ticket).await;
    }
}

/// Gives a ticket back. If that fails it is tried again until it is released or has expired, whatever becomes of its
/// record.
async fn release(service: &Service, ticket: &str) {
    let Err(error) = released(service, ticket).await else { return };
    tracing::warn!(ticket, reason = %error, "cannot release a CNAPI ticket; trying again every minute");
    let until = json!({"until": service.clock.now().plus(RESERVATION_MS)});
    let kept = service.records.unreleased.put(ticket, Expect::Anything, &until).await;
    if let Err(error) = kept {
        tracing::warn!(ticket, reason = %error, "cannot store that a CNAPI ticket is not released; it stays until it expires");
    }
}

/// One that CNAPI does not have is released.
async fn released(service: &Service, ticket: &str) -> Result<(), sdc_clients::Error> {
    match service.peers.cnapi.release_ticket(ticket).await {
        Err(error) if error.is_not_found_resource() => Ok(()),
        done => done,
    }
}

/// Releases again and again what could not be released before.
pub async fn release_left(service: &Service) {
    loop {
        sleep(AGAIN).await;
        if let Err(error) = release_all(service).await {
            tracing::warn!(reason = %error, "cannot read which CNAPI tickets are not released; trying again");
        }
    }
}

async fn release_all(service: &Service) -> Result<(), store::Error> {
    let bucket = &service.records.unreleased;
    for row in rows(bucket, Query::all()).await? {
        let until = row.value["until"].as_str().and_then(Time::parse);
        let has_expired = until.is_none_or(|until| service.clock.now() > until);
        if has_expired || released(service, &row.key).await.is_ok() {
            bucket.delete(&row.key, Expect::Anything).await?;
        }
    }
    Ok(())
}
