// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.
//! What becomes of a volume's snapshots (RFD 26 §Snapshots), and what is asked about them. A request only writes down
//! the goal; [`due`] returns what is still to be done, also to a process that finds it later. What was done is
//! written under the condition that it was still due.

use serde_json::Value;

use super::checks::{self, Causes, Params};
use super::facts::VmState;
use super::failure::Failure;
use super::refused::Refused;
use super::snapshot::{Origin, Rollback, Snapshot, Stage};
use super::volume::{State, Volume};

/// The longest reason that a record keeps, in characters.
const REASON: usize = 500;

/// `POST /volumes/:uuid/snapshot`, and what is asked of one snapshot or of all.
#[derive(Clone, Debug)]
pub struct Request {
    pub uuid: String,
    pub owner_uuid: Option<String>,
    pub name: Option<String>,
}

/// `POST /volumes/:uuid/rollbacktosnapshot`.
#[derive(Clone, Debug)]
pub struct RollBack {
    pub uuid: String,
    pub owner_uuid: Option<String>,
    pub to: Which,
    /// Also where VMs use the volume.
    pub force: bool,
}

/// Which snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    Name(String),
    Uuid(String),
}

impl Which {
    fn text(&self) -> &str {
        match self {
            Which::Name(text) | Which::Uuid(text) => text,
        }
    }

    pub fn of(&self, volume: &Volume) -> Result<Snapshot, Refused> {
        let is_it = |it: &Snapshot| match self {
            Which::Name(name) => it.name == *name,
            Which::Uuid(uuid) => it.uuid == *uuid,
        };
        let found = volume.snapshots().into_iter().find(is_it);
        found.ok_or_else(|| Refused::NoSnapshot(self.text().to_owned()))
    }
}

/// `POST /volumes/:uuid/snapshot`: without a name, or with an empty one, it gets one.
pub fn create(params: &Params) -> Result<Request, Refused> {
    let mut params = params.clone();
    if params.get("name").is_some_and(|name| name == "") {
        params.shift_remove("name");
    }
    asked(&params, &["uuid"], &["owner_uuid", "name"])
}

/// `GET /volumes/:uuid/snapshots`.
pub fn list(params: &Params) -> Result<Request, Refused> {
    asked(params, &["uuid"], &["owner_uuid", "name"])
}

/// `GET /volumes/:uuid/snapshots/:name` and `DELETE`: the name is there.
pub fn one(params: &Params) -> Result<(Request, Which), Refused> {
    let asked = asked(params, &["uuid", "name"], &["owner_uuid"])?;
    let name = Which::Name(asked.name.clone().unwrap_or_default());
    Ok((asked, name))
}

