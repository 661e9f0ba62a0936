// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tasks that follow the feed.

use std::sync::Arc;
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::fleet::{Beats, Fleet, FleetEvent, Follower, Heard};
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;

/// A browser that hears nothing for a few of these is not connected any more.
const TICK: Duration = Duration::from_secs(5);
/// How often it is looked whether a feed that was lost is followed again.
const LOOK: Duration = Duration::from_secs(1);
/// Between two snapshots: a server that has lost the last event of a node on which nothing else happens is believed
/// that long.
const AUDIT: Duration = Duration::from_secs(600);
/// The VMs of all nodes.
const ALL: &str = "vms.*.*";

/// Follows the VMs, for ever.
pub(super) async fn vms(fleet: Fleet, board: Arc<Board>) {
    let mut follower = Follower::new(&fleet, ALL, Jitter::from_entropy()).audited(AUDIT);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_lost = true;
    let mut left = TICK;
    loop {
        // Both arms are cancel-safe.
        let event = tokio::select! {
            event = follower.next() => event,
            _ = looks.tick() => {
                if is_lost && follower.is_following() {
                    is_lost = false;
                    board.lost(None);
                }
                left = left.saturating_sub(LOOK);
                if left.is_zero() {
                    left = TICK;
                    board.tick();
                }
                continue;
            }
        };
        match event {
            FleetEvent::Synced => board.complete(follower.mirror().vms()),
            FleetEvent::Changed { vm, .. } => board.put(&vm),
            FleetEvent::Gone { vm, .. } => board.remove(&vm.cn, &vm.uuid),
            FleetEvent::Resync { cn } => board.hole(Some(&cn)),
            FleetEvent::Hole => board.hole(None),
            // What is shown is how the VMs are, not what happened.
            FleetEvent::Again => {}
            FleetEvent::Odd { subject } => {
                tracing::warn!(subject, "ignored a message of the feed that no agent wrote");
            }
            FleetEvent::Lost(error) => {
                is_lost = true;
                board.lost(Some(error.to_string()));
            }
        }
    }
}

/// Follows the heartbeats, for ever.
pub(super) async fn nodes(fleet: Fleet, board: Arc<Board>) {
    let mut beats = Beats::new(&fleet, Jitter::from_entropy());
    loop {
        match beats.next().await {
            Heard::Beat { beat, .. } => board.beat(*beat),
            Heard::Forgotten(cn) => board.forget(&cn),
            Heard::Lost(error) => tracing::warn!(reason = %error, "cannot read the heartbeats"),
        }
    }
}
