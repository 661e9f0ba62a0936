// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `POST /volumes/:uuid`: a volume gets another name, or other tags.

use std::sync::Arc;

use serde_json::{Map, Value};
use store::{Batch, Expect};

use super::create::refused;
use super::delete::passed_on;
use super::state::{Shared, users};
use super::works::Works;
use crate::records::{Doing, Tries, of_storage, written};
use volumes_core::refused::Refused;
use volumes_core::requests::Update;

/// Changes names and tags of volumes.
#[derive(Debug)]
pub struct Updates {
    shared: Arc<Shared>,
    works: Arc<Works>,
}

impl Updates {
    pub(super) fn new(shared: &Arc<Shared>, works: &Arc<Works>) -> Updates {
        Updates { shared: Arc::clone(shared), works: Arc::clone(works) }
    }

    /// Renames a volume; returns it as clients see it. Without a name nothing changes.
    pub async fn rename(&self, asked: &Update) -> Result<Value, Refused> {
        let absent = || Refused::NoVolume(asked.uuid.clone());
        let found = self.shared.records.volume(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        let volume = found.ok_or_else(absent)?.value;
        let Some(name) = &asked.name else { return Ok(volume.shown()) };
        let held = self.works.hold(Doing::Rename, &asked.uuid, volume.owner_uuid(), name).await;
        let held = held.map_err(refused)?;
        let outcome = self.rename_held(&asked.uuid, name).await;
        self.works.let_go(held, true).await;
        outcome
    }

    async fn rename_held(&self, uuid: &str, name: &str) -> Result<Value, Refused> {
        let absent = || Refused::NoVolume(uuid.to_owned());
        let volume = self.shared.records.volume(uuid, None).await?.ok_or_else(absent)?.value;
        if self.shared.records.holder_of(volume.owner_uuid(), name).await?.is_some() {
            return Err(Refused::NameTaken(name.to_owned()));
        }
        // As in the deployed service, references refuse a rename and reservations do not. Our delete goes beyond that
        // service and refuses for reservations too: a rename loses no data.
        let users = users(&volume);
        if !users.is_empty() {
            let vms =
                self.shared.peers.live_among(&users).await.map_err(|error| passed_on(&error))?;
            if !vms.is_empty() {
                return Err(Refused::InUse { name: volume.name().to_owned(), vms });
            }
        }
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let found = self.shared.records.volume(uuid, None).await?.ok_or_else(absent)?;
            let mut renamed = found.value.clone();
            renamed.set_name(name);
            let mut batch = Batch::new();
            if found.value.name() != name && renamed.state().holds_name() {
                self.shared.records.disclaim(&mut batch, &found.value).await?;
                self.shared.records.claim(&mut batch, renamed.owner_uuid(), name, uuid).await?;
            }
            self.shared
                .records
                .volumes
                .put_in(&mut batch, uuid, Expect::Etag(found.etag), &renamed)
                .map_err(of_storage)?;
            let committed = match self.shared.records.store.commit(batch).await.map(drop) {
                // Only a create that got no ticket in time writes this name meanwhile.
                Err(store::Error::EtagConflict { bucket, .. }) if bucket != "volapi_volumes" => {
                    return Err(Refused::NameTaken(name.to_owned()));
                }
                committed => committed,
            };
            if written(committed, ())?.is_some() {
                return Ok(renamed.shown());
            }
        }
    }

    /// Gives a volume and its storage VM these tags and no others; returns the volume as clients see it.
    /// Fails if there is no such volume, and those of VMAPI and of the storage.
    pub async fn set_tags(&self, uuid: &str, tags: &Map<String, Value>) -> Result<Value, Refused> {
        let absent = || Refused::NoVolume(uuid.to_owned());
        let volume = self.shared.records.volume(uuid, None).await?.ok_or_else(absent)?.value;
        let set = self.shared.peers.set_tags(volume.vm_uuid(), tags).await;
        set.map_err(|error| passed_on(&error))?;
        let changed = self.shared.records.change(uuid, |volume| volume.set_labels(tags)).await?;
        changed.map(|volume| volume.shown()).ok_or_else(absent)
    }
}
