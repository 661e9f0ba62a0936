// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The steps of a roll-back: the storage VM is stopped, its node takes the dataset back to the snapshot, and the
//! storage VM is started; then the volume is ready again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::follow::{Follower, Trouble};
use super::networks::NetworkChanges;
use super::state::{Count, Right, Shared};
use crate::peers::{Place, is_refusal};
use volumes_core::facts::{Fact, Vm, VmState};
use volumes_core::snapshot::Rollback;
use volumes_core::snapshots::{self as rules, Step};
use volumes_core::volume::{State, Volume};

/// VMAPI is asked once in this time to stop or to start a storage VM.
const AGAIN: Duration = Duration::from_secs(180);

/// Rolls volumes back.
#[derive(Debug)]
pub(super) struct Rollbacks {
    shared: Arc<Shared>,
    networks: Arc<NetworkChanges>,
    follower: Arc<Follower>,
    /// The volumes that are being rolled back: whether VMAPI was asked to start the storage VM, not to stop it, and
    /// when.
    asked: Mutex<BTreeMap<String, (bool, Instant)>>,
}

impl Rollbacks {
    pub(super) fn new(
        shared: &Arc<Shared>,
        networks: &Arc<NetworkChanges>,
        follower: &Arc<Follower>,
    ) -> Rollbacks {
        let (shared, networks) = (Arc::clone(shared), Arc::clone(networks));
        Rollbacks { shared, networks, follower: Arc::clone(follower), asked: Mutex::default() }
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<String, (bool, Instant)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is left to be done about a volume.
    pub(super) fn is_done(&self, volume: &str) {
        self.asked().remove(volume);
    }

    /// Returns true while storage VMs are being stopped or started.
    pub(super) fn is_waiting(&self) -> bool {
        let mut asked = self.asked();
        // Another instance may have ended what was asked for here.
        asked.retain(|_, (_, at)| at.elapsed() < AGAIN);
        !asked.is_empty()
    }

    /// The next step of a roll-back.
    pub(super) async fn go_on(
        &self,
        volume: &Volume,
        at: Place,
        rollback: &Rollback,
        vm: &Vm,
        right: Right<'_>,
    ) -> Result<bool, Trouble> {
        let (uuid, to) = (volume.uuid(), &*rollback.snapshot);
        match rules::step(rollback, vm.state) {
            Step::Wait => return Ok(false),
            // One that began in the same moment ends with a restart of the storage VM.
            Step::Stop if self.networks.is_changing(uuid).await? => return Ok(false),
            Step::Stop => return self.stop(volume, to, right).await,
            Step::Start => {
                if self.may_ask(uuid, true) {
                    self.shared.peers.start_vm(volume.vm_uuid()).await.inspect_err(|_| {
                        self.asked().remove(uuid);
                    })?;
                }
                return Ok(false);
            }
            Step::RollBack => match self.shared.peers.roll_back(at, to).await {
                Ok(left) => {
                    let done = |volume: &mut Volume| rules::rolled_back(volume, to, &left);
                    self.shared.records.change_under(right.fence(), uuid, done).await?;
                    self.shared.counts.add(Count::RolledBack);
                }
                Err(error) if is_refusal(&error) => self.give_up(uuid, to, &error, right).await?,
                Err(error) => return Err(error.into()),
            },
            Step::Ready => {
                let changed = self
                    .shared
                    .records
                    .change_under(right.fence(), uuid, |volume| rules::ready(volume, to))
                    .await?;
                if let Some(volume) = changed.filter(|volume| volume.state() == State::Ready) {
                    self.follower.use_reserved(&volume, right.fence()).await?;
                }
            }
            Step::Fail => {
                drop(self.shared.records.change_under(right.fence(), uuid, rules::lost).await?)
            }
        }
        Ok(true)
    }

    /// Has the storage VM stopped. If VMAPI refuses and it runs on, the roll-back is given up.
    async fn stop(&self, volume: &Volume, to: &str, right: Right<'_>) -> Result<bool, Trouble> {
        let (uuid, vm) = (volume.uuid(), volume.vm_uuid());
        if !self.may_ask(uuid, false) {
            return Ok(false);
        }
        match self.shared.peers.stop_vm(vm).await {
            Ok(()) => Ok(false),
            Err(error) if is_refusal(&error) => {
                let runs =
                    |known: &Fact| matches!(known, Fact::Vm(vm) if vm.state == VmState::Running);
                if runs(&self.shared.peers.vm(vm).await?) && right.holds() {
                    self.give_up(uuid, to, &error, right).await?;
                }
                Ok(true)
            }
            Err(error) => {
                self.asked().remove(uuid);
                Err(error.into())
            }
        }
    }

    async fn give_up(
        &self,
        volume: &str,
        to: &str,
        error: &sdc_clients::Error,
        right: Right<'_>,
    ) -> Result<(), Trouble> {
        tracing::warn!(
            %error,
            volume,
            "gave up a roll-back: the volume keeps its data as it is; order the roll-back again"
        );
        let why = error.message();
        self.shared
            .records
            .change_under(right.fence(), volume, |volume| rules::gave_up(volume, to, why))
            .await?;
        Ok(())
    }

    /// Returns true, once in a while, if VMAPI is to be asked to stop or to start the storage VM.
    fn may_ask(&self, volume: &str, start: bool) -> bool {
        let mut asked = self.asked();
        let is_recent = |(what, at): &(bool, Instant)| *what == start && at.elapsed() < AGAIN;
        if asked.get(volume).is_some_and(is_recent) {
            return false;
        }
        asked.insert(volume.to_owned(), (start, Instant::now()));
        true
    }
}
