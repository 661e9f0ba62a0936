// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Snapshots of volumes (RFD 26 §Snapshots). A request writes down what is to be, together with the work that it makes;
//! then it is done as far as it can be done at once. What is left, and what a process leaves that dies, a later pass
//! ends: nothing is done here unless the record shows that it is due.

use std::sync::Arc;
use std::time::Duration;

use daemon::http::Sender;
use serde_json::{Value, json};
use store::{Batch, Expect};
use tokio::sync::Notify;
use uuid::Uuid;

use super::delete::{Deletes, Ended, is_gone, passed_on};
use super::follow::Trouble;
use super::networks::NetworkChanges;
use super::rollbacks::Rollbacks;
use super::state::{Count, Right, Shared};
use super::works::{Busy, Works};
use crate::peers::{Place, is_refusal};
use crate::records::{Doing, Tries, Work, of_storage, written};
use volumes_core::facts::Fact;
use volumes_core::refused::Refused;
use volumes_core::snapshot::{Origin, Snapshot, Stage};
use volumes_core::snapshots::{self as rules, Due, Request, RollBack, Which};
use volumes_core::volume::Volume;

/// Another instance takes over what was not done in this time, in seconds.
const LIFE: i64 = 120;

fn by(sender: &Sender) -> Origin {
    let Sender { by, program } = sender.clone();
    Origin { by, program, at: daemon::wall::now().as_millisecond() }
}

/// Makes, lists and deletes snapshots, and begins roll-backs.
#[derive(Debug)]
pub struct Snapshots {
    shared: Arc<Shared>,
    works: Arc<Works>,
    deletes: Arc<Deletes>,
    networks: Arc<NetworkChanges>,
    rollbacks: Rollbacks,
    /// Wakes the pass over what is left.
    hurry: Notify,
}

impl Snapshots {
    pub(super) fn new(
        shared: &Arc<Shared>,
        works: &Arc<Works>,
        deletes: &Arc<Deletes>,
        networks: &Arc<NetworkChanges>,
        rollbacks: Rollbacks,
    ) -> Snapshots {
        let (shared, works) = (Arc::clone(shared), Arc::clone(works));
        let (deletes, networks) = (Arc::clone(deletes), Arc::clone(networks));
        Snapshots { shared, works, deletes, networks, rollbacks, hurry: Notify::new() }
    }

    /// Makes a snapshot; returns the volume with it: created, failed, or in state creating where the node did not
    /// answer yet.
    pub async fn create(&self, asked: &Request, sender: &Sender) -> Result<Value, Refused> {
        let uuid = Uuid::new_v4().to_string();
        let new = Snapshot {
            name: asked.name.clone().unwrap_or_else(|| uuid.clone()),
            uuid,
            create_timestamp: daemon::wall::now().as_millisecond(),
            state: Stage::Creating,
            reason: None,
            asked: Some(by(sender)),
        };
        let most = self.shared.settings.max_snapshots;
        let add = |volume: &mut Volume| rules::begin_create(volume, new.clone(), most);
        let (busy, right) = self.begin(&asked.uuid, asked.owner_uuid.as_deref(), add).await?;
        self.carry(busy, &asked.uuid, right).await;
        Ok(self.volume_of(&asked.uuid, None).await?.shown())
    }

