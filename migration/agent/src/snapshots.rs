// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! Snapshots of the dataset that is delegated to a VM, for the volumes service. Only those whose names begin with
//! `volsnap-` are shown, made or destroyed, of that one dataset.

use http::StatusCode;
use sdc_clients::quoted;
use sdc_clients::snapshots::{PREFIX, RolledBack, Snapshot};
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::Value;
use uuid::Uuid;

use super::node::NodeError;
use super::parts::Parts;
use super::vm::is_running;
use super::zfs::{Cause, ZfsError, args};

/// The longest name.
const LONGEST: usize = 100;

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    /// The name is not one of these.
    #[error(
        "{} is not a name for a volume's snapshot: expected {PREFIX} and up to 92 of a-z A-Z 0-9 _ . -",
        quoted(.0)
    )]
    Name(String),
    /// The VM has no such dataset.
    #[error("no dataset {0} is delegated to the VM")]
    NoDataset(String),
    /// It is a copy that a migration made, or left.
    #[error("the VM is a hidden copy")]
    Hidden,
    /// It is stopped and migrates: what its last sync has sent must not change, and it may be elsewhere next.
    #[error("the VM is stopped and migrates")]
    Moves,
    /// The VM must be stopped.
    #[error("the VM runs")]
    Runs,
    /// There is no such snapshot.
    #[error("there is no snapshot {0}")]
    Absent(String),
    /// Later snapshots are others' and stand in the way.
    #[error("a rollback would destroy later snapshots that are not the volume's: {}", .0.join(", "))]
    Others(Vec<String>),
    /// There is no room.
    #[error("no space left for the snapshot: {0}")]
    Full(ZfsError),
    /// A program or vminfod.
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Zfs(#[from] ZfsError),
}

impl NotDone {
    /// Returns the status and the code of the answer.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            NotDone::Name(_) => (StatusCode::UNPROCESSABLE_ENTITY, "InvalidParameters"),
            NotDone::NoDataset(_) => (StatusCode::CONFLICT, "NoDelegatedDataset"),
            NotDone::Hidden => (StatusCode::SERVICE_UNAVAILABLE, "HiddenCopy"),
            NotDone::Moves => (StatusCode::SERVICE_UNAVAILABLE, "VmMoves"),
            NotDone::Absent(_) => (StatusCode::CONFLICT, "NoSnapshot"),
            NotDone::Others(_) => (StatusCode::CONFLICT, "OtherSnapshots"),
            NotDone::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "NoSpace"),
            NotDone::Node(NodeError::NoVm(_)) => (StatusCode::NOT_FOUND, "ResourceNotFound"),
            NotDone::Runs => (StatusCode::SERVICE_UNAVAILABLE, "VmRuns"),
            NotDone::Node(_) | NotDone::Zfs(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
        }
    }
}

/// Returns the snapshots, the oldest first.
pub async fn list(parts: &Parts, vm: Uuid) -> Result<Vec<Snapshot>, NotDone> {
    let (dataset, _) = delegated(parts, vm).await?;
    let all = all(parts, &dataset).await?;
    Ok(all.into_iter().filter_map(|row| row.is_ours().then_some(row.snapshot)).collect())
}

/// Makes a snapshot, if it is not there; returns it.
pub async fn create(parts: &Parts, vm: Uuid, name: &str) -> Result<Snapshot, NotDone> {
    check(name)?;
    let _turn = parts.snapshots.lock().await;
    let dataset = changeable(parts, vm).await?;
    if let Some(found) = find(parts, &dataset, name).await? {
        return Ok(found);
    }
    parts.zfs.change(args(&["snapshot", &format!("{dataset}@{name}")])).await.map_err(|error| {
        match error.cause() {
            Cause::Full => NotDone::Full(error),
            _ => NotDone::Zfs(error),
        }
    })?;
    tracing::info!(%vm, name, "created a volume's snapshot");
    find(parts, &dataset, name).await?.ok_or_else(|| NotDone::Absent(name.to_owned()))
}

/// Destroys a snapshot, if it is there.
pub async fn destroy(parts: &Parts, vm: Uuid, name: &str) -> Result<(), NotDone> {
    check(name)?;
    let _turn = parts.snapshots.lock().await;
    let dataset = changeable(parts, vm).await?;
    parts.zfs.remove(args(&["destroy", &format!("{dataset}@{name}")])).await?;
    tracing::info!(%vm, name, "destroyed a volume's snapshot");
    Ok(())
}

