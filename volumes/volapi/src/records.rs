// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records in the store: volumes, reservations, who has which name, and what is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::volapi::EndedSnapshot;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{Batch, Bucket, Etag, Expect, Fence, Query, Schema, Store, Versioned};

use volumes_core::history::{self, End, Wanted};
use volumes_core::networks::Way;
use volumes_core::package::Package;
use volumes_core::refused::Refused;
use volumes_core::reservation::Reservation;
use volumes_core::volume::Volume;

const VOLUMES: Schema = Schema {
    bucket: "volapi_volumes",
    version: 1,
    fields: &["uuid", "owner_uuid", "name", "state", "vm_uuid", "create_timestamp"],
    lists: &["refs"],
};
const RESERVATIONS: Schema = Schema {
    bucket: "volapi_volumes_reservations",
    version: 1,
    fields: &["owner_uuid", "volume_name", "vm_uuid", "job_uuid"],
    lists: &[],
};
const NAMES: Schema = Schema { bucket: "volapi_names", version: 1, fields: &[], lists: &[] };
const WORK: Schema =
    Schema { bucket: "volapi_work", version: 1, fields: &["instance"], lists: &[] };
const PACKAGES: Schema =
    Schema { bucket: "volapi_volume_packages", version: 1, fields: &["uuid"], lists: &[] };
const NETWORK_CHANGES: Schema =
    Schema { bucket: "volapi_network_changes", version: 1, fields: &[], lists: &[] };
const FAILURES: Schema = Schema { bucket: "volapi_failures", version: 1, fields: &[], lists: &[] };
const ARCHIVE: Schema = Schema {
    bucket: "volapi_volumes_archive",
    version: 1,
    fields: &["owner_uuid", "name"],
    lists: &[],
};

const HISTORY: Schema = Schema {
    bucket: "volapi_history",
    version: 1,
    fields: &["ended", "volume_uuid", "owner_uuid"],
    lists: &[],
};

/// So many entries of one volume are kept.
const MOST_OF_ONE: usize = 500;
/// So many entries that are too old are removed with one that is written.
const PRUNED: usize = 10;
/// How long an entry is kept unless the configuration says otherwise.
pub const KEEP: Duration = Duration::from_secs(400 * 86_400);

/// How often a write is tried again because another one came first.
const TRIES: usize = 32;

/// Who has a name among the creating and ready volumes of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub volume: String,
}

/// What is under way: written before the first request to another service, so that a later pass finds what
/// a process left that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Whose process does it.
    pub instance: String,
    pub ticket_id: String,
    /// When its ticket ends, in seconds since 1970; with the id it says which ticket that is.
    pub expires_at: i64,
    /// What is done.
    pub doing: Doing,
    /// To which volume.
    pub volume: String,
}

/// What is done to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    #[error("create")]
    Create,
    #[error("rename")]
    Rename,
    #[error("delete")]
    Delete,
    /// What is due about its snapshots; without a ticket.
    #[error("snapshots")]
    Snapshots,
}

/// A change of a volume's networks that is not over; key: the volume, which therefore has no second one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkChange {
    /// What is done.
    pub way: Way,
    pub network_uuid: String,
    /// The storage VM.
    pub vm_uuid: String,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// VMAPI is asked, or was: from here on the storage VM's NICs show whether it happened.
    pub asked: bool,
    /// VMAPI's job, once it is known.
    pub job_uuid: Option<String>,
}

/// Since when a volume is failed; key: the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In seconds since 1970.
    pub since: i64,
}

/// The buckets.
#[derive(Clone, Debug)]
pub struct Records {
    pub store: Store,
    pub volumes: Bucket<Volume>,
    pub reservations: Bucket<Reservation>,
    pub names: Bucket<Claim>,
    pub work: Bucket<Work>,
    pub packages: Bucket<Package>,
    pub network_changes: Bucket<NetworkChange>,
    pub failures: Bucket<Failure>,
    /// Volumes that failed long ago.
    pub archive: Bucket<Volume>,
    /// What has ended.
    pub history: Bucket<EndedSnapshot>,
    /// How long that is kept.
    pub history_keep: Duration,
}

