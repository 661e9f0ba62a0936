// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Datasets of a VM's name that no copy of it has made: somebody's, whatever they are. No migration takes their names,
//! and none destroys them.

use jiff::Timestamp;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use uuid::Uuid;

use super::failed::Failed;
use super::parts::Parts;
use super::zfs::{Cause, ZfsError, is_of};

/// Returns the datasets that have the VM's name: its root, disks beside it, and where its cores go.
pub async fn of(parts: &Parts, vm: Uuid) -> Result<Vec<String>, Failed> {
    let pool = parts.zfs.pool();
    let cores = format!("{pool}/cores");
    let mut found = below(parts, pool).await?;
    found.retain(|name| is_of(name, vm));
    let of_cores = format!("{cores}/{vm}");
    found.extend(below(parts, &cores).await?.into_iter().filter(|name| *name == of_cores));
    Ok(found)
}

/// The same of a VM that has no copy here; none where it has.
pub async fn absent(parts: &Parts, vm: Uuid) -> Result<Vec<String>, Failed> {
    match parts.node.vm(vm).await? {
        Some(_) => Ok(Vec::new()),
        None => of(parts, vm).await,
    }
}

/// Returns those that were there before the zone was configured: no creation of it has made them. One clock wrote
/// both times.
pub async fn older_than(parts: &Parts, vm: Uuid, object: &VmObject) -> Result<Vec<String>, Failed> {
    let born = object.text("create_timestamp").and_then(|text| text.parse::<Timestamp>().ok());
    let Some(born) = born.map(Timestamp::as_second) else { return of(parts, vm).await };
    let mut found = of(parts, vm).await?;
    let made = parts.zfs.each("creation", &found).await?;
    let is_older = |name: &String| {
        let made = made.get(name).and_then(|text| text.parse::<i64>().ok());
        made.is_none_or(|made| made < born)
    };
    found.retain(is_older);
    Ok(found)
}

async fn below(parts: &Parts, dataset: &str) -> Result<Vec<String>, ZfsError> {
    match parts.zfs.children(dataset).await {
        Err(error) if error.cause() == Cause::Absent => Ok(Vec::new()),
        found => found,
    }
}
