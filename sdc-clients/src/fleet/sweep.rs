// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Removes old tombstones from `VMS`: no follower goes on from where one would be missed any more, and without an end
//! there would be one for each VM that ever was.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::error::FleetError;
use super::message::{Kind, Message};
use super::name::VMS;
use super::read::Fleet;
use super::reading::{Part, Received};

/// Tombstones that one sweep removes at most: each is a request.
const MOST: usize = 1000;

/// Removes the tombstones that are older than `age`, but for a node's last message, by which its next one is known to
/// follow; returns how many. A VM that came back in the meantime is left alone: a message is removed by its number,
/// and its VM's has another one.
///
/// # Errors
/// If the feed does not answer, or refuses.
pub async fn sweep(fleet: &Fleet, now: Timestamp, age: Duration) -> Result<usize, FleetError> {
    let all = fleet.latest(VMS, "vms.*.*", Part::Headers).await?;
    let is_old =
        |at: Timestamp| Duration::try_from(now.duration_since(at)).is_ok_and(|it| it >= age);
    let of_node = |it: &Received| Some((it.message.as_ref()?.target.cn.clone(), it.seq));
    // In the order of the stream.
    let last: BTreeMap<String, u64> = all.iter().filter_map(of_node).collect();
    let old = all.iter().filter(|it| {
        let is_removed = |message: &Message| {
            message.labels.kind == Kind::Delete && last.get(&message.target.cn) != Some(&it.seq)
        };
        it.message.as_ref().is_some_and(is_removed) && is_old(it.at)
    });
    let stream = fleet.jetstream.get_stream_no_info(VMS).await.map_err(FleetError::away)?;
    let mut removed = 0;
    for tombstone in old.take(MOST) {
        removed += usize::from(stream.delete_message(tombstone.seq).await.is_ok());
    }
    Ok(removed)
}
