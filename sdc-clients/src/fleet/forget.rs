// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Takes a node off the feed that is gone for good.

use serde_json::json;

use super::error::FleetError;
use super::message::{Kind, Labels, Position, subject};
use super::name::{KV_NODES, VMS};
use super::read::Fleet;
use super::reading::Part;
use super::wire::Wire;

/// Publishes that each VM of a node is gone, then that what happened before is not completely known, and removes its
/// heartbeat. Returns how many VMs it had. To be done with the operator's key, and again where it was cut.
///
/// All of it is marked as compared: an agent that comes back on the node begins with a comparison, and what the node
/// has is on the feed again.
///
/// # Errors
/// If the feed does not answer, or refuses.
pub async fn forget(fleet: &Fleet, wire: &Wire, cn: &str) -> Result<usize, FleetError> {
    let all = fleet.latest(VMS, &subject(cn, Some("*")), Part::Whole).await?;
    let known = all.into_iter().filter_map(|received| received.message);
    let (mut forgotten, mut last) = (0, None);
    for message in known.filter(|message| message.target.vm.is_some()) {
        last = Some(message.labels.at.clone());
        if message.labels.kind == Kind::Delete {
            continue;
        }
        let labels = Labels::compared(Kind::Delete, message.labels.at);
        let own = subject(cn, message.target.vm.as_deref());
        let body = json!({ "type": "delete" }).to_string();
        wire.publish(&own, &labels, body.into(), message.seq).await?;
        forgotten += 1;
    }
    if let Some(at) = last {
        let marker = subject(cn, None);
        let before = wire.last(VMS, &marker).await?.map_or(0, |stored| stored.seq);
        let at = Position { seq: at.seq.max(before), ..at };
        let labels = Labels::compared(Kind::Resync, at);
        let body = json!({ "type": "resync" }).to_string();
        wire.publish(&marker, &labels, body.into(), 0).await?;
    }
    let heartbeat = format!("$KV.NODES.{cn}");
    if let Some(stored) = wire.last(KV_NODES, &heartbeat).await? {
        // An empty entry is no node's; a purge would reach no follower. It goes as the others do, by its age.
        wire.beat(cn, bytes::Bytes::new(), stored.seq).await?;
    }
    Ok(forgotten)
}
