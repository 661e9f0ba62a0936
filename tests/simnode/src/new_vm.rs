// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zone, the datasets and the files of a new VM.

use serde_json::{Value, json};

use crate::dataset_ops::reserved;
use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::payload::{self, Payload};
use crate::state::{Zone, ZoneState};
use crate::vmadm::Surroundings;
use crate::vmadm::volumes::{self, Step};

/// The zone of a payload, installed and not running.
pub(crate) fn zone(vm: &Payload, zonedid: i64) -> Result<Zone, NodeError> {
    let need =
        |key: &str| payload::text(vm, key).ok_or_else(|| NodeError::invalid(key, "is required"));
    let (uuid, brand) = (need("uuid")?.to_string(), need("brand")?.to_string());
    Ok(Zone {
        zonename: uuid.clone(),
        zonepath: format!("/zones/{uuid}"),
        uuid,
        brand,
        state: ZoneState::Installed,
        zoneid: None,
        zonedid,
        kstat: None,
        made_by: String::new(),
    })
}

/// The files of a VM's config directory.
pub(crate) fn config_files(vm: &Payload) -> [(&'static str, Value); 3] {
    let part = |key: &str| vm.get(key).cloned().unwrap_or_else(|| json!({}));
    let metadata = json!({
        "customer_metadata": part("customer_metadata"),
        "internal_metadata": part("internal_metadata"),
    });
    [("metadata.json", metadata), ("tags.json", part("tags")), ("routes.json", part("routes"))]
}

impl Step {
    /// Runs the command on the table of datasets.
    pub(crate) fn make(&self, all: &mut Datasets) -> Result<Vec<History>, NodeError> {
        let (name, with, mut history) = match self {
            Step::Create(name) => return all.create(name),
            Step::Destroy(name) => return all.destroy(name, true),
            Step::Set(name, pairs) => (name, pairs, Vec::new()),
            Step::Volume { name, size, with } => (name, with, all.create_volume(name, size << 20)?),
            Step::Clone { origin, name, with } => (name, with, all.clone_from(origin, name)?),
        };
        for (key, value) in with {
            let auto = *key == "refreservation" && value == "auto";
            history.extend(match *key {
                // It is fixed when the volume is made.
                "volblocksize" => {
                    all.need(name)?.put(key, value.as_str());
                    Vec::new()
                }
                _ if auto => {
                    let size = all.need(name)?.get("volsize").parse().unwrap_or(0);
                    all.set(name, key, &reserved(size).to_string())?
                }
                _ => all.set(name, key, value)?,
            });
        }
        Ok(history)
    }
}

/// Makes the datasets of a VM: its root, cores, disks and delegated dataset.
pub(crate) fn make_datasets(
    all: &mut Datasets,
    vm: &Payload,
    around: &Surroundings,
) -> Result<(), NodeError> {
    let has_image = has_image(all, vm);
    for step in
        volumes::before_zone(vm, around).into_iter().chain(volumes::at_install(vm, has_image))
    {
        step.make(all)?;
    }
    Ok(())
}

/// Returns true if the image of the VM itself is in the pool.
pub(crate) fn has_image(all: &Datasets, vm: &Payload) -> bool {
    let pool = payload::text(vm, "zpool").unwrap_or("zones");
    payload::text(vm, "image_uuid")
        .is_some_and(|image| all.get(&format!("{pool}/{image}@final")).is_some())
}
