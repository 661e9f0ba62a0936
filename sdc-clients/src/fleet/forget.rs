// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Takes a node off the feed that is gone for good, or what is there under its name.

use std::future::IntoFuture as _;
use std::time::Duration;

use async_nats::jetstream::stream::PurgeErrorKind;
use serde_json::json;
use tokio::time::sleep;

use super::error::FleetError;
use super::message::{Kind, Labels, Position, subject, subjects_of};
use super::name::{CHANGES, KV_NODES, VMS};
use super::read::Fleet;
use super::reading::Part;
use super::wire::Wire;

/// `VMS` takes what `CHANGES` has within moments; so often it is looked, and between two looks it is waited.
const LOOKS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(500);
/// The start of vminfod that the operator's markers name: no node's.
const OPERATOR: &str = "operator";

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
    let mut forgotten = 0;
    for message in known.filter(|it| it.target.vm.is_some() && it.labels.kind != Kind::Delete) {
        let labels = Labels::compared(Kind::Delete, message.labels.at);
        let own = subject(cn, message.target.vm.as_deref());
        let body = json!({ "type": "delete" }).to_string();
        wire.publish(&own, &labels, body.into(), message.seq).await?;
        forgotten += 1;
    }
    mark(fleet, wire, cn).await?;
    let heartbeat = format!("$KV.NODES.{cn}");
    if let Some(stored) = wire.last(KV_NODES, &heartbeat).await? {
        // An empty entry is no node's; a purge would reach no follower. It goes as the others do, by its age.
        wire.beat(cn, bytes::Bytes::new(), stored.seq).await?;
    }
    Ok(forgotten)
}

/// Removes all that the streams have under a node's name, whoever published it, and returns how many messages: the way
/// out where they are full of what it made up. Followers take a new snapshot; an agent that publishes the node finds the
/// operator's marker instead of its own and compares, so that what the node has is there again. To be done with the
/// operator's key, and again where it was cut.
///
/// # Errors
/// If the feed does not answer, or refuses.
pub async fn purge(fleet: &Fleet, wire: &Wire, cn: &str) -> Result<u64, FleetError> {
    let removed = removed(fleet, CHANGES, cn, None).await? + removed(fleet, VMS, cn, None).await?;
    let labels = mark(fleet, wire, cn).await?;
    for _ in 0..LOOKS {
        let marker = wire.last(VMS, &subject(cn, None)).await?;
        if let Some(marker) = marker.filter(|it| it.labels.as_ref() == Some(&labels)) {
            // What VMS was taking meanwhile came before the marker.
            return Ok(removed + self::removed(fleet, VMS, cn, Some(marker.seq)).await?);
        }
        sleep(PAUSE).await;
    }
    Err(FleetError::away(format!("{VMS} does not take what {CHANGES} has")))
}

async fn removed(
    fleet: &Fleet,
    stream: &str,
    cn: &str,
    before: Option<u64>,
) -> Result<u64, FleetError> {
    let handle = fleet.jetstream.get_stream_no_info(stream).await.map_err(FleetError::away)?;
    let purge = handle.purge().filter(subjects_of(cn));
    let purged = match before {
        Some(before) => purge.sequence(before).into_future().await,
        None => purge.into_future().await,
    };
    purged.map(|purged| purged.purged).map_err(|error| match error.kind() {
        PurgeErrorKind::JetStream(refused) => {
            FleetError::of_code(refused.error_code().0, &refused.to_string(), stream)
        }
        _ => FleetError::away(error),
    })
}

/// Publishes the operator's marker: what happened on the node before is not completely known.
async fn mark(fleet: &Fleet, wire: &Wire, cn: &str) -> Result<Labels, FleetError> {
    // No two have one number, so none is taken for one that is there.
    let seq = fleet.stream(CHANGES).await?.cached_info().state.last_sequence;
    let labels = Labels::compared(Kind::Resync, Position { epoch: OPERATOR.to_owned(), seq });
    let body = json!({ "type": "resync" }).to_string();
    wire.publish(&subject(cn, None), &labels, body.into(), 0).await?;
    Ok(labels)
}
