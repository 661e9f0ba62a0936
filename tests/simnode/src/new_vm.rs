// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zone, the datasets and the files of a new VM.

use serde_json::{Value, json};

use crate::datasets::{Datasets, History};
use crate::error::NodeError;
use crate::payload::{self, Payload};
use crate::state::{Zone, ZoneState};

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

/// One dataset of a new VM.
#[derive(Clone, Debug)]
pub(crate) enum DatasetStep {
    Create(String),
    Clone(String, String),
    Volume(String, u64),
    Set(String, &'static str, String),
}

impl DatasetStep {
    pub(crate) fn make(&self, all: &mut Datasets) -> Result<Vec<History>, NodeError> {
        match self {
            DatasetStep::Create(name) => all.create(name),
            DatasetStep::Clone(origin, name) => all.clone_from(origin, name),
            DatasetStep::Volume(name, size) => all.create_volume(name, *size),
            DatasetStep::Set(name, key, value) => all.set(name, key, value),
        }
    }
}

/// The datasets of a new VM in the order in which vmadm makes them.
pub(crate) fn dataset_steps(all: &Datasets, vm: &Payload) -> Result<Vec<DatasetStep>, NodeError> {
    let need =
        |key: &str| payload::text(vm, key).ok_or_else(|| NodeError::invalid(key, "is required"));
    let (uuid, brand) = (need("uuid")?, need("brand")?);
    let root = format!("zones/{uuid}");
    let image = |id: &str| Some(format!("zones/{id}@final")).filter(|i| all.get(i).is_some());
    let mut steps = vec![match payload::text(vm, "image_uuid").and_then(image) {
        Some(origin) => DatasetStep::Clone(origin, root.clone()),
        None => DatasetStep::Create(root.clone()),
    }];
    if let Some(quota) = vm.get("quota") {
        let quota = quota.as_u64().and_then(|q| q.checked_mul(1 << 30));
        let quota = quota.ok_or_else(|| NodeError::invalid("quota", "expected whole GiB"))?;
        let key = if brand == "bhyve" { "refquota" } else { "quota" };
        steps.push(DatasetStep::Set(root.clone(), key, quota.to_string()));
    }
    for (n, disk) in payload::list(vm, "disks")?.into_iter().enumerate() {
        let name = payload::disk_dataset(brand, uuid, n);
        let size = disk.get("size").and_then(Value::as_u64).unwrap_or(10240) << 20;
        match payload::text(disk, "image_uuid").and_then(image) {
            Some(origin) => {
                steps.push(DatasetStep::Clone(origin, name.clone()));
                steps.push(DatasetStep::Set(name, "volsize", size.to_string()));
            }
            None => steps.push(DatasetStep::Volume(name, size)),
        }
    }
    if vm.get("delegate_dataset").and_then(Value::as_bool) == Some(true) {
        let data = format!("{root}/data");
        steps.push(DatasetStep::Create(data.clone()));
        steps.push(DatasetStep::Set(data, "zoned", "on".to_string()));
    }
    steps.push(DatasetStep::Create(format!("zones/cores/{uuid}")));
    Ok(steps)
}

/// Makes the datasets of a VM: its root, cores, disks and delegated dataset.
pub(crate) fn make_datasets(all: &mut Datasets, vm: &Payload) -> Result<(), NodeError> {
    for change in dataset_steps(all, vm)? {
        change.make(all)?;
    }
    Ok(())
}
