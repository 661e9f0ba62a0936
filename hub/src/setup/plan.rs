// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is left to do: from what is seen of a service, its instances and their zones to steps in their order. Pure.

use super::piece::{ASIDE, Folder, Piece};
use super::refusal::Refusal;
use super::zone::{State, Zone};

/// An instance of a service, and its zone if that is on this node.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its uuid, which is the zone's.
    pub uuid: String,
    /// SAPI says that it is in use.
    pub in_use: bool,
    /// A move of its data has begun, which protects the zone from a reprovision, or somebody else does.
    pub moving: Option<bool>,
    /// None: it is on another node.
    pub zone: Option<Zone>,
}

/// A service, as SAPI has it.
#[derive(Clone, Debug)]
pub struct Service {
    pub uuid: String,
    /// New zones of it get a delegated dataset.
    pub delegates: bool,
    pub instances: Vec<Instance>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    CreateService,
    Delegate { service: String },
    CreateInstance,
    Begin { zone: String, protects: bool },
    Protect { zone: String },
    Stop { zone: String },
    CreateDataset { zone: String },
    Copy { zone: String, folder: Folder },
    Link { zone: String, folder: Folder },
    Hand { zone: String },
    Start { zone: String },
    Mark { zone: String },
    Unprotect { zone: String },
    End { zone: String },
}

/// Returns the steps that are left.
pub fn steps(service: Option<&Service>) -> Result<Vec<Step>, Refusal> {
    let Some(service) = service else {
        return Ok(vec![Step::CreateService, Step::CreateInstance]);
    };
    let mut steps = Vec::new();
    if !service.delegates {
        steps.push(Step::Delegate { service: service.uuid.clone() });
    }
    if service.instances.is_empty() {
        steps.push(Step::CreateInstance);
    }
    for instance in &service.instances {
        if let Some(zone) = &instance.zone {
            steps.extend(of_zone(instance, zone)?);
        }
    }
    Ok(steps)
}

fn of_zone(instance: &Instance, seen: &Zone) -> Result<Vec<Step>, Refusal> {
    let data = seen.data();
    if let Some(other) = seen.delegated.iter().find(|name| **name != data) {
        return Err(Refusal::Delegated { zone: seen.uuid.clone(), dataset: other.clone() });
    }
    let zone = || seen.uuid.clone();
    let (mut work, mut steps) = (Vec::new(), Vec::new());
    let is_handed = seen.delegated.contains(&data);
    if !is_handed && seen.dataset.is_some() && instance.moving.is_none() {
        return Err(Refusal::Dataset(data));
    }
    if !is_handed {
        if seen.dataset.is_none() {
            work.push(Step::CreateDataset { zone: zone() });
        }
        for (folder, state) in &seen.folders {
            if *state == State::Here {
                work.push(Step::Copy { zone: zone(), folder: folder.clone() });
            }
            if matches!(state, State::Here | State::Aside) {
                work.push(Step::Link { zone: zone(), folder: folder.clone() });
            }
        }
        work.push(Step::Hand { zone: zone() });
    } else if let Some((folder, _)) = seen.folders.iter().find(|(_, state)| *state == State::Here) {
        // Its dataset is the zone's, where nothing of this node writes.
        let two = folder.to.clone();
        return Err(Refusal::Both { one: folder.from.clone(), two });
    }
    // What somebody else protects stays protected.
    let protects = instance.moving.unwrap_or(!seen.is_protected);
    let (is_moved, has_work) = (instance.moving.is_some(), !work.is_empty());
    if has_work {
        if !is_moved {
            steps.push(Step::Begin { zone: zone(), protects });
        }
        if protects && !seen.is_protected {
            steps.push(Step::Protect { zone: zone() });
        }
        if seen.runs {
            steps.push(Step::Stop { zone: zone() });
        }
    }
    steps.extend(work);
    if has_work || is_moved && !seen.runs {
        steps.push(Step::Start { zone: zone() });
    }
    if seen.has_records && !instance.in_use {
        steps.push(Step::Mark { zone: zone() });
    }
    if has_work || is_moved {
        if protects {
            steps.push(Step::Unprotect { zone: zone() });
        }
        steps.push(Step::End { zone: zone() });
    }
    Ok(steps)
}

impl Step {
    /// Returns what the step does, for people.
    pub fn says(&self, piece: Piece) -> String {
        let (service, program) = (piece.service(), piece.program());
        match self {
            Step::CreateService => {
                format!("make the service {service} in SAPI, with delegate_dataset")
            }
            Step::Delegate { .. } => {
                format!(
                    "set delegate_dataset of the service {service}: new zones get a dataset that stays"
                )
            }
            Step::CreateInstance => {
                format!("make the instance {service}0: SAPI provisions its zone")
            }
            Step::Begin { zone, .. } => {
                format!("note in SAPI that the data of {zone} is being moved")
            }
            Step::Protect { zone } => {
                format!(
                    "set indestructible_zoneroot of {zone}: it is not reprovisioned before its data is moved"
                )
            }
            Step::Stop { zone } => {
                format!("stop the zone {zone}: {program} does not answer from now on")
            }
            Step::CreateDataset { zone } => format!("make the dataset zones/{zone}/data"),
            Step::Copy { folder: Folder { from, to }, .. } => {
                format!("copy {} to {} and compare", from.display(), to.display())
            }
            Step::Link { folder: Folder { from, to }, .. } => {
                format!(
                    "rename {0} to {0}{ASIDE} and make it a link to {1}",
                    from.display(),
                    to.display()
                )
            }
            Step::Hand { zone } => {
                format!("delegate zones/{zone}/data to the zone, mounted at /data")
            }
            Step::Start { zone } => format!("start the zone {zone}"),
            Step::Mark { zone } => {
                format!(
                    "mark {zone} as in use in SAPI: {program} does not begin with an empty /data from now on"
                )
            }
            Step::Unprotect { zone } => {
                format!("unset indestructible_zoneroot of {zone}: it may be reprovisioned")
            }
            Step::End { zone } => format!("note in SAPI that the move of {zone} has ended"),
        }
    }

    /// Returns the way back, for people; none where nothing was changed for good.
    pub fn back(&self) -> Option<String> {
        Some(match self {
            Step::CreateService => "sdc-sapi /services/UUID -X DELETE".to_owned(),
            Step::Delegate { service } => {
                format!("sapiadm update {service} params.delegate_dataset=false")
            }
            Step::CreateInstance => "sdc-sapi /instances/UUID -X DELETE".to_owned(),
            Step::Protect { zone } => format!("vmadm update {zone} indestructible_zoneroot=false"),
            Step::Stop { zone } => format!("vmadm start {zone}"),
            Step::CreateDataset { zone } => format!("zfs destroy zones/{zone}/data"),
            Step::Link { zone, folder } => {
                let from = super::zone::inside(zone, &folder.from);
                format!(
                    "rm {0} && mv {0}{ASIDE} {0}, with the zone stopped; what was written since is in the dataset",
                    from.display()
                )
            }
            Step::Hand { zone } => {
                format!(
                    "zonecfg -z {zone} 'remove dataset name=zones/{zone}/data', with the zone stopped"
                )
            }
            Step::Mark { zone } => format!("sapiadm update {zone} metadata.HUB_DATA_IN_USE=''"),
            Step::Begin { .. } | Step::Copy { .. } | Step::Start { .. } => return None,
            Step::Unprotect { .. } | Step::End { .. } => return None,
        })
    }
}
