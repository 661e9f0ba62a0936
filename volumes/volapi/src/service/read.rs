// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lists and single volumes.

use serde_json::{Value, json};

use super::create::sizes;
use super::delete::passed_on;
use super::parts::Service;
use volumes_core::list::Filter;
use volumes_core::refused::Refused;
use volumes_core::requests::One;
use volumes_core::volume::{TYPE, Volume};

impl Service {
    /// Returns the volumes that the filter admits.
    pub async fn list(&self, filter: &Filter) -> Result<Value, Refused> {
        let found = self.shared.records.volumes_with(&filter.conditions()).await?;
        let admitted = found.into_iter().map(|it| it.value).filter(|volume| filter.admits(volume));
        Ok(admitted.map(|volume| self.seen(volume)).collect())
    }

    /// Returns a volume as clients see it.
    pub async fn get(&self, asked: &One) -> Result<Value, Refused> {
        let found = self.shared.records.volume(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        found.map(|it| self.seen(it.value)).ok_or_else(|| Refused::NoVolume(asked.uuid.clone()))
    }

    /// Returns a volume as clients see it; with `rfd26` with the reason of a failure.
    fn seen(&self, volume: Volume) -> Value {
        match self.shared.settings.rfd26 {
            true => volume.into_explained(),
            false => volume.into_shown(),
        }
    }

    /// Returns the sizes that there are.
    pub async fn sizes(&self) -> Result<Value, Refused> {
        let packages = self.shared.peers.packages().await.map_err(|error| passed_on(&error))?;
        let size = |size: f64| json!({"size": vm_model::js::number(size), "type": TYPE});
        Ok(sizes(&packages).into_iter().map(size).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sdc_clients::volapi;
    use volumes_core::failure::Failure;
    use volumes_core::reservation::Reservation;
    use volumes_core::volume::NewVolume;

    /// A record keeps the order of its fields and its time in milliseconds, a client wants neither: two types.
    #[test]
    fn a_client_reads_each_record_as_it_is_shown_and_loses_nothing() {
        let text = |text: &str| text.to_owned();
        let mut volume = Volume::new(NewVolume {
            uuid: text("u"),
            labels: Some(json!({"a": "b"})),
            name: text("n"),
            owner_uuid: text("o"),
            size: 10240.0,
            create_timestamp: 1_794_000_000_000,
            refs: vec![text("vm")],
            networks: vec![text("net")],
            vm_uuid: text("v"),
        });
        volume.set_filesystem_path("10.0.0.1:/exports/data");
        volume.set_billing_id("package");
        volume.fail(&Failure::Refused(text("no room")));
        for shown in [volume.shown(), volume.into_explained()] {
            let read: volapi::Volume = serde_json::from_value(shown.clone()).unwrap();
            assert_eq!(Some(read.size), shown["size"].as_f64());
            let mut again = serde_json::to_value(read).unwrap();
            again["size"] = shown["size"].clone();
            assert_eq!(again, shown);
        }
        let reservation = Reservation {
            create_timestamp: 1_794_000_000_000,
            job_uuid: text("j"),
            owner_uuid: text("o"),
            uuid: text("u"),
            vm_uuid: text("v"),
            volume_name: text("n"),
        };
        let shown = reservation.shown();
        let read: volapi::Reservation = serde_json::from_value(shown.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), shown);
    }
}