    /// Returns the snapshots of a volume, or those of one name.
    pub async fn all(&self, asked: &Request) -> Result<Value, Refused> {
        let volume = self.volume_of(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        let is_asked = |it: &&Snapshot| asked.name.as_ref().is_none_or(|name| *name == it.name);
        Ok(volume.snapshots().iter().filter(is_asked).map(Snapshot::shown).collect())
    }

    /// Returns a snapshot.
    pub async fn one(&self, (asked, which): &(Request, Which)) -> Result<Value, Refused> {
        let volume = self.volume_of(&asked.uuid, asked.owner_uuid.as_deref()).await?;
        Ok(which.of(&volume)?.shown())
    }

    /// Deletes a snapshot; returns the uuids of the job and of the volume. The snapshot is there until the node has
    /// destroyed it.
    pub async fn delete(
        &self,
        (asked, which): &(Request, Which),
        sender: &Sender,
    ) -> Result<Value, Refused> {
        let by = by(sender);
        let mark = |volume: &mut Volume| {
            rules::begin_delete(volume, which)?;
            rules::asked_by(volume, which, &by)
        };
        let (busy, right) = self.begin(&asked.uuid, asked.owner_uuid.as_deref(), mark).await?;
        let answer = json!({"job_uuid": busy.key(), "volume_uuid": asked.uuid});
        self.carry(busy, &asked.uuid, right).await;
        Ok(answer)
    }

    /// Begins to roll a volume back; returns it in state `rolling_back`. It is ready when its storage VM runs again.
    pub async fn roll_back(&self, asked: &RollBack, sender: &Sender) -> Result<Value, Refused> {
        let owner = asked.owner_uuid.as_deref();
        let volume = self.volume_of(&asked.uuid, owner).await?;
        let snapshot = asked.to.of(&volume)?;
        rules::begin_rollback(&mut volume.clone(), &asked.to)?;
        if self.networks.is_changing(&asked.uuid).await? {
            return Err(Refused::NetworksChanging(volume.name().to_owned()));
        }
        if !asked.force {
            self.deletes.require_unused(&volume).await.map_err(Ended::refused)?;
        }
        self.require_on_node(&volume, &snapshot).await?;
        let by = by(sender);
        let mark = |volume: &mut Volume| {
            rules::begin_rollback(volume, &asked.to)?;
            rules::asked_by(volume, &asked.to, &by)
        };
        let (busy, right) = self.begin(&asked.uuid, owner, mark).await?;
        self.carry(busy, &asked.uuid, right).await;
        let volume = self.volume_of(&asked.uuid, None).await?;
        let now = Which::Uuid(snapshot.uuid).of(&volume);
        match now.ok().and_then(|snapshot| snapshot.reason) {
            Some(why) => Err(Refused::NotRolledBack(why)),
            None => Ok(volume.shown()),
        }
    }

    async fn volume_of(&self, uuid: &str, owner: Option<&str>) -> Result<Volume, Refused> {
        let found = self.shared.records.volume(uuid, owner).await?;
        Ok(found.ok_or_else(|| Refused::NoVolume(uuid.to_owned()))?.value)
    }

    /// Refuses if the node cannot be asked, or does not have the snapshot: a storage VM is not stopped in vain.
    async fn require_on_node(&self, volume: &Volume, snapshot: &Snapshot) -> Result<(), Refused> {
        let known =
            self.shared.peers.vm(volume.vm_uuid()).await.map_err(|error| passed_on(&error))?;
        let node = match &known {
            Fact::Vm(vm) => vm.server_uuid.as_deref(),
            Fact::Gone | Fact::Nothing => None,
        };
        let Some(at) = Place::of(node, volume.vm_uuid()) else {
            let why = "VMAPI's record of the storage VM has no node";
            return Err(Refused::NotRolledBack(why.to_owned()));
        };
        let found = self.shared.peers.snapshots(at).await.map_err(|error| Refused::Peer {
            status: 503,
            code: Some("ServiceUnavailable".to_owned()),
            message: format!("the node of the storage VM: {}", error.message()),
        })?;
        if found.contains(&snapshot.uuid) {
            return Ok(());
        }
        Err(Refused::NotRolledBack(format!("the node does not have snapshot {}", snapshot.name)))
    }

    /// Changes a volume, and writes down that there is work to be done.
    async fn begin(
        &self,
        uuid: &str,
        owner: Option<&str>,
        change: impl Fn(&mut Volume) -> Result<(), Refused>,
    ) -> Result<(Busy<'_>, Right<'static>), Refused> {
        let busy = self.works.busy_with_new();
        let work = Work {
            instance: self.shared.settings.instance.clone(),
            ticket_id: String::new(),
            expires_at: daemon::wall::now().as_second() + LIFE,
            doing: Doing::Snapshots,
            volume: uuid.to_owned(),
        };
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let found = self.shared.records.volume(uuid, owner).await?;
            let found = found.ok_or_else(|| Refused::NoVolume(uuid.to_owned()))?;
            let mut volume = found.value;
            change(&mut volume)?;
            let mut batch = Batch::new();
            let expect = Expect::Etag(found.etag);
            self.shared
                .records
                .volumes
                .put_in(&mut batch, uuid, expect, &volume)
                .map_err(of_storage)?;
            self.shared
                .records
                .work
                .put_in(&mut batch, busy.key(), Expect::Absent, &work)
                .map_err(of_storage)?;
            let committed = self.shared.records.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return Ok((busy, Right::Own(work.expires_at)));
            }
        }
    }

    /// Does what can be done at once; the rest is left to a later pass, which is woken.
    async fn carry(&self, busy: Busy<'_>, volume: &str, right: Right<'_>) {
        match self.settle(volume, right).await {
            Ok(true) => self.works.forget(busy.key()).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, volume, "cannot read a volume's snapshots; they are read in the next pass")
            }
        }
        drop(busy);
        self.hurry.notify_one();
    }

    /// Does what is due about a volume's snapshots. Returns false if something has to be waited for.
    pub(super) async fn settle(&self, uuid: &str, right: Right<'_>) -> Result<bool, Trouble> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let found = self.shared.records.volume(uuid, None).await?;
            let due = found.as_ref().and_then(|found| rules::due(&found.value));
            let (Some(found), Some(due)) = (found, due) else {
                self.rollbacks.is_done(uuid);
                return Ok(true);
            };
            if !self.act(&found.value, &due, right).await? {
                return Ok(false);
            }
        }
    }

    /// Does the next thing; returns false if something has to be waited for.
    async fn act(&self, volume: &Volume, due: &Due, right: Right<'_>) -> Result<bool, Trouble> {
        let uuid = volume.uuid();
        if *due == Due::Wait {
            return Ok(false);
        }
        let known = self.shared.peers.vm(volume.vm_uuid()).await?;
        if !right.holds() {
            return Ok(false);
        }
        if is_gone(&known) {
            self.shared
                .records
                .change_under(right.fence(), uuid, |volume| rules::vm_is_gone(volume, due))
                .await?;
            return Ok(true);
        }
        let Fact::Vm(vm) = known else { return Ok(false) };
        let Some(at) = Place::of(vm.server_uuid.as_deref(), volume.vm_uuid()) else {
            return Ok(false);
        };
        match due {
            Due::Make(snapshot) => self.make(uuid, at, snapshot, right).await?,
            Due::Destroy(snapshot) => {
                self.shared.peers.destroy_snapshot(at, &snapshot.uuid).await?;
                let done = |volume: &mut Volume| rules::destroyed(volume, &snapshot.uuid);
                self.shared.records.change_under(right.fence(), uuid, done).await?;
            }
            Due::RollBack(rollback) => {
                return self.rollbacks.go_on(volume, at, rollback, &vm, right).await;
            }
            Due::Reconcile => {
                let left = self.shared.peers.snapshots(at).await?;
                self.shared
                    .records
                    .change_under(right.fence(), uuid, |volume| rules::reconciled(volume, &left))
                    .await?;
            }
            Due::Wait => return Ok(false),
        }
        Ok(true)
    }

    async fn make(
        &self,
        volume: &str,
        at: Place,
        snapshot: &Snapshot,
        right: Right<'_>,
    ) -> Result<(), Trouble> {
        match self.shared.peers.make_snapshot(at, &snapshot.uuid).await {
            Ok(()) => {
                let done = |volume: &mut Volume| rules::made(volume, &snapshot.uuid);
                self.shared.records.change_under(right.fence(), volume, done).await?;
                self.shared.counts.add(Count::SnapshotsMade);
            }
            Err(error) if is_refusal(&error) => {
                tracing::warn!(%error, volume, "the node refused a snapshot; it is marked failed");
                let why = error.message();
                let done = |volume: &mut Volume| rules::failed(volume, &snapshot.uuid, why);
                self.shared.records.change_under(right.fence(), volume, done).await?;
                self.shared.counts.add(Count::SnapshotsFailed);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Waits until what is left is worth another look: a moment while storage VMs are being stopped or started, else
    /// until more is left, at most `longest`.
    pub async fn until_due(&self, longest: Duration) {
        let pause = if self.rollbacks.is_waiting() { Duration::from_secs(1) } else { longest };
        // Both arms are cancel-safe.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.hurry.notified() => {}
        }
    }
}