/// Makes the dataset of a stopped VM as it was. Later snapshots of the volume go first, one by one; where there is any
/// other, nothing is done.
pub async fn roll_back(parts: &Parts, vm: Uuid, name: &str) -> Result<RolledBack, NotDone> {
    check(name)?;
    let _turn = parts.snapshots.lock().await;
    let (dataset, object) = delegated(parts, vm).await?;
    if is_running(&object) {
        return Err(NotDone::Runs);
    }
    let mut left = all(parts, &dataset).await?;
    let at = left.iter().position(|row| row.snapshot.name == name);
    let later = left.split_off(at.ok_or_else(|| NotDone::Absent(name.to_owned()))? + 1);
    let (later, others): (Vec<Row>, Vec<Row>) = later.into_iter().partition(Row::is_ours);
    if !others.is_empty() {
        return Err(NotDone::Others(others.into_iter().map(Row::name).collect()));
    }
    for row in later.iter().rev() {
        parts.zfs.remove(args(&["destroy", &format!("{dataset}@{}", row.snapshot.name)])).await?;
    }
    parts.zfs.change(args(&["rollback", &format!("{dataset}@{name}")])).await?;
    let dropped: Vec<String> = later.into_iter().map(Row::name).collect();
    let gone = dropped.join(", ");
    tracing::warn!(%vm, name, gone, "rolled a volume back; its later snapshots are gone");
    let left = left.into_iter().filter(Row::is_ours).map(Row::name).collect();
    Ok(RolledBack { dropped, left })
}

/// Refuses a name that is not a volume's snapshot's: it goes into a command.
fn check(name: &str) -> Result<(), NotDone> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let rest = name.strip_prefix(PREFIX).filter(|rest| !rest.is_empty() && rest.chars().all(plain));
    match rest {
        Some(_) if name.len() <= LONGEST => Ok(()),
        _ => Err(NotDone::Name(name.chars().take(LONGEST).collect())),
    }
}

/// Returns the dataset that is delegated to a VM, and the VM.
async fn delegated(parts: &Parts, vm: Uuid) -> Result<(String, VmObject), NotDone> {
    let object = parts.node.existing(vm).await?;
    if object.is_hidden() {
        return Err(NotDone::Hidden);
    }
    let dataset = format!("{}/{vm}/data", parts.zfs.pool());
    let delegated = object.get("datasets").and_then(Value::as_array).into_iter().flatten();
    if delegated.filter_map(Value::as_str).any(|name| name == dataset) {
        return Ok((dataset, object));
    }
    Err(NotDone::NoDataset(dataset))
}

/// Returns the dataset, of which a snapshot made or destroyed now goes with the VM wherever it moves.
async fn changeable(parts: &Parts, vm: Uuid) -> Result<String, NotDone> {
    let (dataset, object) = delegated(parts, vm).await?;
    let migrates = parts.memory.open().values().any(|entry| entry.vm == vm);
    if migrates && !is_running(&object) { Err(NotDone::Moves) } else { Ok(dataset) }
}

/// A snapshot or a bookmark of the dataset, made by any program.
struct Row {
    snapshot: Snapshot,
    age: u64,
    is_snapshot: bool,
}

impl Row {
    fn is_ours(&self) -> bool {
        self.is_snapshot && self.snapshot.name.starts_with(PREFIX)
    }

    fn name(self) -> String {
        self.snapshot.name
    }
}

async fn find(parts: &Parts, dataset: &str, name: &str) -> Result<Option<Snapshot>, NotDone> {
    let is_it = |row: &Row| row.is_ours() && row.snapshot.name == name;
    Ok(all(parts, dataset).await?.into_iter().find(is_it).map(|row| row.snapshot))
}

/// Returns all snapshots and bookmarks of the dataset itself, the oldest first.
async fn all(parts: &Parts, dataset: &str) -> Result<Vec<Row>, NotDone> {
    let mut rows: Vec<Row> = Vec::new();
    let of = [dataset.to_owned()];
    for property in parts.zfs.get(&["createtxg", "creation", "used"], &of, true).await? {
        let Some((of, name)) = property.of.split_once(['@', '#']) else { continue };
        if of != dataset {
            continue;
        }
        let is_snapshot = property.of.contains('@');
        let is_it = |row: &Row| row.snapshot.name == name && row.is_snapshot == is_snapshot;
        let at = rows.iter().position(is_it).unwrap_or_else(|| {
            let snapshot = Snapshot { name: name.to_owned(), created: 0, used: 0 };
            rows.push(Row { snapshot, age: 0, is_snapshot });
            rows.len() - 1
        });
        // A bookmark uses nothing.
        let Ok(value) = property.value.parse::<u64>() else { continue };
        match property.name.as_str() {
            "createtxg" => rows[at].age = value,
            "creation" => rows[at].snapshot.created = value.try_into().unwrap_or_default(),
            _ => rows[at].snapshot.used = value,
        }
    }
    rows.sort_by_key(|row| row.age);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // M70
    fn only_plain_names_with_the_prefix_are_taken() {
        let long = format!("volsnap-{}", "x".repeat(92));
        for (name, is_fit) in [
            ("volsnap-a", true),
            ("volsnap-0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11", true),
            (&long, true),
            (&format!("{long}x"), false),
            ("volsnap-", false),
            ("vm-migration-1", false),
            ("vmsnap-volsnap-a", false),
            ("volsnap-a@b", false),
            ("volsnap-a/b", false),
            ("volsnap-a%volsnap-c", false),
            ("volsnap-a,b", false),
            ("", false),
        ] {
            assert_eq!(check(name).is_ok(), is_fit, "{name}");
        }
    }
}
