// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which VMs use a volume, and which will.

use std::sync::Arc;

use serde_json::Value;
use store::{Batch, Expect, Versioned};
use uuid::Uuid;

use super::follow::Follower;
use super::state::{Shared, users};
use crate::records::{Tries, of_storage, written};
use volumes_core::refused::Refused;
use volumes_core::requests::{Reference, ReservationFilter, Reserve};
use volumes_core::reservation::Reservation;
use volumes_core::volume::State;

/// The users of volumes.
#[derive(Debug)]
pub struct References {
    shared: Arc<Shared>,
    follower: Arc<Follower>,
}

impl References {
    pub(super) fn new(shared: &Arc<Shared>, follower: &Arc<Follower>) -> References {
        References { shared: Arc::clone(shared), follower: Arc::clone(follower) }
    }

    /// Returns the VMs that use a volume.
    /// Fails if there is no such volume, and those of the storage.
    pub async fn of(&self, uuid: &str) -> Result<Value, Refused> {
        let found = self.shared.records.volume(uuid, None).await?;
        let found = found.ok_or_else(|| Refused::NoVolume(uuid.to_owned()))?;
        Ok(users(&found.value).into())
    }

    /// Adds a VM to those that use the volume; its reservations of it go.
    pub async fn add(&self, asked: &Reference) -> Result<(), Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let found = self.shared.records.volume(&asked.uuid, Some(&asked.owner_uuid)).await?;
            let found = found.ok_or_else(|| Refused::NoVolume(asked.uuid.clone()))?;
            let mut volume = found.value;
            let mut batch = Batch::new();
            let (owner, name) = (volume.owner_uuid().to_owned(), volume.name().to_owned());
            for old in self.reserved(&asked.vm_uuid, &owner, &name).await? {
                let expect = Expect::Etag(old.etag);
                self.shared
                    .records
                    .reservations
                    .delete_in(&mut batch, &old.key, expect)
                    .map_err(of_storage)?;
            }
            volume.add_ref(&asked.vm_uuid);
            self.shared
                .records
                .volumes
                .put_in(&mut batch, &asked.uuid, Expect::Etag(found.etag), &volume)
                .map_err(of_storage)?;
            let committed = self.shared.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return Ok(());
            }
        }
    }

    /// Removes a VM from those that use the volume, if it is one of them.
    pub async fn remove(&self, asked: &Reference) -> Result<(), Refused> {
        let absent = || Refused::NoVolume(asked.uuid.clone());
        self.shared
            .records
            .volume(&asked.uuid, Some(&asked.owner_uuid))
            .await?
            .ok_or_else(absent)?;
        let remove = |volume: &mut volumes_core::volume::Volume| {
            volume.remove_ref(&asked.vm_uuid);
        };
        self.shared.records.change(&asked.uuid, remove).await?.map(drop).ok_or_else(absent)
    }

    /// Reserves a volume for a VM. Older reservations of the two go; a volume that is ready has the VM
    /// among its users from then on.
    pub async fn reserve(&self, asked: &Reserve) -> Result<Value, Refused> {
        let made = Reservation {
            create_timestamp: daemon::wall::now().as_millisecond(),
            job_uuid: asked.job_uuid.clone(),
            owner_uuid: asked.owner_uuid.clone(),
            uuid: Uuid::new_v4().to_string(),
            vm_uuid: asked.vm_uuid.clone(),
            volume_name: asked.volume_name.clone(),
        };
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let (owner, name) = (&*asked.owner_uuid, &*asked.volume_name);
            let mut batch = Batch::new();
            let reservations = &self.shared.records.reservations;
            reservations
                .put_in(&mut batch, &made.uuid, Expect::Absent, &made)
                .map_err(of_storage)?;
            for old in self.reserved(&asked.vm_uuid, owner, name).await? {
                reservations
                    .delete_in(&mut batch, &old.key, Expect::Etag(old.etag))
                    .map_err(of_storage)?;
            }
            let conditions =
                [("name", name), ("owner_uuid", owner), ("state", State::Ready.name())];
            for found in self.shared.records.volumes_with(&conditions).await? {
                let mut volume = found.value;
                if volume.add_ref(&asked.vm_uuid) {
                    let expect = Expect::Etag(found.etag);
                    self.shared
                        .records
                        .volumes
                        .put_in(&mut batch, &found.key, expect, &volume)
                        .map_err(of_storage)?;
                }
            }
            let committed = self.shared.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return Ok(made.shown());
            }
        }
    }

    /// Returns the reservations that have these values.
    pub async fn reservations(&self, filter: &ReservationFilter) -> Result<Value, Refused> {
        let conditions: Vec<_> =
            filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let found = self.shared.records.reservations_with(&conditions).await?;
        Ok(found.iter().map(|it| it.value.shown()).collect())
    }

    /// Removes a reservation. Its VM uses the volume no more, unless VMAPI knows it.
    pub async fn release(&self, uuid: &str, owner: &str) -> Result<(), Refused> {
        let absent = || Refused::NoReservation(uuid.to_owned());
        let found = match self.shared.records.reservations.get(uuid).await {
            Err(store::Error::NotFound { .. }) => return Err(absent()),
            found => found.map_err(of_storage)?,
        };
        if found.value.owner_uuid != owner {
            return Err(absent());
        }
        let gone = self.shared.records.reservations.delete(uuid, Expect::Anything).await;
        written(gone, ())?.ok_or_else(absent)?;
        let vm = &found.value.vm_uuid;
        if let Err(error) = self.follower.follow(vm, None).await {
            // It is gone all the same; the next listing of VMAPI checks the VM again.
            tracing::warn!(
                %error,
                vm,
                "cannot read whether the VM of a released reservation uses its volume; the next listing of VMAPI \
                 checks it again"
            );
        }
        Ok(())
    }

    async fn reserved(
        &self,
        vm: &str,
        owner: &str,
        name: &str,
    ) -> Result<Vec<Versioned<Reservation>>, Refused> {
        let found = self
            .shared
            .records
            .reservations_with(&[("vm_uuid", vm), ("volume_name", name)])
            .await?;
        Ok(found.into_iter().filter(|it| it.value.is_of(owner, name)).collect())
    }
}

/// Returns the VMs of the reservations, the oldest first, each once.
pub(super) fn by_age(reservations: Vec<Versioned<Reservation>>) -> Vec<String> {
    let mut reservations: Vec<Reservation> = reservations.into_iter().map(|it| it.value).collect();
    reservations.sort_by_key(|reservation| reservation.create_timestamp);
    let mut vms = Vec::new();
    for reservation in reservations {
        if !vms.contains(&reservation.vm_uuid) {
            vms.push(reservation.vm_uuid);
        }
    }
    vms
}