impl Records {
    /// Opens the buckets.
    pub async fn open(store: Store) -> Result<Records, store::Error> {
        Ok(Records {
            volumes: Bucket::open(&store, VOLUMES).await?,
            reservations: Bucket::open(&store, RESERVATIONS).await?,
            names: Bucket::open(&store, NAMES).await?,
            work: Bucket::open(&store, WORK).await?,
            packages: Bucket::open(&store, PACKAGES).await?,
            network_changes: Bucket::open(&store, NETWORK_CHANGES).await?,
            failures: Bucket::open(&store, FAILURES).await?,
            archive: Bucket::open(&store, ARCHIVE).await?,
            history: Bucket::open(&store, HISTORY).await?,
            history_keep: KEEP,
            store,
        })
    }

    /// Returns a volume; none if there is none, or it is another owner's.
    pub async fn volume(
        &self,
        uuid: &str,
        owner: Option<&str>,
    ) -> Result<Option<Versioned<Volume>>, Refused> {
        let volume = got(self.volumes.get(uuid).await)?;
        Ok(volume.filter(|it| owner.is_none_or(|owner| it.value.owner_uuid() == owner)))
    }

    /// Returns all volumes with these values.
    pub async fn volumes_with(
        &self,
        conditions: &[(&str, &str)],
    ) -> Result<Vec<Versioned<Volume>>, Refused> {
        all(&self.volumes, conditions).await
    }

    /// Returns all reservations with these values.
    pub async fn reservations_with(
        &self,
        conditions: &[(&str, &str)],
    ) -> Result<Vec<Versioned<Reservation>>, Refused> {
        all(&self.reservations, conditions).await
    }

    /// Returns all work under way.
    pub async fn all_work(&self) -> Result<Vec<Versioned<Work>>, Refused> {
        all(&self.work, &[]).await
    }

    /// Returns the volume of this owner and name that holds the name, if there is one.
    pub async fn holder_of(&self, owner: &str, name: &str) -> Result<Option<Volume>, Refused> {
        let found = self.volumes_with(&[("name", name), ("owner_uuid", owner)]).await?;
        Ok(found.into_iter().map(|it| it.value).find(|volume| volume.state().holds_name()))
    }

    /// Adds to the batch that the volume has the name. The claim is read before it is looked whether another
    /// volume has the name: the batch conflicts with any other that gives it away since.
    pub async fn claim(
        &self,
        batch: &mut Batch,
        owner: &str,
        name: &str,
        volume: &str,
    ) -> Result<(), Refused> {
        let key = name_key(owner, name);
        let claim = Claim { volume: volume.to_owned() };
        let expect = match got(self.names.get(&key).await)? {
            Some(old) => Expect::Etag(old.etag),
            None => Expect::Absent,
        };
        if self.holder_of(owner, name).await?.is_some_and(|holder| holder.uuid() != volume) {
            return Err(Refused::NameTaken(name.to_owned()));
        }
        self.names.put_in(batch, &key, expect, &claim).map_err(of_storage)
    }

    /// Adds to the batch that the volume has the name no more, if it has it.
    pub async fn disclaim(&self, batch: &mut Batch, volume: &Volume) -> Result<(), Refused> {
        let key = name_key(volume.owner_uuid(), volume.name());
        match got(self.names.get(&key).await)? {
            Some(claim) if claim.value.volume == volume.uuid() => {
                self.names.delete_in(batch, &key, Expect::Etag(claim.etag)).map_err(of_storage)
            }
            _ => Ok(()),
        }
    }

