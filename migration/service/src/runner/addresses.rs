// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VM's addresses are reserved in NAPI while the VM moves: NAPI then gives them to no other NIC.

use std::net::IpAddr;
use std::time::Duration;

use migration_core::journal::End;
use migration_core::protocol::Observe;
use sdc_clients::http::Precondition;
use sdc_clients::napi::IpUpdate;
use serde_json::{Map, Value};

use super::observe::{about, is_old, node_of};
use super::order::Failed;
use crate::peers::addresses;
use crate::records::Stored;
use crate::state::Service;
use store::Fence;

/// A request whose answer did not come is done after so many milliseconds, or never. NAPI's own tries took up to 13 s.
const LATEST: i64 = 120_000;

/// Reserves the addresses of the VM. What is reserved already was not reserved here, and stays. The record names an
/// address before it is reserved, and until when that may happen; an agent has accepted the revision that names it, so
/// that a store which has lost the name is known to be older.
pub async fn reserve(
    service: &Service,
    kept: &mut Stored,
    object: &Map<String, Value>,
    fence: &Fence,
) -> Result<(), Failed> {
    let unheard = kept.record.journal.reserves_until;
    let (mut free, mut is_new) = (Vec::new(), false);
    for address in addresses(object) {
        let there =
            service.peers.napi.get_ip(&address.network_uuid.to_string(), address.ip).await?;
        if there.value.reserved {
            continue;
        }
        if !kept.record.reserved_nics.contains(&address) {
            kept.record.reserved_nics.push(address.clone());
            is_new = true;
        }
        free.push((address, there.etag));
    }
    if is_new {
        kept.raise();
    }
    for (nth, (address, etag)) in free.into_iter().enumerate() {
        kept.record.journal.reserves_until = Some(service.clock.now().plus(LATEST));
        service.records.write(kept, Some(fence)).await?;
        if is_new && nth == 0 {
            accepted(service, kept).await?;
        }
        set(service, &address.network_uuid.to_string(), address.ip, true, etag).await?;
    }
    kept.record.journal.reserves_until = unheard;
    kept.record.journal.reserved = true;
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

/// An agent accepts the record's revision.
async fn accepted(service: &Service, kept: &Stored) -> Result<(), Failed> {
    for end in [End::Target, End::Source] {
        let Some(cn) = node_of(&kept.record, end) else { continue };
        let asked = Observe { about: about(&kept.record, end) };
        match service.agents.observe(cn, &asked).await {
            Err(error) if is_old(&error) => return Err(Failed::Lost),
            Err(_) if end == End::Target => {} // the source may be dead, or the target: one of them knows
            observed => return observed.map(drop).map_err(Failed::from),
        }
    }
    Ok(())
}

/// Removes the reservations that this migration made, when none can be made any more. The VM runs already.
pub async fn unreserve(service: &Service, kept: &mut Stored, fence: &Fence) -> Result<(), Failed> {
    if let Some(until) = kept.record.journal.reserves_until {
        let left = until.since(service.clock.now()).clamp(0, LATEST);
        tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
    }
    for address in &kept.record.reserved_nics {
        let network = address.network_uuid.to_string();
        let there = match service.peers.napi.get_ip(&network, address.ip).await {
            Err(error) if error.is_not_found_resource() => continue, // the network is gone
            there => there?,
        };
        if there.value.reserved {
            set(service, &network, address.ip, false, there.etag).await?;
        }
    }
    kept.record.reserved_nics.clear();
    kept.record.journal.reserved = false;
    kept.record.journal.reserves_until = None;
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

async fn set(
    service: &Service,
    network: &str,
    ip: IpAddr,
    reserved: bool,
    etag: Option<String>,
) -> Result<(), Failed> {
    let condition = etag.map_or(Precondition::None, Precondition::IfMatch);
    let update = IpUpdate { reserved: Some(reserved) };
    service.peers.napi.update_ip(network, ip, &update, condition).await?;
    Ok(())
}
