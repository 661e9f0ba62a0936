// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What follows from a VM's state: here a volume whose storage VM runs becomes `ready`, and one whose storage VM is
//! gone goes. The records are read first, then the VM, then they are written as they were read: what is written never
//! rests on an older reading of the VM than the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::workflow::Job;
use serde_json::{Map, Value};
use store::{Batch, Expect, Fence, Versioned};
use tokio::time::Instant;

use super::state::{Count, Shared};
use crate::records::{Tries, of_storage, written};
use volumes_core::facts::{self, Fact, VmState};
use volumes_core::history;
use volumes_core::jobs::{Verdict, judge};
use volumes_core::reduce::{Change, Judged, is_degraded, of_vm};
use volumes_core::refused::Refused;
use volumes_core::reservation::Reservation;
use volumes_core::volume::{State, Volume};

/// Why reading a VM, or a pass, failed.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Another service did not answer.
    #[error(transparent)]
    Peer(#[from] sdc_clients::Error),
    #[error(transparent)]
    Storage(#[from] Refused),
}

/// The records that a VM matters to.
struct Concerned {
    volumes: Vec<Versioned<Volume>>,
    reservations: Vec<Versioned<Reservation>>,
}

/// Follows VMs: records follow their states.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    /// Since when the storage VMs of ready volumes are stopped, as this instance saw with the lease it has.
    stopped: Mutex<BTreeMap<String, Instant>>,
}

impl Follower {
    pub(super) fn new(shared: &Arc<Shared>) -> Follower {
        Follower { shared: Arc::clone(shared), stopped: Mutex::default() }
    }

    /// Notes whether the storage VM of a ready volume is stopped; returns whether it has been for longer
    /// than a reboot takes.
    fn is_patience_over(&self, vm: &str, is_degraded: bool) -> bool {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_degraded {
            stopped.remove(vm);
            return false;
        }
        let since = *stopped.entry(vm.to_owned()).or_insert_with(Instant::now);
        since.elapsed() >= self.shared.settings.reboot_grace
    }

    /// Forgets which storage VMs are stopped: what they do until this instance has the lease again, another one sees.
    pub fn forget_stopped(&self) {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the stopped storage VMs of ready volumes.
    pub fn degraded(&self) -> Vec<String> {
        self.stopped_for().into_keys().collect()
    }

    /// Returns them with how long they have been so.
    pub fn stopped_for(&self) -> BTreeMap<String, Duration> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.iter().map(|(vm, since)| (vm.clone(), since.elapsed())).collect()
    }

    /// Reads a VM and writes what follows from its state. Writing requires the lease.
    pub async fn follow(&self, vm: &str, fence: Option<&Fence>) -> Result<(), Trouble> {
        let became_ready = self.follow_with(vm, None, None, fence).await?;
        for volume in became_ready {
            self.use_reserved(&volume, fence).await?;
        }
        Ok(())
    }

    /// Those that have reserved what is ready now use it.
    pub(super) async fn use_reserved(
        &self,
        volume: &Volume,
        fence: Option<&Fence>,
    ) -> Result<(), Trouble> {
        let of_it = [("volume_name", volume.name()), ("owner_uuid", volume.owner_uuid())];
        for reservation in self.shared.records.reservations_with(&of_it).await? {
            self.follow_with(&reservation.value.vm_uuid, None, None, fence).await?;
        }
        Ok(())
    }

