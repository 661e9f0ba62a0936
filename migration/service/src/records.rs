// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the records are kept: buckets of the store.

use serde_json::{Value, json};
use store::{Batch, Bucket, Error, Etag, Expect, Fence, Marker, Query, Schema, Store};
use uuid::Uuid;

use migration_core::progress::Latest;
use migration_core::record::{Filter, Record, is_of_vm};
use migration_core::time::Time;

/// The deployed service's bucket, and its indexed fields.
const RECORDS: Schema = Schema {
    bucket: "vmapi_vm_migrations",
    version: 2,
    fields: &[
        "vm_uuid",
        "owner_uuid",
        "source_server_uuid",
        "target_server_uuid",
        "state",
        "created_timestamp",
    ],
    lists: &[],
};

/// One row per VM that was ever migrated, written with each new record: of two begins at once one loses. It has the
/// ids of the VM's last records, also of those that have gone.
const LOCKS: Schema = Schema { bucket: "migration_locks", version: 1, fields: &[], lists: &[] };

/// So many ids of a VM's records are remembered.
const MOST_IDS: usize = 64;

/// The last record of each VM that went, by the operations of its history, whose ids are jobs for the callers.
const PAST: Schema = Schema { bucket: "migration_past", version: 1, fields: &[], lists: &["jobs"] };

/// The latest event of bytes of each VM, so that every service has it for its watchers.
const EVENTS: Schema = Schema { bucket: "migration_events", version: 1, fields: &[], lists: &[] };

/// When the service that does the rounds was last heard of.
const LEADER: Schema = Schema { bucket: "migration_leader", version: 1, fields: &[], lists: &[] };
/// The one key of that bucket.
const SEEN: &str = "seen";

/// A record and the version that was read.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The record.
    pub record: Record,
    etag: Etag,
}

/// The records.
#[derive(Clone, Debug)]
pub struct Records {
    store: Store,
    records: Bucket<Value>,
    locks: Bucket<Value>,
    past: Bucket<Value>,
    events: Bucket<Value>,
    leader: Bucket<Value>,
}

