// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A volume gets another network, or loses one. VMAPI changes the NICs of its storage VM, which needs a restart
//! to see them: the change is written down first, and a pass orders the restart once the NICs are there.

use std::sync::Arc;

use sdc_clients::Error;
use serde_json::{Value, json};
use store::{Expect, Fence, Versioned};

use super::delete::passed_on;
use super::follow::Trouble;
use super::state::{Count, Shared, users};
use crate::records::{NetworkChange, all, of_storage, written};
use volumes_core::facts::{Fact, Nic, Vm, VmState};
use volumes_core::networks::{ChangeNetwork, Way, cut_off, is_last, is_on};
use volumes_core::refused::Refused;
use volumes_core::volume::{State, Volume};

/// A change that was written down is asked for within this time, in seconds, or never.
const ASKED: i64 = 600;
/// VMAPI's job takes at most this long, in seconds, and so do the tries to order the restart.
const DONE: i64 = 1800;

/// Changes the networks of volumes.
#[derive(Debug)]
pub struct NetworkChanges {
    shared: Arc<Shared>,
}

impl NetworkChanges {
    pub(super) fn new(shared: &Arc<Shared>) -> NetworkChanges {
        NetworkChanges { shared: Arc::clone(shared) }
    }

    /// Asks VMAPI to change the networks of a volume. Returns the volume as clients see it and, as
    /// `storage_vm_restarts`, whether its storage VM will restart: not where nothing is to be changed.
    pub async fn change(&self, asked: &ChangeNetwork) -> Result<Value, Refused> {
        let volume = self.ready_volume(asked).await?;
        let mut change = self.begin(asked, &volume).await?;
        // From here on no roll-back begins; one that began just before stops the storage VM.
        if let Err(refused) = self.ready_volume(asked).await {
            self.forget(&change).await?;
            return Err(refused);
        }
        let restarts = match self.ask_for_change(asked, &volume, &mut change).await {
            Ok(restarts) => restarts,
            Err(Ended::Open(refused)) => return Err(refused),
            Err(Ended::Refused(refused)) => {
                self.forget(&change).await?;
                return Err(refused);
            }
        };
        if !restarts {
            self.forget(&change).await?;
        }
        let mut shown = volume.shown();
        shown["storage_vm_restarts"] = restarts.into();
        Ok(shown)
    }