    /// Adds to the batch that the volume's record goes, as it was read. What goes with it is in the history.
    pub async fn remove(
        &self,
        batch: &mut Batch,
        volume: &Volume,
        etag: Etag,
    ) -> Result<(), Refused> {
        self.disclaim(batch, volume).await?;
        self.add_history(batch, volume, history::gone(volume)).await?;
        self.volumes.delete_in(batch, volume.uuid(), Expect::Etag(etag)).map_err(of_storage)
    }

    /// Changes a volume as it is now: `change` is called again where another write came first. Returns
    /// what was written or found; none if the volume is gone. What ends with the change is in the history with it.
    pub async fn change(
        &self,
        uuid: &str,
        change: impl Fn(&mut Volume),
    ) -> Result<Option<Volume>, Refused> {
        self.change_under(None, uuid, change).await
    }

    /// Does as `change` does; with a fence only while its lease is held.
    pub async fn change_under(
        &self,
        fence: Option<&Fence>,
        uuid: &str,
        change: impl Fn(&mut Volume),
    ) -> Result<Option<Volume>, Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let Some(found) = got(self.volumes.get(uuid).await)? else { return Ok(None) };
            let mut wanted = found.value.clone();
            change(&mut wanted);
            if wanted == found.value {
                return Ok(Some(wanted));
            }
            let mut batch = Batch::new();
            fence.into_iter().for_each(|fence| batch.require(fence));
            let expect = Expect::Etag(found.etag);
            self.volumes.put_in(&mut batch, uuid, expect, &wanted).map_err(of_storage)?;
            self.add_history(&mut batch, &wanted, history::ended(&found.value, &wanted)).await?;
            let committed = self.store.commit(batch).await;
            if written(committed.map(drop), ())?.is_some() {
                return Ok(Some(wanted));
            }
        }
    }
}

/// The entry of what has ended about a volume.
fn entry(volume: &Volume, end: End, now: Timestamp) -> EndedSnapshot {
    let End { what, snapshot, error } = end;
    let asked = snapshot.asked.unwrap_or_default();
    let began = Timestamp::from_millisecond(asked.at).ok().filter(|_| asked.at > 0);
    EndedSnapshot {
        id: format!("{}-{what}-{}", snapshot.uuid, asked.at),
        ended: format!("{now:.3}"),
        began: began.map(|at| format!("{at:.3}")),
        what: what.to_owned(),
        outcome: if error.is_none() { "successful" } else { "failed" }.to_owned(),
        volume_uuid: volume.uuid().to_owned(),
        volume_name: volume.name().to_owned(),
        owner_uuid: volume.owner_uuid().to_owned(),
        snapshot_uuid: snapshot.uuid,
        snapshot_name: snapshot.name,
        by: asked.by,
        program: asked.program,
        error,
    }
}

impl Records {
    /// Adds entries to the batch that ends what they are about. Those that are too old go, and the oldest of a volume
    /// that has too many.
    pub async fn add_history(
        &self,
        batch: &mut Batch,
        volume: &Volume,
        ends: Vec<End>,
    ) -> Result<(), Refused> {
        let now = daemon::wall::now();
        let entries: Vec<_> = ends.into_iter().map(|end| entry(volume, end, now)).collect();
        match entries.is_empty() {
            true => Ok(()),
            false => self.end(batch, volume.uuid(), &entries, now).await.map_err(of_storage),
        }
    }

