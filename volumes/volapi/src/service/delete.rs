// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `DELETE /volumes/:uuid`.
//!
//! VMAPI takes minutes to destroy a storage VM. The volume is `deleting` meanwhile and keeps its record, so that a
//! second request, or an instance that takes over, goes on where the first one was.

use std::sync::Arc;

use sdc_clients::Error;
use store::{Batch, Expect, Fence};

use super::follow::Trouble;
use super::references::by_age;
use super::state::{Count, Right, Shared, users};
use super::works::{NoTicket, Works};
use crate::peers::{named, status_of};
use crate::records::{Doing, Tries, written};
use volumes_core::facts::{Fact, VmState};
use volumes_core::refused::Refused;
use volumes_core::requests::One;
use volumes_core::volume::{State, Volume};

/// Returns another service's refusal, to be passed on.
pub(super) fn passed_on(error: &Error) -> Refused {
    let code = error.code().map(str::to_owned);
    Refused::Peer { status: status_of(error), code, message: error.message().to_owned() }
}

/// Deletes volumes.
#[derive(Debug)]
pub struct Deletes {
    shared: Arc<Shared>,
    works: Arc<Works>,
}

impl Deletes {
    pub(super) fn new(shared: &Arc<Shared>, works: &Arc<Works>) -> Deletes {
        Deletes { shared: Arc::clone(shared), works: Arc::clone(works) }
    }

    /// Deletes a volume: at once where its storage VM is gone; else when VMAPI has destroyed that VM.
    /// Fails with the reason why it is not deleted. Where VMAPI's refusal is the reason, the volume stays in state
    /// deleting, and VMAPI is asked again later.
    pub async fn delete(&self, asked: &One) -> Result<(), Refused> {
        let absent = || Refused::NoVolume(asked.uuid.clone());
        let found = self.shared.records.volume(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        let volume = found.ok_or_else(absent)?.value;
        let held =
            self.works.hold(Doing::Delete, &asked.uuid, volume.owner_uuid(), volume.name()).await;
        let held = held.map_err(|fault| match fault {
            NoTicket::Error(error) => Refused::DeleteTicket(named(&error)),
            NoTicket::Status(status) => Refused::DeleteTicketStatus(status),
            NoTicket::Storage(refused) => refused,
        })?;
        let outcome = self.delete_held(asked).await;
        // Work that was begun is ended by a later pass.
        let (is_done, outcome) = match outcome {
            Ok(()) => (true, Ok(())),
            Err(Ended::Refused(refused)) => (refused != Refused::StorageAway, Err(refused)),
            Err(Ended::Open(refused)) => (false, Err(refused)),
        };
        self.works.let_go(held, is_done).await;
        outcome
    }

    async fn delete_held(&self, asked: &One) -> Result<(), Ended> {
        let found = self.shared.records.volume(&asked.uuid, None).await?;
        let Some(found) = found else { return Ok(()) };
        if !asked.force {
            self.require_unused(&found.value).await?;
        }
        let known = self.shared.peers.vm(found.value.vm_uuid()).await;
        let known = known.map_err(|error| Ended::Refused(passed_on(&error)))?;
        if is_gone(&known) {
            self.remove_now(&asked.uuid).await?;
            self.shared.counts.add(Count::Deleted);
            return Ok(());
        }
        let marked =
            self.shared.records.change(&asked.uuid, |volume| volume.set_state(State::Deleting));
        let Some(volume) = marked.await? else { return Ok(()) };
        let deleted = self.shared.peers.delete_vm(volume.vm_uuid()).await;
        deleted.map_err(|error| Ended::Open(passed_on(&error)))?;
        if asked.force {
            self.release_all(&volume).await?;
        }
        self.shared.counts.add(Count::Deleted);
        Ok(())
    }

    /// Refuses if a live VM uses the volume, or one has reserved it.
    pub(super) async fn require_unused(&self, volume: &Volume) -> Result<(), Ended> {
        let live = self.shared.peers.live_among(&users(volume)).await;
        let mut vms = live.map_err(|error| Ended::Refused(passed_on(&error)))?;
        let of_it = [("volume_name", volume.name()), ("owner_uuid", volume.owner_uuid())];
        if volume.state().holds_name() {
            let reserved = self.shared.records.reservations_with(&of_it).await?;
            for vm in by_age(reserved) {
                if !vms.contains(&vm) {
                    vms.push(vm);
                }
            }
        }
        if vms.is_empty() {
            return Ok(());
        }
        let name = volume.name().to_owned();
        Err(Ended::Refused(Refused::InUse { name, vms }))
    }

    /// Removes the record of a volume and its reservations.
    async fn remove_now(&self, uuid: &str) -> Result<(), Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let Some(found) = self.shared.records.volume(uuid, None).await? else { return Ok(()) };
            let mut batch = Batch::new();
            self.shared.records.remove(&mut batch, &found.value, found.etag).await?;
            let committed = self.shared.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return self.release_all(&found.value).await;
            }
        }
    }

    /// Removes the reservations of a name that no volume has any more.
    async fn release_all(&self, volume: &Volume) -> Result<(), Refused> {
        let (owner, name) = (volume.owner_uuid(), volume.name());
        if self.shared.records.holder_of(owner, name).await?.is_some() {
            return Ok(());
        }
        let all = [("volume_name", name), ("owner_uuid", owner)];
        for reservation in self.shared.records.reservations_with(&all).await? {
            let gone =
                self.shared.records.reservations.delete(&reservation.key, Expect::Anything).await;
            written(gone, ())?;
        }
        Ok(())
    }

    /// Goes on with a delete that was cut off, or that VMAPI did not agree to; no further than the right lasts.
    pub(super) async fn end(&self, uuid: &str, right: Right<'_>) -> Result<(), Trouble> {
        let Some(volume) = self.shared.records.volume(uuid, None).await? else { return Ok(()) };
        if volume.value.state() != State::Deleting {
            return Ok(());
        }
        let vm = volume.value.vm_uuid();
        let known = self.shared.peers.vm(vm).await?;
        if !right.holds() {
            return Ok(());
        }
        if is_gone(&known) {
            return Ok(self.remove_deleting(uuid, right.fence()).await?);
        }
        Ok(self.shared.peers.delete_vm(vm).await?)
    }

    /// Removes the record of a volume, if it is in state deleting.
    async fn remove_deleting(&self, uuid: &str, fence: Option<&Fence>) -> Result<(), Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let Some(found) = self.shared.records.volume(uuid, None).await? else { return Ok(()) };
            if found.value.state() != State::Deleting {
                return Ok(());
            }
            let mut batch = Batch::new();
            fence.into_iter().for_each(|fence| batch.require(fence));
            self.shared.records.remove(&mut batch, &found.value, found.etag).await?;
            let committed = self.shared.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return Ok(());
            }
        }
    }
}

/// How a delete ended without success.
#[derive(Debug)]
pub(super) enum Ended {
    /// Nothing was begun.
    Refused(Refused),
    /// The volume is in state deleting, and VMAPI has not agreed.
    Open(Refused),
}

impl Ended {
    /// Returns the client's answer.
    pub(super) fn refused(self) -> Refused {
        match self {
            Ended::Refused(refused) | Ended::Open(refused) => refused,
        }
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Ended {
        Ended::Refused(refused)
    }
}

/// Returns true if nothing is left of the storage VM.
pub(super) fn is_gone(known: &Fact) -> bool {
    match known {
        Fact::Gone => true,
        Fact::Vm(vm) => vm.state == VmState::Destroyed,
        Fact::Nothing => false,
    }
}