    async fn ready_volume(&self, asked: &ChangeNetwork) -> Result<Volume, Refused> {
        let found = self.shared.records.volume(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        let volume = found.ok_or_else(|| Refused::NoVolume(asked.uuid.clone()))?.value;
        if volume.state() == State::Ready {
            return Ok(volume);
        }
        Err(Refused::NotReady { name: volume.name().to_owned(), state: volume.state() })
    }

    /// Returns true while the networks of a volume are being changed.
    pub(super) async fn is_changing(&self, volume: &str) -> Result<bool, Refused> {
        match self.shared.records.network_changes.get(volume).await {
            Ok(_) => Ok(true),
            Err(store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(of_storage(error)),
        }
    }

    /// Writes the change down: from here on no other begins.
    async fn begin(
        &self,
        asked: &ChangeNetwork,
        volume: &Volume,
    ) -> Result<Versioned<NetworkChange>, Refused> {
        let change = NetworkChange {
            way: asked.way,
            network_uuid: asked.network_uuid.clone(),
            vm_uuid: volume.vm_uuid().to_owned(),
            began: daemon::wall::now().as_second(),
            asked: false,
            job_uuid: None,
        };
        let key = volume.uuid().to_owned();
        match self.shared.records.network_changes.put(&key, Expect::Absent, &change).await {
            Ok(etag) => Ok(Versioned { key, etag, value: change }),
            Err(store::Error::EtagConflict { .. }) => {
                Err(Refused::NetworksChanging(volume.name().to_owned()))
            }
            Err(error) => Err(of_storage(error)),
        }
    }

    async fn forget(&self, change: &Versioned<NetworkChange>) -> Result<(), Refused> {
        let expect = Expect::Etag(change.etag.clone());
        written(self.shared.records.network_changes.delete(&change.key, expect).await, ()).map(drop)
    }

    async fn rewrite(&self, change: &mut Versioned<NetworkChange>) -> Result<(), Refused> {
        let expect = Expect::Etag(change.etag.clone());
        let put = self.shared.records.network_changes.put(&change.key, expect, &change.value).await;
        change.etag = put.map_err(of_storage)?;
        Ok(())
    }

    /// Checks the change and asks VMAPI for it; returns whether there was anything to ask for.
    async fn ask_for_change(
        &self,
        asked: &ChangeNetwork,
        volume: &Volume,
        change: &mut Versioned<NetworkChange>,
    ) -> Result<bool, Ended> {
        let (network, way) = (&asked.network_uuid, asked.way);
        let known =
            self.shared.peers.vm(volume.vm_uuid()).await.map_err(|error| passed_on(&error))?;
        let Fact::Vm(vm) = known else {
            let (name, state) = (volume.name().to_owned(), volume.state());
            return Err(Refused::NotReady { name, state }.into());
        };
        if is_on(&vm.nics, network) == (way == Way::Attach) {
            return Ok(false);
        }
        match way {
            Way::Attach => {
                let one = [network.clone()];
                self.shared.peers.require_networks(volume.owner_uuid(), &one).await?;
            }
            Way::Detach if is_last(&vm.nics, network) => {
                return Err(Refused::LastNetwork(volume.name().to_owned()).into());
            }
            Way::Detach if asked.force => {}
            Way::Detach => self.require_reached(volume, network, &vm.nics).await?,
        }
        let going = |nic: &&Nic| nic.network.as_ref() == Some(network);
        let macs: Vec<&str> = vm.nics.iter().filter(going).map(|nic| nic.mac.as_str()).collect();
        change.value.asked = true;
        self.rewrite(change).await?;
        let vm = volume.vm_uuid();
        let job = match way {
            Way::Attach => self.shared.peers.add_nic(vm, network).await,
            Way::Detach => self.shared.peers.remove_nics(vm, &macs).await,
        };
        change.value.job_uuid = Some(job.map_err(Ended::of)?);
        // Where this is not written, the pass learns later whether the job failed.
        if let Err(error) = self.rewrite(change).await {
            tracing::warn!(%error, volume = change.key, "cannot record the job of a network change; the NICs show its outcome");
        }
        Ok(true)
    }

    /// Refuses if a live user would be cut off.
    async fn require_reached(
        &self,
        volume: &Volume,
        network: &str,
        nics: &[Nic],
    ) -> Result<(), Refused> {
        let users = self.shared.peers.networks_of(users(volume)).await;
        let users = users.map_err(|error| passed_on(&error))?;
        let vms = cut_off(network, nics, &users);
        if vms.is_empty() {
            return Ok(());
        }
        Err(Refused::InUse { name: volume.name().to_owned(), vms })
    }

    /// Returns the changes that are not over, for people.
    pub async fn shown(&self) -> Result<Value, Refused> {
        let found = all(&self.shared.records.network_changes, &[]).await?;
        let since = |second| jiff::Timestamp::from_second(second).unwrap_or_default().to_string();
        let shown = found.into_iter().map(|it| {
            let (volume, change) = (it.key, it.value);
            json!({"volume": volume, "way": change.way, "network_uuid": change.network_uuid,
                "vm_uuid": change.vm_uuid, "since": since(change.began)})
        });
        Ok(shown.collect())
    }

    /// Looks at each change that is not over: orders the restart of storage VMs whose NICs are changed, and gives
    /// changes up that did not happen.
    /// Fails if the storage does not answer. What another service does not answer for is left to the next pass.
    pub async fn end(&self, fence: Option<&Fence>) -> Result<(), Trouble> {
        for change in all(&self.shared.records.network_changes, &[]).await? {
            let age = daemon::wall::now().as_second() - change.value.began;
            let outcome = match self.outcome_of(&change.value, age).await {
                Err(error) if age > DONE => {
                    tracing::error!(%error, volume = change.key, "cannot restart the storage VM; giving the network change up");
                    Outcome::Failed
                }
                Err(error) => {
                    tracing::warn!(%error, volume = change.key, "cannot finish a network change; it is tried again");
                    Outcome::Open
                }
                Ok(outcome) => outcome,
            };
            match outcome {
                Outcome::Open => continue,
                Outcome::Done => self.shared.counts.add(Count::NetworksChanged),
                Outcome::Failed => {
                    let (network, vm) = (&change.value.network_uuid, &change.value.vm_uuid);
                    let volume = &change.key;
                    tracing::warn!(
                        volume,
                        network,
                        vm,
                        "gave up a network change: the storage VM may have its NICs of before; compare them with \
                         the volume's networks, and order the change again"
                    );
                    self.shared.counts.add(Count::NetworkChangesFailed);
                }
            }
            let mut batch = store::Batch::new();
            fence.into_iter().for_each(|fence| batch.require(fence));
            let expect = Expect::Etag(change.etag);
            self.shared
                .records
                .network_changes
                .delete_in(&mut batch, &change.key, expect)
                .map_err(of_storage)?;
            written(self.shared.records.store.commit(batch).await.map(drop), ())?;
        }
        Ok(())
    }

    /// Returns what became of a change that began so many seconds ago; orders the restart where it is due. A
    /// process that dies right after has the storage VM restarted once more.
    async fn outcome_of(&self, change: &NetworkChange, age: i64) -> Result<Outcome, Error> {
        if !change.asked {
            return Ok(if age > ASKED { Outcome::Failed } else { Outcome::Open });
        }
        let vm = match self.shared.peers.vm(&change.vm_uuid).await? {
            Fact::Gone => return Ok(Outcome::Failed),
            Fact::Nothing => return Ok(if age > DONE { Outcome::Failed } else { Outcome::Open }),
            Fact::Vm(vm) if is_ended(&vm) => return Ok(Outcome::Failed),
            Fact::Vm(vm) => vm,
        };
        if is_on(&vm.nics, &change.network_uuid) == (change.way == Way::Attach) {
            // One that is stopped sees its NICs when it is started.
            if vm.state != VmState::Stopped {
                self.shared.peers.reboot_vm(&change.vm_uuid).await?;
            }
            return Ok(Outcome::Done);
        }
        let job = match &change.job_uuid {
            Some(job) => self.shared.peers.job(job).await?,
            None => None,
        };
        let has_failed = job.is_some_and(|job| job.is_over() && job.execution != "succeeded");
        Ok(if has_failed || age > DONE { Outcome::Failed } else { Outcome::Open })
    }
}

fn is_ended(vm: &Vm) -> bool {
    matches!(vm.state, VmState::Destroyed | VmState::Failed)
}

/// What became of a change.
enum Outcome {
    Open,
    Done,
    Failed,
}

/// How a change ended without success.
enum Ended {
    /// Nothing was begun.
    Refused(Refused),
    /// VMAPI may have begun it.
    Open(Refused),
}

impl Ended {
    fn of(error: Error) -> Ended {
        let refused = passed_on(&error);
        if error.may_have_applied() { Ended::Open(refused) } else { Ended::Refused(refused) }
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Ended {
        Ended::Refused(refused)
    }
}