    async fn end(
        &self,
        batch: &mut Batch,
        volume: &str,
        entries: &[EndedSnapshot],
        now: Timestamp,
    ) -> Result<(), store::Error> {
        let oldest = now.checked_sub(self.history_keep).unwrap_or(Timestamp::UNIX_EPOCH);
        let oldest = format!("{oldest:.3}");
        let old = self.history.find(Query::all().by("ended").limit(PRUNED)).await?;
        let of_one = Query::all().with("volume_uuid", volume.to_owned());
        let of_one = self.history.find(of_one.by("ended").limit(MOST_OF_ONE)).await?;
        let too_many = (of_one.records.len() + entries.len()).saturating_sub(MOST_OF_ONE);
        let too_old = old.records.iter().filter(|row| row.value.ended < oldest);
        let gone: BTreeMap<_, _> = too_old
            .chain(of_one.records.iter().take(too_many))
            .filter(|row| entries.iter().all(|ended| row.key != ended.id))
            .map(|row| (row.key.clone(), row.etag.clone()))
            .collect();
        for (key, etag) in gone {
            self.history.delete_in(batch, &key, Expect::Etag(etag))?;
        }
        for ended in entries {
            self.history.put_in(batch, &ended.id, Expect::Anything, ended)?;
        }
        Ok(())
    }

    /// Returns the newest entries that are wanted.
    pub async fn ended(&self, wanted: &Wanted) -> Result<Vec<EndedSnapshot>, Refused> {
        let conditions = [("volume_uuid", &wanted.volume_uuid), ("owner_uuid", &wanted.owner_uuid)];
        let given = |(name, value): (_, &Option<String>)| Some((name, value.clone()?));
        let query = conditions.into_iter().filter_map(given);
        let query = query.fold(Query::all(), |query, (name, value)| query.with(name, value));
        let query = query.by("ended").descending().limit(history::MOST);
        let page = self.history.find(query).await.map_err(of_storage)?;
        let since = wanted.since.as_deref().unwrap_or_default();
        let all = page.records.into_iter().map(|row| row.value);
        Ok(all.filter(|entry| entry.ended.as_str() >= since).collect())
    }
}

/// Counts the attempts of a write that others come before.
#[derive(Debug, Default)]
pub struct Tries(usize);

impl Tries {
    /// Counts one more.
    pub fn another(&mut self) -> Result<(), Refused> {
        self.0 += 1;
        if self.0 <= TRIES {
            return Ok(());
        }
        Err(Refused::Storage(format!("other writes came first {TRIES} times")))
    }
}

/// Returns the value if the write happened, none if another came first.
pub fn written<T>(outcome: Result<(), store::Error>, value: T) -> Result<Option<T>, Refused> {
    match outcome {
        Ok(()) => Ok(Some(value)),
        Err(store::Error::EtagConflict { .. } | store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(of_storage(error)),
    }
}

/// Returns none for a record that is not there.
pub fn got<T>(read: Result<T, store::Error>) -> Result<Option<T>, Refused> {
    match read {
        Err(store::Error::NotFound { .. }) => Ok(None),
        read => read.map(Some).map_err(of_storage),
    }
}

/// Returns all records with these values, page after page. One that cannot be read is logged and left out.
pub async fn all<T: Serialize + DeserializeOwned>(
    bucket: &Bucket<T>,
    conditions: &[(&str, &str)],
) -> Result<Vec<Versioned<T>>, Refused> {
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let query =
            conditions.iter().fold(Query::all(), |query, (field, value)| query.with(field, *value));
        let query = after.into_iter().fold(query, Query::after);
        let page = bucket.find(query).await.map_err(of_storage)?;
        for error in page.unreadable {
            tracing::error!(%error, "cannot read a record; leaving it out");
        }
        found.extend(page.records.into_iter().map(|record| (record.key.clone(), record)));
        match page.next {
            Some(marker) => after = Some(marker),
            None => return Ok(found.into_values().collect()),
        }
    }
}

/// Returns the answer to a request that met a failure of the store.
pub fn of_storage(error: store::Error) -> Refused {
    if error.is_away() {
        tracing::warn!(%error, "no answer from the store; answering with an error");
        return Refused::StorageAway;
    }
    tracing::error!(%error, "the store refused a request; answering with an error");
    Refused::Storage(error.to_string())
}

/// Names may be longer than keys.
fn name_key(owner: &str, name: &str) -> String {
    blake3::hash(format!("{owner}-{name}").as_bytes()).to_string()
}