    /// The same, with what is known of the VM already, or of the jobs of its reservations. Returns the
    /// volumes that became ready.
    async fn follow_with(
        &self,
        vm: &str,
        known: Option<&Fact>,
        jobs: Option<Verdict>,
        fence: Option<&Fence>,
    ) -> Result<Vec<Volume>, Trouble> {
        self.shared.counts.add(Count::Looks);
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let mut concerned = self.concerned(vm).await?;
            let read;
            let known = match known {
                Some(known) => known,
                None => {
                    read = self.shared.peers.vm(vm).await?;
                    &read
                }
            };
            self.add_needed(&mut concerned, known).await?;
            let volumes: Vec<Volume> =
                concerned.volumes.iter().map(|volume| volume.value.clone()).collect();
            let reservations: Vec<Reservation> =
                concerned.reservations.iter().map(|it| it.value.clone()).collect();
            let is_waiting =
                volumes.iter().any(|volume| volume.vm_uuid() == vm && is_degraded(volume, known));
            let patience_over = self.is_patience_over(vm, is_waiting);
            let judged = Judged { patience_over, jobs, follows_nics: self.shared.settings.rfd26 };
            let changes = of_vm(vm, known, &volumes, &reservations, judged);
            if let Some(ready) = self.apply(&concerned, changes, fence).await? {
                return Ok(ready);
            }
        }
    }

    /// Reads the records that name the VM.
    async fn concerned(&self, vm: &str) -> Result<Concerned, Refused> {
        let mut volumes = self.shared.records.volumes_with(&[("refs", vm)]).await?;
        volumes.extend(self.shared.records.volumes_with(&[("vm_uuid", vm)]).await?);
        let reservations = self.shared.records.reservations_with(&[("vm_uuid", vm)]).await?;
        Ok(Concerned { volumes, reservations })
    }

    /// Adds the volumes that the VM needs by their names.
    async fn add_needed(&self, concerned: &mut Concerned, known: &Fact) -> Result<(), Refused> {
        let Fact::Vm(fact) = known else { return Ok(()) };
        if !matches!(fact.state, VmState::Running | VmState::Stopped) {
            return Ok(());
        }
        let mut seen: BTreeSet<String> =
            concerned.volumes.iter().map(|volume| volume.key.clone()).collect();
        for name in fact.needs.iter().flatten() {
            let of_it = [("name", name.as_str()), ("owner_uuid", &fact.owner_uuid)];
            let found = self.shared.records.volumes_with(&of_it).await?;
            concerned.volumes.extend(found.into_iter().filter(|it| seen.insert(it.key.clone())));
        }
        Ok(())
    }

    /// Writes the changes, all or none; none returned where another write came first.
    async fn apply(
        &self,
        concerned: &Concerned,
        changes: Vec<Change>,
        fence: Option<&Fence>,
    ) -> Result<Option<Vec<Volume>>, Refused> {
        if changes.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let was = |uuid: &str| concerned.volumes.iter().find(|volume| volume.key == uuid);
        let mut batch = Batch::new();
        fence.into_iter().for_each(|fence| batch.require(fence));
        let mut ready = Vec::new();
        for change in changes {
            match change {
                Change::Put(mut volume) => {
                    let Some(was) = was(volume.uuid()) else { continue };
                    if !self.has_name(&mut batch, &was.value, &volume).await? {
                        volume.set_state(was.value.state());
                    }
                    if volume == was.value {
                        continue;
                    }
                    if volume.state() == State::Ready && was.value.state() != State::Ready {
                        ready.push(volume.clone());
                    }
                    if let Some(why) = volume.failure().filter(|_| was.value.failure().is_none()) {
                        tracing::warn!(
                            volume = volume.uuid(),
                            why,
                            "set the volume to failed: no VM can begin to use it; `sdc-voladm check` has the repair"
                        );
                    }
                    let expect = Expect::Etag(was.etag.clone());
                    let records = &self.shared.records;
                    records
                        .volumes
                        .put_in(&mut batch, volume.uuid(), expect, &volume)
                        .map_err(of_storage)?;
                    // A roll-back ends with its storage VM.
                    let ends = history::ended(&was.value, &volume);
                    records.add_history(&mut batch, &volume, ends).await?;
                }
                Change::Remove(volume) => {
                    let Some(was) = was(volume.uuid()) else { continue };
                    self.shared.records.remove(&mut batch, &volume, was.etag.clone()).await?;
                }
                Change::Release(reservation) => {
                    let of_it = |it: &&Versioned<Reservation>| it.key == reservation.uuid;
                    let Some(was) = concerned.reservations.iter().find(of_it) else { continue };
                    let expect = Expect::Etag(was.etag.clone());
                    self.shared
                        .records
                        .reservations
                        .delete_in(&mut batch, &was.key, expect)
                        .map_err(of_storage)?;
                }
            }
        }
        written(self.shared.records.store.commit(batch).await.map(drop), ready)
    }

    /// Adds to the batch that a volume which comes back has its name again. Returns false if another one got
    /// the name meanwhile.
    async fn has_name(
        &self,
        batch: &mut Batch,
        was: &Volume,
        wanted: &Volume,
    ) -> Result<bool, Refused> {
        if was.state().holds_name() || !wanted.state().holds_name() {
            return Ok(true);
        }
        let (owner, name, uuid) = (wanted.owner_uuid(), wanted.name(), wanted.uuid());
        match self.shared.records.claim(batch, owner, name, uuid).await {
            Err(Refused::NameTaken(name)) => {
                tracing::warn!(uuid, name, "the volume stays failed: another volume has its name");
                Ok(false)
            }
            claimed => claimed.map(|()| true),
        }
    }

    /// Reads every VM that matters to volumes, given the records of all that are neither destroyed nor
    /// failed: storage VMs first, so that what became ready is there for its users.
    /// Fails if VMAPI or the storage does not answer; what was written until then stays.
    pub async fn take_listing(
        &self,
        vms: &[Map<String, Value>],
        fence: Option<&Fence>,
    ) -> Result<(), Trouble> {
        let uuid = |vm: &Map<String, Value>| Some(vm.get("uuid")?.as_str()?.to_owned());
        let listed: BTreeMap<String, Fact> =
            vms.iter().filter_map(|vm| Some((uuid(vm)?, facts::read(vm)))).collect();
        let (mut storage, mut users) = (BTreeSet::new(), BTreeSet::new());
        for volume in self.shared.records.volumes_with(&[]).await? {
            storage.insert(volume.value.vm_uuid().to_owned());
            users.extend(volume.value.refs().into_iter().map(str::to_owned));
        }
        for reservation in self.shared.records.reservations_with(&[]).await? {
            users.insert(reservation.value.vm_uuid);
        }
        let needy = |known: &Fact| matches!(known, Fact::Vm(fact) if fact.needs.is_some());
        users.extend(listed.iter().filter(|(_, known)| needy(known)).map(|(vm, _)| vm.clone()));
        for vm in storage.iter().chain(users.difference(&storage)) {
            // A VM that is not listed is asked for: it may have come since.
            self.follow_with(vm, listed.get(vm), None, fence).await?;
        }
        self.shared.counts.add(Count::Listings);
        Ok(())
    }

    /// Reads the jobs of all reservations, and the VMs of those that are not to be left alone.
    /// Fails if the storage does not answer. A job or a VM that cannot be asked about waits for the next pass.
    pub async fn check_jobs(&self, fence: Option<&Fence>) -> Result<(), Trouble> {
        let mut verdicts: BTreeMap<String, Verdict> = BTreeMap::new();
        for reservation in self.shared.records.reservations_with(&[]).await? {
            let reservation = reservation.value;
            let verdict = match self.verdict(&reservation).await {
                Ok(verdict) => verdict,
                Err(error) => {
                    tracing::warn!(%error, job = reservation.job_uuid, "cannot read a job from the workflow API; its reservation stays until the next pass");
                    Verdict::Leave
                }
            };
            // The most patient one of a VM's jobs counts.
            let of_vm = verdicts.entry(reservation.vm_uuid).or_insert(verdict);
            *of_vm = verdict.min(*of_vm);
        }
        for (vm, verdict) in verdicts.into_iter().filter(|(_, it)| *it > Verdict::Leave) {
            match self.follow_with(&vm, None, Some(verdict), fence).await {
                Err(Trouble::Peer(error)) => {
                    tracing::warn!(%error, vm, "cannot read a VM from VMAPI; its reservations stay until the next pass");
                }
                looked => drop(looked?),
            }
        }
        Ok(())
    }

    async fn verdict(&self, reservation: &Reservation) -> Result<Verdict, sdc_clients::Error> {
        let job = self.shared.peers.job(&reservation.job_uuid).await?;
        let made = job.as_ref().and_then(Job::ordered_at).map(Timestamp::as_millisecond);
        let made = made.unwrap_or(reservation.create_timestamp);
        let age = u64::try_from(daemon::wall::now().as_millisecond() - made).unwrap_or_default();
        let age = Duration::from_millis(age);
        Ok(judge(job.as_ref().map(|job| &*job.execution), age))
    }
}