/// `POST /volumes/:uuid/rollbacktosnapshot`: the snapshot's uuid, which clients call `uuid` too, is in
/// `snapshot_uuid`.
pub fn roll_back(params: &Params) -> Result<RollBack, Refused> {
    let mut causes = Causes::default();
    causes.names(params, &["uuid"], &["owner_uuid", "name", "snapshot_uuid", "force"]);
    common(&mut causes, params);
    let (name, uuid) = (text(params, "name"), text(params, "snapshot_uuid"));
    if let Some(uuid) = params.get("snapshot_uuid") {
        causes.check(checks::uuid(Some(uuid), "snapshot"));
    }
    if params.contains_key("name") == params.contains_key("snapshot_uuid") {
        causes.add("either name or uuid of the snapshot must be given");
    }
    let force = match params.get("force") {
        None => Some(false),
        Some(Value::Bool(force)) => Some(*force),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    if force.is_none() {
        let force = super::script::string(params.get("force"));
        causes.add(format!("{force} is not a valid boolean value for force."));
    }
    causes.done()?;
    Ok(RollBack {
        uuid: text(params, "uuid").unwrap_or_default(),
        owner_uuid: text(params, "owner_uuid"),
        to: uuid.map(Which::Uuid).or(name.map(Which::Name)).unwrap_or(Which::Name(String::new())),
        force: force.unwrap_or_default(),
    })
}

fn asked(params: &Params, required: &[&str], optional: &[&str]) -> Result<Request, Refused> {
    let mut causes = Causes::default();
    causes.names(params, required, optional);
    common(&mut causes, params);
    causes.done()?;
    let (owner_uuid, name) = (text(params, "owner_uuid"), text(params, "name"));
    Ok(Request { uuid: text(params, "uuid").unwrap_or_default(), owner_uuid, name })
}

fn common(causes: &mut Causes, params: &Params) {
    for name in ["uuid", "owner_uuid"] {
        if params.contains_key(name) {
            causes.check(checks::uuid(params.get(name), name));
        }
    }
    if params.contains_key("name") {
        let checked = checks::name(params.get("name"));
        causes.check(checked.map_err(|text| text.replace("volume name", "snapshot name")));
    }
}

fn text(params: &Params, name: &str) -> Option<String> {
    params.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// What is to be done about a volume's snapshots next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The node is to make it.
    Make(Snapshot),
    /// The node is to destroy it.
    Destroy(Snapshot),
    /// The roll-back goes on.
    RollBack(Rollback),
    /// The volume failed while it was rolled back: what the node still has is to be written down.
    Reconcile,
    /// The volume is being deleted, and its snapshots go with it.
    Wait,
}

/// Returns what is to be done next; none if all is as it should be.
pub fn due(volume: &Volume) -> Option<Due> {
    let open = |it: &Snapshot| matches!(it.state, Stage::Creating | Stage::Deleting);
    let snapshot = volume.snapshots().into_iter().find(open);
    let due = match (volume.rollback(), snapshot) {
        (Some(rollback), _) if volume.state() == State::RollingBack => Due::RollBack(rollback),
        (Some(_), _) => Due::Reconcile,
        (None, Some(it)) if it.state == Stage::Creating => Due::Make(it),
        (None, Some(it)) => Due::Destroy(it),
        (None, None) => return None,
    };
    if volume.state() == State::Deleting { Some(Due::Wait) } else { Some(due) }
}

/// What a roll-back needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Stop,
    RollBack,
    Start,
    Ready,
    /// Until the VM is in another state.
    Wait,
    /// The volume fails.
    Fail,
}

/// Returns what a roll-back needs next, with the storage VM in this state.
pub fn step(rollback: &Rollback, vm: VmState) -> Step {
    match (rollback.is_over, vm) {
        (false, VmState::Running) => Step::Stop,
        (false, VmState::Stopped) => Step::RollBack,
        (true, VmState::Stopped) => Step::Start,
        (true, VmState::Running) => Step::Ready,
        (_, VmState::Failed | VmState::Destroyed) => Step::Fail,
        (_, VmState::Provisioning | VmState::Other) => Step::Wait,
    }
}

/// Adds a snapshot that is to be made. Those that failed make way.
pub fn begin_create(volume: &mut Volume, new: Snapshot, most: usize) -> Result<(), Refused> {
    require_ready(volume)?;
    let mut snapshots = volume.snapshots();
    snapshots.retain(|it| it.state != Stage::Failed);
    if snapshots.iter().any(|it| it.name == new.name) {
        return Err(Refused::SnapshotTaken(new.name));
    }
    if snapshots.len() >= most {
        return Err(Refused::TooManySnapshots(most));
    }
    snapshots.push(new);
    volume.set_snapshots(&snapshots);
    Ok(())
}

/// Marks a snapshot as one that is to be destroyed.
pub fn begin_delete(volume: &mut Volume, which: &Which) -> Result<(), Refused> {
    let snapshot = which.of(volume)?;
    if matches!(volume.state(), State::RollingBack | State::Deleting) {
        return Err(wrong_state(volume));
    }
    set_stage(volume, &snapshot.uuid, |it| it.state = Stage::Deleting);
    Ok(())
}

/// Begins to roll back.
pub fn begin_rollback(volume: &mut Volume, which: &Which) -> Result<(), Refused> {
    let snapshot = which.of(volume)?;
    require_ready(volume)?;
    let is_open = |it: &Snapshot| matches!(it.state, Stage::Creating | Stage::Deleting);
    if let Some(open) = volume.snapshots().iter().find(|it| is_open(it)) {
        let why = format!("Snapshot {} is being created or deleted", open.name);
        return Err(Refused::WrongState(why));
    }
    if snapshot.state == Stage::Failed {
        let why = format!("Snapshot {} failed and cannot be rolled back to", snapshot.name);
        return Err(Refused::WrongState(why));
    }
    set_stage(volume, &snapshot.uuid, |it| it.reason = None);
    volume.set_rollback(Some(&Rollback { snapshot: snapshot.uuid, is_over: false }));
    volume.set_state(State::RollingBack);
    Ok(())
}