impl Records {
    /// Opens the buckets.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(store: &Store) -> Result<Records, Error> {
        Ok(Records {
            store: store.clone(),
            records: Bucket::open(store, RECORDS).await?,
            locks: Bucket::open(store, LOCKS).await?,
            past: Bucket::open(store, PAST).await?,
            events: Bucket::open(store, EVENTS).await?,
            leader: Bucket::open(store, LEADER).await?,
        })
    }

    /// Returns the newest record of a VM that is not over.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn of_vm(&self, vm: Uuid) -> Result<Option<Kept>, Error> {
        let all = self.found(Query::all().with("vm_uuid", vm.to_string())).await?;
        let of_vm = all.into_iter().filter(|kept| is_of_vm(&kept.record, vm));
        Ok(of_vm.max_by_key(|kept| kept.record.created_timestamp))
    }

    /// Returns the records that a filter admits, the newest first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Kept>, Error> {
        let mut query = Query::all();
        if let Some(vm) = filter.vm_uuid.as_deref().filter(|vm| *vm != "*") {
            query = query.with("vm_uuid", vm);
        }
        let mut found = self.found(query).await?;
        found.retain(|kept| filter.admits(&kept.record));
        found
            .sort_by_key(|kept| std::cmp::Reverse((kept.record.created_timestamp, kept.record.id)));
        Ok(found)
    }

    /// Returns all records, also those that are over.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn all(&self) -> Result<Vec<Kept>, Error> {
        self.found(Query::all()).await
    }

    /// Returns the record that an operation belongs to, also if it was the VM's last one and has gone.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn of_job(&self, job: Uuid) -> Result<Option<Record>, Error> {
        let all = self.all().await?;
        if let Some(kept) = all.into_iter().find(|kept| jobs(&kept.record).any(|it| it == job)) {
            return Ok(Some(kept.record));
        }
        let page = self.past.find(Query::all().with("jobs", job.to_string())).await?;
        let mut records = page.records.iter().map(|row| Record::read(&row.value["record"]));
        Ok(records.next().and_then(Result::ok))
    }

    /// Returns true if somebody else has changed the record, or removed it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn is_changed(&self, kept: &Kept) -> Result<bool, Error> {
        match self.records.get(&kept.record.id.to_string()).await {
            Ok(found) => Ok(found.etag != kept.etag),
            Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the record with this id.
    ///
    /// # Errors
    /// Those of the store; a record that cannot be read is [`Error::Corrupt`].
    pub async fn get(&self, id: Uuid) -> Result<Option<Kept>, Error> {
        match self.records.get(&id.to_string()).await {
            Ok(found) => {
                let corrupt = |why: migration_core::record::Invalid| Error::Corrupt {
                    bucket: RECORDS.bucket.into(),
                    key: found.key.clone(),
                    why: why.to_string(),
                };
                let record = Record::read(&found.value).map_err(corrupt)?;
                Ok(Some(Kept { record, etag: found.etag }))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns which of these ids no record has, and none that has gone had.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn unknown(&self, among: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let mut unknown = Vec::new();
        for id in among {
            match self.records.get(&id.to_string()).await {
                Ok(_) => {}
                Err(Error::NotFound { .. }) => unknown.push(*id),
                Err(error) => return Err(error),
            }
        }
        let mut marker: Option<Marker> = None;
        while !unknown.is_empty() {
            let query = match marker {
                Some(marker) => Query::all().after(marker),
                None => Query::all(),
            };
            let page = self.locks.find(query).await?;
            for row in &page.records {
                let known = ids(&row.value);
                unknown.retain(|id| !known.contains(id));
            }
            match page.next {
                Some(next) => marker = Some(next),
                None => break,
            }
        }
        Ok(unknown)
    }

    /// Stores a new record.
    ///
    /// # Errors
    /// [`Error::EtagConflict`] if another record of the VM was stored since `lock` was read.
    pub async fn create(&self, record: Record, lock: Lock) -> Result<Kept, Error> {
        let (id, vm) = (record.id.to_string(), record.vm_uuid.to_string());
        let mut batch = Batch::new();
        self.records.put_in(&mut batch, &id, Expect::Absent, &record.to_json())?;
        let older = lock.1.into_iter().take(MOST_IDS - 1);
        let ids: Vec<Uuid> = std::iter::once(record.id).chain(older).collect();
        let row = json!({"vm_uuid": vm, "id": id, "ids": ids});
        self.locks.put_in(&mut batch, &vm, lock.0, &row)?;
        let mut etags = self.commit(batch, &record).await?;
        let etag = etags.swap_remove(0).ok_or(Error::Unavailable { why: "no etag".into() })?;
        Ok(Kept { record, etag })
    }

    /// Reads what [`Records::create`] compares with. To be read before the VM's records are.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn lock(&self, vm: Uuid) -> Result<Lock, Error> {
        match self.locks.get(&vm.to_string()).await {
            Ok(found) => Ok(Lock(Expect::Etag(found.etag), ids(&found.value))),
            Err(Error::NotFound { .. }) => Ok(Lock(Expect::Absent, Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// Writes a record that was changed, if nobody else has changed it since it was read, and if the lease
    /// is held under `fence` where one is given.
    ///
    /// # Errors
    /// [`Error::EtagConflict`], [`Error::Fenced`], and those of the store.
    pub async fn write(&self, kept: &mut Kept, fence: Option<&Fence>) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        let (id, expect) = (kept.record.id.to_string(), Expect::Etag(kept.etag.clone()));
        self.records.put_in(&mut batch, &id, expect, &kept.record.to_json())?;
        let mut etags = self.commit(batch, &kept.record).await?;
        kept.etag = etags.swap_remove(0).ok_or(Error::Unavailable { why: "no etag".into() })?;
        Ok(())
    }

    /// Stores a record whatever is there, as the jobs of the deployed service do.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn overwrite(&self, record: &Record) -> Result<(), Error> {
        let id = record.id.to_string();
        self.records.put(&id, Expect::Anything, &record.to_json()).await.map(drop)
    }

    /// Removes a record, if nobody has changed it since it was read. Its operations are remembered until
    /// another record of the VM goes.
    ///
    /// # Errors
    /// As [`Records::write`].
    pub async fn remove(&self, kept: &Kept, fence: Option<&Fence>) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        let (id, expect) = (kept.record.id.to_string(), Expect::Etag(kept.etag.clone()));
        self.records.delete_in(&mut batch, &id, expect)?;
        let jobs: Vec<Uuid> = jobs(&kept.record).collect();
        let row = json!({"jobs": jobs, "record": kept.record.to_json()});
        self.past.put_in(&mut batch, &kept.record.vm_uuid.to_string(), Expect::Anything, &row)?;
        match self.store.commit(batch).await {
            Err(Error::UnknownOutcome { why }) => match self.get(kept.record.id).await? {
                None => Ok(()),
                Some(_) => Err(Error::UnknownOutcome { why }),
            },
            done => done.map(drop),
        }
    }

    /// Returns when the service that does the rounds was last heard of.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn seen(&self) -> Result<Option<Time>, Error> {
        match self.leader.get(SEEN).await {
            Ok(found) => Ok(serde_json::from_value(found.value["at"].clone()).ok()),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says that this service does the rounds.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn put_seen(&self, now: Time) -> Result<(), Error> {
        self.leader.put(SEEN, Expect::Anything, &json!({ "at": now })).await.map(drop)
    }

    /// Returns the latest event of bytes of a VM.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn event(&self, vm: Uuid) -> Result<Option<Latest>, Error> {
        match self.events.get(&vm.to_string()).await {
            Ok(found) => {
                let of = serde_json::from_value(found.value["of"].clone()).unwrap_or_default();
                Ok(Some(Latest { of, event: found.value["event"].clone() }))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores the latest event of bytes of a VM.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn put_event(&self, vm: Uuid, latest: &Latest) -> Result<(), Error> {
        let row = json!({"of": latest.of, "event": latest.event});
        self.events.put(&vm.to_string(), Expect::Anything, &row).await.map(drop)
    }

    /// Removes the latest event of bytes of a VM.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn forget_event(&self, vm: Uuid) -> Result<(), Error> {
        match self.events.delete(&vm.to_string(), Expect::Anything).await {
            Err(Error::NotFound { .. }) => Ok(()),
            done => done,
        }
    }

    /// Commits a batch that puts this record. A reply that was lost is read back: the step is not done twice.
    async fn commit(&self, batch: Batch, record: &Record) -> Result<Vec<Option<Etag>>, Error> {
        match self.store.commit(batch).await {
            Err(Error::UnknownOutcome { why }) => match self.get(record.id).await? {
                Some(there) if there.record.to_json() == record.to_json() => {
                    Ok(vec![Some(there.etag)])
                }
                _ => Err(Error::UnknownOutcome { why }),
            },
            done => done,
        }
    }

    /// Returns the records of a query. Those that cannot be read are in the log.
    async fn found(&self, query: Query) -> Result<Vec<Kept>, Error> {
        let (mut found, mut marker): (Vec<Kept>, Option<Marker>) = (Vec::new(), None);
        loop {
            let page = match marker {
                Some(marker) => query.clone().after(marker),
                None => query.clone(),
            };
            let page = self.records.find(page).await?;
            for unreadable in page.unreadable {
                tracing::error!(reason = %unreadable, "a record cannot be read");
            }
            for row in page.records {
                match Record::read(&row.value) {
                    Ok(record) => found.push(Kept { record, etag: row.etag }),
                    Err(why) => {
                        tracing::error!(id = row.key, reason = %why, "a record cannot be read")
                    }
                }
            }
            match page.next {
                Some(next) => marker = Some(next),
                None => return Ok(found),
            }
        }
    }
}

/// The ids of a record's operations, and of the one that waits for its turn.
fn jobs(record: &Record) -> impl Iterator<Item = Uuid> {
    let entries = record.progress_history.iter().filter_map(|entry| entry.job_uuid);
    entries.chain(record.journal.job)
}

/// The ids that a VM's row has, the newest first.
fn ids(row: &Value) -> Vec<Uuid> {
    match row.get("ids") {
        Some(ids) => serde_json::from_value(ids.clone()).unwrap_or_default(),
        None => serde_json::from_value(row["id"].clone()).into_iter().collect(),
    }
}

/// What [`Records::create`] expects of the VM's row, and the ids that it has.
#[derive(Debug)]
pub struct Lock(Expect, Vec<Uuid>);
