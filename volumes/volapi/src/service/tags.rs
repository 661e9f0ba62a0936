// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A volume gets other tags. They are its storage VM's, which it follows.

use serde_json::{Map, Value};

use super::delete::passed_on;
use super::state::Service;
use volumes_core::refused::Refused;

impl Service {
    /// Gives a volume and its storage VM these tags and no others; returns the volume as clients see it.
    ///
    /// # Errors
    /// If there is no such volume, and those of VMAPI and of the storage.
    pub async fn set_tags(&self, uuid: &str, tags: &Map<String, Value>) -> Result<Value, Refused> {
        let absent = || Refused::NoVolume(uuid.to_owned());
        let volume = self.records.volume(uuid, None).await?.ok_or_else(absent)?.value;
        let told = self.peers.set_tags(volume.vm_uuid(), tags).await;
        told.map_err(|error| passed_on(&error))?;
        let changed = self.records.change(uuid, |volume| volume.set_labels(tags)).await?;
        changed.map(|volume| volume.shown()).ok_or_else(absent)
    }
}
