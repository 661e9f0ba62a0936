// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether the feed still has what it acknowledged: it may have been made anew, or have lost the end, or one message.

use std::collections::btree_map::Entry;

use sdc_clients::fleet::{CHANGES, FleetError, VMS, subject, subjects_of};
use tokio::time::Instant;

use super::publisher::Publisher;

/// Subjects whose last message is read in one check: events wait meanwhile.
const AT_ONCE: usize = 200;

impl Publisher<'_> {
    /// Returns whether `VMS` was made anew, or the node's VMs were taken from it: it has no marker of this node, the
    /// operator's, or the same one under another number.
    pub(super) async fn is_lost(&mut self) -> Result<bool, FleetError> {
        let marker = subject(&self.parts.cn_uuid, None);
        let Some(stored) = self.parts.feed.last(VMS, &marker).await? else { return Ok(true) };
        let Some(labels) = stored.labels.filter(|labels| !labels.compared) else { return Ok(true) };
        let seen = self.marker.replace((labels.at.clone(), stored.seq));
        Ok(seen.is_some_and(|(at, seq)| at == labels.at && seq != stored.seq))
    }

    /// Returns whether the feed lacks what it acknowledged, twice in a row: once, a server that is behind may have
    /// answered.
    pub(super) async fn has_lost(&mut self) -> Result<bool, FleetError> {
        Ok(self.is_cut_short().await? || self.lacks_some().await?)
    }

    /// Whether `VMS`, which readers read, has lacked the last message of a VM for too long.
    async fn lacks_some(&mut self) -> Result<bool, FleetError> {
        let unseen: Vec<_> = self.sent.unseen.keys().take(AT_ONCE).cloned().collect();
        for subject in unseen {
            let last = self.parts.feed.last(VMS, &subject).await?;
            let labels = last.and_then(|last| last.labels);
            let Entry::Occupied(mut known) = self.sent.unseen.entry(subject) else { continue };
            let unseen = known.get_mut();
            match labels.is_some_and(|labels| labels.at.has(&unseen.at)) {
                true => drop(known.remove()),
                false if unseen.is_lost() => return Ok(true),
                false => unseen.missed = unseen.missed.or_else(|| Some(Instant::now())),
            }
        }
        Ok(false)
    }

    /// Whether its last message of the node is an earlier one than that of the last acknowledgement.
    async fn is_cut_short(&mut self) -> Result<bool, FleetError> {
        let all = subjects_of(&self.parts.cn_uuid);
        // None: gone by age.
        let last = self.parts.feed.last(CHANGES, &all).await?.map_or(u64::MAX, |last| last.seq);
        let is_short = last < self.sent.newest;
        let was_short = std::mem::replace(&mut self.sent.is_short, is_short);
        Ok(is_short && was_short)
    }
}