/// Notes who asked for what has just begun.
pub fn asked_by(volume: &mut Volume, which: &Which, asked: &Origin) -> Result<(), Refused> {
    let snapshot = which.of(volume)?;
    set_stage(volume, &snapshot.uuid, |it| it.asked = Some(asked.clone()));
    Ok(())
}

fn require_ready(volume: &Volume) -> Result<(), Refused> {
    if volume.state() == State::Ready { Ok(()) } else { Err(wrong_state(volume)) }
}

fn wrong_state(volume: &Volume) -> Refused {
    Refused::WrongState(format!("Volume with name {} is {}", volume.name(), volume.state()))
}

fn set_stage(volume: &mut Volume, uuid: &str, set: impl Fn(&mut Snapshot)) {
    let mut snapshots = volume.snapshots();
    snapshots.iter_mut().filter(|it| it.uuid == uuid).for_each(set);
    volume.set_snapshots(&snapshots);
}

/// The snapshot is made.
pub fn made(volume: &mut Volume, uuid: &str) {
    set_stage(volume, uuid, |it| {
        if it.state == Stage::Creating {
            it.state = Stage::Created;
        }
    });
}

/// The snapshot cannot be made.
pub fn failed(volume: &mut Volume, uuid: &str, why: &str) {
    set_stage(volume, uuid, |it| {
        if it.state == Stage::Creating {
            it.state = Stage::Failed;
            it.reason = Some(why.chars().take(REASON).collect());
        }
    });
}

/// The snapshot is destroyed.
pub fn destroyed(volume: &mut Volume, uuid: &str) {
    let mut snapshots = volume.snapshots();
    snapshots.retain(|it| it.uuid != uuid || it.state != Stage::Deleting);
    volume.set_snapshots(&snapshots);
}

/// The data is as it was; these snapshots, by their uuids, are left.
pub fn rolled_back(volume: &mut Volume, to: &str, left: &[String]) {
    if rolls_to(volume, to) {
        keep(volume, left);
        over(volume, to);
    }
}

/// The data stays as it is.
pub fn gave_up(volume: &mut Volume, to: &str, why: &str) {
    if rolls_to(volume, to) {
        let why: String = why.chars().take(REASON).collect();
        set_stage(volume, to, |it| it.reason = Some(why.clone()));
        over(volume, to);
    }
}

/// The storage VM runs again.
pub fn ready(volume: &mut Volume, to: &str) {
    if volume.rollback().is_some_and(|it| it.is_over && it.snapshot == to)
        && volume.state() == State::RollingBack
    {
        volume.set_rollback(None);
        volume.set_state(State::Ready);
    }
}

/// The storage VM is gone, and what was due cannot be done.
pub fn vm_is_gone(volume: &mut Volume, due: &Due) {
    match due {
        Due::Make(snapshot) => failed(volume, &snapshot.uuid, "the storage VM is gone"),
        Due::Destroy(snapshot) => destroyed(volume, &snapshot.uuid),
        Due::RollBack(_) => lost(volume),
        Due::Reconcile => reconciled(volume, &[]),
        Due::Wait => {}
    }
}

/// The storage VM is gone, or failed.
pub fn lost(volume: &mut Volume) {
    if volume.state() == State::RollingBack {
        volume.fail(&Failure::RolledBack);
    }
}

/// The node has only these snapshots, by their uuids.
pub fn reconciled(volume: &mut Volume, left: &[String]) {
    if volume.state() != State::RollingBack {
        keep(volume, left);
        volume.set_rollback(None);
    }
}

fn rolls_to(volume: &Volume, to: &str) -> bool {
    volume.state() == State::RollingBack
        && volume.rollback().is_some_and(|it| !it.is_over && it.snapshot == to)
}

fn over(volume: &mut Volume, to: &str) {
    volume.set_rollback(Some(&Rollback { snapshot: to.to_owned(), is_over: true }));
}

/// Keeps what is left on the node, and what need not be there.
fn keep(volume: &mut Volume, left: &[String]) {
    let need_not = |it: &Snapshot| matches!(it.state, Stage::Failed | Stage::Creating);
    let mut snapshots = volume.snapshots();
    snapshots.retain(|it| need_not(it) || left.contains(&it.uuid));
    volume.set_snapshots(&snapshots);
}

#[cfg(test)]
mod tests;
