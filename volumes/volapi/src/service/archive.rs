// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What failed long ago goes to the archive (RFD 26 §Reaping failed volumes).

use std::sync::Arc;

use store::{Batch, Expect, Fence, Versioned};

use super::follow::Trouble;
use super::state::{Count, Shared};
use crate::records::{Failure, all, got, of_storage, written};
use volumes_core::facts::{Fact, VmState};
use volumes_core::refused::Refused;
use volumes_core::volume::{State, Volume};

/// Takes failed volumes to the archive.
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
}

impl Archive {
    pub(super) fn new(shared: &Arc<Shared>) -> Archive {
        Archive { shared: Arc::clone(shared) }
    }

    /// Notes since when volumes are failed, and archives those that have been for longer than `failed_keep`. One
    /// whose storage VM may come back stays: it still has its data.
    /// Fails if the storage does not answer. A storage VM that cannot be asked about waits for the next pass.
    pub async fn take_old(&self, fence: Option<&Fence>) -> Result<(), Trouble> {
        let Some(keep) = self.shared.settings.failed_keep else { return Ok(()) };
        let keep = i64::try_from(keep.as_secs()).unwrap_or(i64::MAX);
        let now = daemon::wall::now().as_second();
        let failures = &self.shared.records.failures;
        for failure in all(failures, &[]).await? {
            let volume = self.shared.records.volume(&failure.key, None).await?;
            if volume.is_none_or(|volume| volume.value.state() != State::Failed) {
                let mut batch = required(fence);
                let expect = Expect::Etag(failure.etag);
                failures.delete_in(&mut batch, &failure.key, expect).map_err(of_storage)?;
                written(self.shared.records.store.commit(batch).await.map(drop), ())?;
            }
        }
        for volume in self.shared.records.volumes_with(&[("state", State::Failed.name())]).await? {
            let Some(noted) = got(failures.get(&volume.key).await)? else {
                let failure = Failure { since: now };
                let mut batch = required(fence);
                failures
                    .put_in(&mut batch, &volume.key, Expect::Absent, &failure)
                    .map_err(of_storage)?;
                written(self.shared.records.store.commit(batch).await.map(drop), ())?;
                continue;
            };
            if now - noted.value.since < keep {
                continue;
            }
            match self.shared.peers.vm(volume.value.vm_uuid()).await {
                Ok(known) if is_lost(&known) => self.put_away(&volume, &noted, fence).await?,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, volume = volume.key, "cannot archive a volume; it is tried again");
                }
            }
        }
        Ok(())
    }

    async fn put_away(
        &self,
        volume: &Versioned<Volume>,
        noted: &Versioned<Failure>,
        fence: Option<&Fence>,
    ) -> Result<(), Refused> {
        let mut batch = required(fence);
        let records = &self.shared.records;
        records.remove(&mut batch, &volume.value, volume.etag.clone()).await?;
        records
            .archive
            .put_in(&mut batch, &volume.key, Expect::Anything, &volume.value)
            .map_err(of_storage)?;
        let expect = Expect::Etag(noted.etag.clone());
        records.failures.delete_in(&mut batch, &noted.key, expect).map_err(of_storage)?;
        if written(records.store.commit(batch).await.map(drop), ())?.is_some() {
            self.shared.counts.add(Count::Archived);
            tracing::info!(volume = volume.key, "archived a failed volume");
        }
        Ok(())
    }
}

/// Returns a batch that is written only while the lease is held.
fn required(fence: Option<&Fence>) -> Batch {
    let mut batch = Batch::new();
    fence.into_iter().for_each(|fence| batch.require(fence));
    batch
}

/// Returns true if nothing of the volume can come back.
fn is_lost(known: &Fact) -> bool {
    match known {
        Fact::Gone => true,
        Fact::Vm(vm) => matches!(vm.state, VmState::Destroyed | VmState::Failed),
        Fact::Nothing => false,
    }
}
