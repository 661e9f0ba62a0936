// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a process left that died, and what did not succeed: tickets are given back, creations that were cut
//! off fail, VMAPI is asked again to destroy storage VMs, snapshots and roll-backs go on.

use store::{Batch, Expect, Fence};

use super::follow::Trouble;
use super::parts::Service;
use super::state::{Count, LATEST, Right};
use crate::records::{Doing, Work, of_storage, written};

impl Service {
    /// Ends the work that earlier runs of this instance left; with the lease also that of others whose
    /// tickets have expired. Without the lease, work is left to its holder shortly before it expires.
    /// What another service does not answer for is left to the next pass.
    pub async fn tidy(&self, fence: Option<&Fence>) -> Result<(), Trouble> {
        for left in self.shared.records.all_work().await? {
            let is_own = left.value.instance == self.shared.settings.instance;
            let is_over =
                fence.is_some() && left.value.expires_at < daemon::wall::now().as_second();
            let right = match fence {
                Some(fence) if is_own || is_over => Right::Lease(fence),
                None if is_own => Right::Own(left.value.expires_at),
                _ => continue,
            };
            if !right.holds() {
                continue;
            }
            let Some(_busy) = self.works.busy_with(&left.key) else { continue };
            match self.end(&left.value, right).await {
                Ok(false) => {}
                Ok(true) => {
                    let records = &self.shared.records;
                    let mut batch = Batch::new();
                    fence.into_iter().for_each(|fence| batch.require(fence));
                    let expect = Expect::Etag(left.etag);
                    records.work.delete_in(&mut batch, &left.key, expect).map_err(of_storage)?;
                    written(records.store.commit(batch).await.map(drop), ())?;
                    // Snapshots and roll-backs go on here as a matter of course.
                    if left.value.doing != Doing::Snapshots {
                        self.shared.counts.add(Count::Recovered);
                        let (volume, doing) = (&left.value.volume, left.value.doing);
                        tracing::info!(volume, work = %doing, "finished work that an earlier run left");
                    }
                }
                Err(Trouble::Peer(error)) => {
                    tracing::warn!(%error, volume = left.value.volume, "cannot finish work that an earlier run left; it is tried again");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_young(&self, work: &Work) -> bool {
        let life = i64::try_from(self.shared.settings.ticket_life.as_secs()).unwrap_or_default();
        daemon::wall::now().as_second() < work.expires_at - life + LATEST
    }

    /// Ends it; returns whether it is over.
    async fn end(&self, work: &Work, right: Right<'_>) -> Result<bool, Trouble> {
        match work.doing {
            Doing::Snapshots => return self.snapshots.settle(&work.volume, right).await,
            Doing::Create => self.creates.end(&work.volume, right.fence()).await?,
            Doing::Delete => self.deletes.end(&work.volume, right.fence()).await?,
            // One write did it, or none.
            Doing::Rename => {}
        }
        let tickets = self.shared.peers.tickets_of(&work.ticket_id, work.expires_at).await?;
        for ticket in &tickets {
            self.shared.peers.release_ticket(ticket).await?;
        }
        // Its ticket may yet come: the request for it was sent shortly before the process died.
        Ok(!tickets.is_empty() || !self.is_young(work))
    }
}
