// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last step before a VM is stopped for a switch: what cannot be done is found while it runs.

use store::Fence;

use super::observe::Round;
use super::order::{Failed, Reported, order, order_doing, reported};
use super::{addresses, create};
use crate::begin::SWITCH_SECONDS;
use crate::records::Stored;
use crate::state::Service;
use migration_core::estimate::downtime;
use migration_core::intent::{End, Rehearsal};
use migration_core::protocol::What;
use migration_core::record::node_of;

/// Has the source's node plan the last sync on what both nodes have, compares its size with the room there is, and
/// keeps what was found. Refused is a switch that would keep the VM down for longer than was asked.
pub async fn rehearse(
    service: &Service,
    kept: &mut Stored,
    round: &Round,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let record = &kept.record;
    let object = round.object(End::Source).ok_or_else(create::unread)?;
    addresses::rehearse(service, object).await?;
    let source = record.source_server_uuid;
    let target = node_of(record, End::Target).ok_or_else(create::unread)?;
    let number = round.facts.unused_number(0);
    order(service, record, End::Target, What::Receive { from: source, image: None }).await?;
    let doing =
        order_doing(service, record, End::Source, What::Rehearse { number, to: target }).await?;
    let bytes = doing.progress.map(|progress| progress.total);
    let went = reported(doing)?;
    if went != Reported::Done {
        return Ok(went);
    }
    let report = service.agents.recent_node(target).await;
    let free = report.node().and_then(|node| node.free_bytes);
    if let (Some(bytes), Some(free)) = (bytes, free)
        && bytes > free
    {
        return Err(Failed::NoRoom(format!(
            "the last sync brings {bytes} bytes, and the target's node has {free} left"
        )));
    }
    let settings = service.settings.read().await?;
    let own = record.intent.bwlimit.map(|mbps| u64::from(mbps) * 125_000);
    let rate = settings.bytes_per_second(source).min(own.unwrap_or(u64::MAX));
    let is_up = round.facts.copy(End::Source).is_some_and(|copy| copy.power().running);
    // Where `zfs` does not tell, the last sync was as large as the one before.
    let expected = bytes.or(record.last_sync_size).unwrap_or(0);
    let downtime = if is_up { downtime(expected, rate, SWITCH_SECONDS) } else { 0 };
    if let Some(most) = record.intent.max_downtime.filter(|most| downtime > u64::from(*most)) {
        return Err(Failed::Fatal(format!(
            "the instance would be down for about {downtime} s, and --max-downtime allows {most} s; it runs on: sync \
             again, or switch with more"
        )));
    }
    kept.record.intent.rehearsed = Some(Rehearsal { bytes, downtime });
    service.records.write(kept, Some(fence)).await?;
    Ok(Reported::Done)
}
