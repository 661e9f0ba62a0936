// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `DELETE /volumes/:uuid`.

use sdc_clients::Error;
use store::{Batch, Expect};

use super::references::by_age;
use super::state::{Count, Service, users};
use super::tickets::NoTicket;
use crate::peers::{named, status_of};
use crate::records::{Doing, Tries, written};
use volumes_core::facts::{Known, VmState};
use volumes_core::refused::Refused;
use volumes_core::requests::One;
use volumes_core::volume::{State, Volume};

/// Returns another service's refusal, to be passed on.
pub(super) fn passed_on(error: &Error) -> Refused {
    let code = error.code().map(str::to_owned);
    Refused::Peer { status: status_of(error), code, message: error.message().to_owned() }
}

impl Service {
    /// Deletes a volume: at once where its storage VM is gone; else when VMAPI has destroyed that VM.
    ///
    /// # Errors
    /// Why it is not deleted. Where VMAPI's refusal is the reason, the volume stays in state deleting, and
    /// VMAPI is asked again later.
    pub async fn delete(&self, asked: &One) -> Result<(), Refused> {
        let absent = || Refused::NoVolume(asked.uuid.clone());
        let found = self.records.volume(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        let volume = found.ok_or_else(absent)?.value;
        let held = self.hold(Doing::Delete, &asked.uuid, volume.owner_uuid(), volume.name()).await;
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
        self.let_go(held, is_done).await;
        outcome
    }

    async fn delete_held(&self, asked: &One) -> Result<(), Ended> {
        let found = self.records.volume(&asked.uuid, None).await?;
        let Some(found) = found else { return Ok(()) };
        if !asked.force {
            self.require_unused(&found.value).await?;
        }
        let known = self.peers.vm(found.value.vm_uuid()).await;
        let known = known.map_err(|error| Ended::Refused(passed_on(&error)))?;
        if is_gone(&known) {
            self.remove_now(&asked.uuid).await?;
            self.counts.add(Count::Deleted);
            return Ok(());
        }
        let marked = self.records.change(&asked.uuid, |volume| volume.set_state(State::Deleting));
        let Some(volume) = marked.await? else { return Ok(()) };
        let told = self.peers.delete_vm(volume.vm_uuid()).await;
        told.map_err(|error| Ended::Open(passed_on(&error)))?;
        if asked.force {
            self.release_all(&volume).await?;
        }
        self.counts.add(Count::Deleted);
        Ok(())
    }

    /// Refuses if a live VM uses the volume, or one has reserved it.
    pub(super) async fn require_unused(&self, volume: &Volume) -> Result<(), Ended> {
        let live = self.peers.live_among(&users(volume)).await;
        let mut vms = live.map_err(|error| Ended::Refused(passed_on(&error)))?;
        let of_it = [("volume_name", volume.name()), ("owner_uuid", volume.owner_uuid())];
        if volume.state().holds_name() {
            let reserved = self.records.reservations_with(&of_it).await?;
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
    pub(super) async fn remove_now(&self, uuid: &str) -> Result<(), Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let Some(found) = self.records.volume(uuid, None).await? else { return Ok(()) };
            let mut batch = Batch::new();
            self.records.remove(&mut batch, &found.value, found.etag).await?;
            let committed = self.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return self.release_all(&found.value).await;
            }
        }
    }

    /// Removes the reservations of a name that no volume has any more.
    async fn release_all(&self, volume: &Volume) -> Result<(), Refused> {
        let (owner, name) = (volume.owner_uuid(), volume.name());
        if self.records.holder_of(owner, name).await?.is_some() {
            return Ok(());
        }
        let all = [("volume_name", name), ("owner_uuid", owner)];
        for reservation in self.records.reservations_with(&all).await? {
            let gone = self.records.reservations.delete(&reservation.key, Expect::Anything).await;
            written(gone, ())?;
        }
        Ok(())
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
    /// Returns what the client is told.
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
pub(super) fn is_gone(known: &Known) -> bool {
    match known {
        Known::Gone => true,
        Known::Vm(vm) => vm.state == VmState::Destroyed,
        Known::Nothing => false,
    }
}
