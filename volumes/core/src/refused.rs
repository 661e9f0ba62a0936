// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a request is refused, with the status and the body that deployed clients know.

use std::fmt;

use serde_json::{Value, json};
use vm_model::js::number_text;

use super::volume::State;

/// One thing that is wrong with a request's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Parameter(String),
    /// The predicate of a list; the deployed service has another name for these errors.
    Predicate(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Parameter(text) => write!(f, "Error: {text}"),
            Cause::Predicate(text) => write!(f, "VError: {text}"),
        }
    }
}

/// A service that this one asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The ticket of a create or a rename.
    Ticket,
    /// PAPI's packages of volumes.
    Packages,
    /// The new record.
    Record,
    StorageVm,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// Parameters are bad, missing or unknown.
    Invalid(Vec<Cause>),
    /// There is no such volume, or it is another owner's.
    NoVolume(String),
    /// There is no such snapshot.
    NoSnapshot(String),
    /// The volume has a snapshot of this name.
    SnapshotTaken(String),
    /// The volume has as many snapshots as it may have.
    TooManySnapshots(usize),
    /// The volume or a snapshot is in a state in which that cannot be done: what, and the state.
    WrongState(String),
    /// A roll-back was given up.
    NotRolledBack(String),
    /// There is no such reservation, or it is another owner's.
    NoReservation(String),
    /// The owner has a volume of this name.
    NameTaken(String),
    /// A volume has this uuid already.
    UuidTaken(String),
    /// VMs use the volume.
    InUse {
        /// The volume's name.
        name: String,
        vms: Vec<String>,
    },
    /// No package has this size.
    NoSuchSize {
        /// What was asked for, in MiB.
        size: Option<f64>,
        /// What there is, ascending.
        available: Vec<f64>,
    },
    /// Networks that are missing, another's, or no fabric.
    Networks {
        /// NAPI does not have them.
        missing: Vec<String>,
        /// The owner of the volume does not own them.
        foreign: Vec<String>,
        /// They are no fabric networks.
        non_fabric: Vec<String>,
    },
    /// There is no such volume package, or not for this user.
    NoPackage(String),
    /// There is a volume package of this name.
    PackageTaken(String),
    /// The volume's networks cannot be changed in the state in which it is.
    NotReady {
        /// The volume's name.
        name: String,
        state: State,
    },
    /// The volume would be on no network any more.
    LastNetwork(String),
    /// Another change of the volume's networks is under way.
    NetworksChanging(String),
    /// NAPI did not answer for some networks: its errors, one by one.
    Napi(Vec<String>),
    /// A step of the creation did not succeed.
    Failed(Step),
    /// The ticket of a create or a rename is not active.
    TicketNotActive,
    /// The ticket of a delete was not to be had; CNAPI's error.
    DeleteTicket(String),
    /// The ticket of a delete is not active but this.
    DeleteTicketStatus(String),
    /// The images of storage VMs are not there yet.
    NoImage,
    /// Another service's answer, passed on.
    Peer {
        status: u16,
        /// Its code, if it had one.
        code: Option<String>,
        message: String,
    },
    /// The storage is away, or it is not known whether a write happened.
    StorageAway,
    /// The record cannot be stored: the store's error.
    Storage(String),
}

impl Refused {
    /// One bad parameter.
    pub fn parameter(text: impl Into<String>) -> Refused {
        Refused::Invalid(vec![Cause::Parameter(text.into())])
    }

    /// Returns the status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Refused::Invalid(_)
            | Refused::NameTaken(_)
            | Refused::UuidTaken(_)
            | Refused::InUse { .. }
            | Refused::NoSuchSize { .. }
            | Refused::Networks { .. }
            | Refused::SnapshotTaken(_)
            | Refused::TooManySnapshots(_)
            | Refused::WrongState(_)
            | Refused::NotRolledBack(_)
            | Refused::PackageTaken(_)
            | Refused::NotReady { .. }
            | Refused::LastNetwork(_)
            | Refused::NetworksChanging(_) => 409,
            Refused::NoSnapshot(_)
            | Refused::NoVolume(_)
            | Refused::NoReservation(_)
            | Refused::NoPackage(_) => 404,
            Refused::Peer { status, .. } => *status,
            Refused::StorageAway => 503,
            _ => 500,
        }
    }

    /// Returns the `code` of the answer; some errors of the deployed service have none.
    pub fn code(&self) -> Option<&str> {
        Some(match self {
            Refused::Invalid(_) => "ValidationError",
            Refused::NoVolume(_) => "VolumeNotFound",
            Refused::NoReservation(_) => "VolumeReservationNotFound",
            Refused::NoSnapshot(_) => "VolumeSnapshotNotFound",
            Refused::SnapshotTaken(_) => "VolumeSnapshotAlreadyExists",
            Refused::TooManySnapshots(_) => "TooManyVolumeSnapshots",
            Refused::WrongState(_) => "InvalidVolumeState",
            Refused::NotRolledBack(_) => "VolumeNotRolledBack",
            Refused::NameTaken(_) | Refused::UuidTaken(_) => "VolumeAlreadyExists",
            Refused::InUse { .. } => "VolumeInUse",
            Refused::NoSuchSize { .. } => "VolumeSizeNotAvailable",
            Refused::Networks { .. } => "InvalidNetworks",
            Refused::NoPackage(_) => "VolumePackageNotFound",
            Refused::PackageTaken(_) => "VolumePackageAlreadyExists",
            Refused::NotReady { .. } => "VolumeNotReady",
            Refused::LastNetwork(_) => "VolumeLastNetwork",
            Refused::NetworksChanging(_) => "VolumeNetworksChanging",
            Refused::Failed(_) | Refused::TicketNotActive | Refused::Storage(_) => "InternalError",
            Refused::StorageAway => "ServiceUnavailable",
            Refused::Peer { code, .. } => return code.as_deref(),
            Refused::Napi(_)
            | Refused::DeleteTicket(_)
            | Refused::DeleteTicketStatus(_)
            | Refused::NoImage => return None,
        })
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> Value {
        let mut body = match self.code() {
            Some(code) => json!({"code": code, "message": self.to_string()}),
            None => json!({"message": self.to_string()}),
        };
        if let Refused::NoSuchSize { available, .. } = self {
            body["availableSizes"] = available.iter().map(|n| vm_model::js::number(*n)).collect();
        }
        body
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Invalid(causes) => {
                let causes: Vec<String> = causes.iter().map(Cause::to_string).collect();
                write!(f, "Validation error, causes: {}", causes.join(", "))
            }
            Refused::NoVolume(uuid) => write!(f, "Volume with uuid {uuid} could not be found"),
            Refused::NoReservation(uuid) => {
                write!(f, "Volume reservation with uuid {uuid} could not be found")
            }
            Refused::NoSnapshot(name) => write!(f, "Snapshot {name} could not be found"),
            Refused::SnapshotTaken(name) => write!(f, "Snapshot with name {name} already exists"),
            Refused::TooManySnapshots(most) => {
                write!(f, "The volume has {most} snapshots and cannot have more")
            }
            Refused::WrongState(why) => f.write_str(why),
            Refused::NotRolledBack(why) => write!(f, "The volume stays as it is: {why}"),
            Refused::UuidTaken(uuid) => write!(f, "Volume with uuid {uuid} already exists"),
            Refused::NameTaken(name) => write!(f, "Volume with name {name} already exists"),
            Refused::InUse { name, vms } => {
                write!(f, "Volume with name {name} is used by vms: {}", vms.join(", "))
            }
            Refused::NoSuchSize { size, available } => {
                let size = size.map_or("undefined".to_owned(), number_text);
                let sizes: Vec<String> = available.iter().map(|size| number_text(*size)).collect();
                let sizes = sizes.join(", ");
                write!(f, "Volume size {size} is not available. Available sizes are: {sizes}")
            }
            Refused::Networks { missing, foreign, non_fabric } => {
                let parts: Vec<String> = [
                    ("missing", missing),
                    ("not owned by user", foreign),
                    ("non-fabric", non_fabric),
                ]
                .into_iter()
                .filter(|(_, uuids)| !uuids.is_empty())
                .map(|(what, uuids)| format!("{what}: {}", uuids.join(", ")))
                .collect();
                write!(f, "Invalid networks: {}", parts.join(", "))
            }
            Refused::NoPackage(package) => write!(f, "Volume package {package} not found"),
            Refused::PackageTaken(name) => {
                write!(f, "Volume package with name {name} already exists")
            }
            Refused::NotReady { name, state } => {
                write!(f, "Volume with name {name} is {state}, and not ready")
            }
            Refused::LastNetwork(name) => {
                write!(f, "Volume with name {name} cannot be detached from its last network")
            }
            Refused::NetworksChanging(name) => {
                write!(f, "Networks of volume with name {name} are being changed")
            }
            Refused::Napi(errors) => {
                let plural = if errors.len() == 1 { "" } else { "s" };
                let first = errors.first().map_or("", String::as_str);
                write!(f, "first of {} error{plural}: {first}", errors.len())
            }
            Refused::Failed(Step::Ticket) => f.write_str("Error"),
            Refused::Failed(Step::Packages) => f.write_str("Could not get NFS volumes packages"),
            Refused::Failed(Step::Record) => f.write_str("Error when creating volume model"),
            Refused::Failed(Step::StorageVm) => f.write_str("Error when creating storage VM"),
            Refused::TicketNotActive => Ok(()),
            Refused::DeleteTicket(why) => write!(f, "Error when acquiring ticket: {why}"),
            Refused::DeleteTicketStatus(status) => {
                write!(f, "Could not acquire ticket, ticket is not active and instead is: {status}")
            }
            Refused::NoImage => f.write_str("nfsserver image not yet imported"),
            Refused::Peer { message, .. } => f.write_str(message),
            Refused::StorageAway => f.write_str("the storage is not available"),
            Refused::Storage(why) => write!(f, "the record cannot be stored: {why}"),
        }
    }
}

impl std::error::Error for Refused {}
