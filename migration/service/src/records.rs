// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the records are kept: buckets of the store.
//!
//! Bucket and fields are those of the deployed service, so that records can be read on the way there and back. Of two
//! begins for one VM one must lose, which a search for open migrations cannot decide: a row for each VM is written in
//! the batch of each new record.

use std::time::Duration;

use sdc_clients::migrations::Ended;
use serde_json::{Value, json};
use store::{Batch, Bucket, Error, Etag, Expect, Fence, Marker, Query, Schema, Store};
use uuid::Uuid;

use super::ends::{Ends, rows};
use super::history::History;
use super::news::News;
use super::strangers::Strangers;
use migration_core::record::{Filter, Invalid, Record, State, is_of_vm, is_over};
use migration_core::time::Time;

/// The deployed service's bucket, and its indexed fields.
const RECORDS: Schema = Schema {
    bucket: "vmapi_vm_migrations",
    version: 3,
    fields: &[
        "vm_uuid",
        "owner_uuid",
        "source_server_uuid",
        "target_server_uuid",
        "state",
        "created_timestamp",
        OVER,
    ],
    lists: &[JOBS],
};
/// True of a record that is over, and absent of others, so that they are found without those.
const OVER: &str = "over";
/// The ids of the record's operations.
const JOBS: &str = "jobs";

/// One row per VM that was ever migrated, written with each new record: of two begins at once one loses. It has the
/// ids of the VM's last records, also of those that have gone.
const LOCKS: Schema =
    Schema { bucket: "migration_locks", version: 2, fields: &[], lists: &["ids"] };

/// So many aborted records are removed in one sweep.
const PRUNED: usize = 1000;

/// So many ids of a VM's records are remembered.
const MOST_IDS: usize = 64;

/// The last record of each VM that went, by the operations of its history, whose ids are jobs for the callers.
const PAST: Schema = Schema { bucket: "migration_past", version: 1, fields: &[], lists: &["jobs"] };

/// Tickets that outlive their record: CNAPI did not answer when they were to be released.
const UNRELEASED: Schema =
    Schema { bucket: "migration_tickets", version: 1, fields: &[], lists: &[] };

/// A record and the version that was read.
#[derive(Clone, Debug)]
pub struct Stored {
    pub record: Record,
    etag: Etag,
    /// An earlier version stored it, without the fields by which it is found.
    is_of_old: bool,
    /// What the next write, or the removal, ends.
    pub ended: Option<Ended>,
}

/// Returns the nonce of a revision that is raised.
pub fn nonce() -> u32 {
    Uuid::new_v4().as_fields().0
}

impl Stored {
    /// Raises the revision.
    pub fn raise(&mut self) {
        self.record.intent.raise(nonce());
    }

    fn read(stored: Value, etag: Etag) -> Result<Stored, Invalid> {
        let mut fields = stored.clone();
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|name, _| name != JOBS && name != OVER);
        }
        let record = Record::read(&fields)?;
        let is_of_old = stored != stored_form(&record);
        Ok(Stored { record, etag, is_of_old, ended: None })
    }
}

#[derive(Clone, Debug)]
pub struct Records {
    /// The ends that were replaced.
    pub ends: Ends,
    /// Migrations that the store never knew.
    pub strangers: Strangers,
    /// What has ended.
    pub history: History,
    /// The leader's heartbeat and the latest events.
    pub news: News,
    store: Store,
    records: Bucket<Value>,
    locks: Bucket<Value>,
    past: Bucket<Value>,
    /// Tickets of CNAPI that could not be released, each with the time at which it has expired (`until`).
    pub unreleased: Bucket<Value>,
}

impl Records {
    /// Opens the buckets.
    pub async fn open(store: &Store) -> Result<Records, Error> {
        Ok(Records {
            ends: Ends::open(store).await?,
            strangers: Strangers::open(store).await?,
            history: History::open(store).await?,
            news: News::open(store).await?,
            store: store.clone(),
            records: Bucket::open(store, RECORDS).await?,
            locks: Bucket::open(store, LOCKS).await?,
            past: Bucket::open(store, PAST).await?,
            unreleased: Bucket::open(store, UNRELEASED).await?,
        })
    }

    /// Returns the newest record of a VM that is not over.
    pub async fn of_vm(&self, vm: Uuid) -> Result<Option<Stored>, Error> {
        let all = self.found(Query::all().with("vm_uuid", vm.to_string())).await?;
        let of_vm = all.into_iter().filter(|kept| is_of_vm(&kept.record, vm));
        Ok(of_vm.max_by_key(|kept| kept.record.created_timestamp))
    }

    /// Returns the newest records that a filter admits, the newest first, at most so many of those that are over.
    pub async fn list(&self, filter: &Filter, limit: usize) -> Result<Vec<Stored>, Error> {
        let is_over = filter.state.as_deref() == Some(State::Aborted.name());
        let mut query = match is_over {
            true => Query::all().with("state", State::Aborted.name()),
            false => open(),
        };
        for (field, value) in [("vm_uuid", &filter.vm_uuid), ("owner_uuid", &filter.owner_uuid)] {
            if let Some(value) = value.as_deref().filter(|value| *value != "*") {
                query = query.with(field, value);
            }
        }
        let query = query.by("created_timestamp").descending();
        let admits = |kept: &Stored| filter.admits(&kept.record);
        let mut found = self.pages(query, admits, if is_over { limit } else { usize::MAX }).await?;
        found
            .sort_by_key(|kept| std::cmp::Reverse((kept.record.created_timestamp, kept.record.id)));
        Ok(found)
    }

    /// Returns the records that are not over.
    pub async fn open_ones(&self) -> Result<Vec<Stored>, Error> {
        let mut found = self.found(open()).await?;
        found.retain(|kept| !is_over(&kept.record));
        Ok(found)
    }

    /// Returns all records, also those that are over: no round reads them.
    pub async fn all(&self) -> Result<Vec<Stored>, Error> {
        self.found(Query::all()).await
    }

    /// Returns the record that an operation belongs to, also if it was the VM's last one and has gone.
    pub async fn of_job(&self, job: Uuid) -> Result<Option<Record>, Error> {
        let of_job = || Query::all().with(JOBS, job.to_string()).limit(1);
        if let Some(kept) = self.found(of_job()).await?.into_iter().next() {
            return Ok(Some(kept.record));
        }
        let page = self.past.find(of_job()).await?;
        let mut records = page.records.iter().map(|row| Record::read(&row.value["record"]));
        Ok(records.next().and_then(Result::ok))
    }

    /// Returns all records of a VM, or of all VMs, and the last one of each that has gone.
    pub async fn with_past(&self, vm: Option<Uuid>) -> Result<Vec<Record>, Error> {
        let query = match vm {
            Some(vm) => Query::all().with("vm_uuid", vm.to_string()),
            None => Query::all(),
        };
        let found = self.found(query).await?.into_iter().map(|kept| kept.record);
        let past = match vm {
            Some(vm) => match self.past.get(&vm.to_string()).await {
                Ok(row) => vec![row],
                Err(Error::NotFound { .. }) => Vec::new(),
                Err(error) => return Err(error),
            },
            None => rows(&self.past, Query::all()).await?,
        };
        let past = past.iter().filter_map(|row| Record::read(&row.value["record"]).ok());
        Ok(found.chain(past).collect())
    }

    /// Returns the last migration of a VM, if it ended within this time.
    pub async fn ended_lately(
        &self,
        vm: Uuid,
        within: Duration,
        now: Time,
    ) -> Result<Option<Record>, Error> {
        let within = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
        let ended = |record: &Record| {
            let last = record.progress_history.last().and_then(|last| last.finished_timestamp);
            last.max(record.finished_timestamp)
        };
        let mut all = self.with_past(Some(vm)).await?;
        all.retain(|record| ended(record).is_some_and(|at| now.since(at) <= within));
        Ok(all.into_iter().max_by_key(ended))
    }

    /// Returns true if the record was changed or removed since it was read.
    pub async fn is_changed(&self, kept: &Stored) -> Result<bool, Error> {
        match self.records.get(&kept.record.id.to_string()).await {
            Ok(found) => Ok(found.etag != kept.etag),
            Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the record with this id.
    pub async fn get(&self, id: Uuid) -> Result<Option<Stored>, Error> {
        match self.records.get(&id.to_string()).await {
            Ok(found) => {
                let key = found.key.clone();
                let kept = Stored::read(found.value, found.etag);
                kept.map(Some).map_err(|why| corrupt(key, &why))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns which of these ids a record has, or one that has gone had.
    pub async fn known(&self, among: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let mut known = Vec::new();
        for id in among {
            match self.records.get(&id.to_string()).await {
                Ok(_) => known.push(*id),
                Err(Error::NotFound { .. }) => {
                    let had = Query::all().with("ids", id.to_string()).limit(1);
                    if !self.locks.find(had).await?.records.is_empty() {
                        known.push(*id);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    /// Returns true if the record was stored by a version that did not know all fields by which it is found, or that
    /// kept no rows of its ends.
    pub async fn is_untidy(&self, kept: &Stored) -> Result<bool, Error> {
        Ok(kept.is_of_old || !self.ends.lacking(&kept.record).await?.is_empty())
    }

    /// Stores a new record.
    /// Fails with [`Error::EtagConflict`] if another record of the VM was stored since `lock` was read.
    pub async fn create(&self, record: Record, lock: Lock) -> Result<Stored, Error> {
        let (id, vm) = (record.id.to_string(), record.vm_uuid.to_string());
        let mut batch = Batch::new();
        self.records.put_in(&mut batch, &id, Expect::Absent, &stored_form(&record))?;
        let older = lock.1.into_iter().take(MOST_IDS - 1);
        let ids: Vec<Uuid> = std::iter::once(record.id).chain(older).collect();
        let row = json!({"vm_uuid": vm, "id": id, "ids": ids});
        self.locks.put_in(&mut batch, &vm, lock.0, &row)?;
        self.ends.need_in(&mut batch, &record).await?;
        let mut etags = self.commit(batch, &record).await?;
        let etag = etags.swap_remove(0).ok_or(Error::Unavailable { why: "no etag".into() })?;
        Ok(Stored { record, etag, is_of_old: false, ended: None })
    }

    /// Reads what [`Records::create`] compares with. To be read before the VM's records are.
    pub async fn lock(&self, vm: Uuid) -> Result<Lock, Error> {
        match self.locks.get(&vm.to_string()).await {
            Ok(found) => Ok(Lock(Expect::Etag(found.etag), ids(&found.value))),
            Err(Error::NotFound { .. }) => Ok(Lock(Expect::Absent, Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// Writes a record that was changed, unless it was changed since it was read, and if the lease
    /// is held under `fence` where one is given.
    pub async fn write(&self, kept: &mut Stored, fence: Option<&Fence>) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        let (id, expect) = (kept.record.id.to_string(), Expect::Etag(kept.etag.clone()));
        self.records.put_in(&mut batch, &id, expect, &stored_form(&kept.record))?;
        self.ends.need_in(&mut batch, &kept.record).await?;
        if let Some(ended) = &kept.ended {
            self.history.put_in(&mut batch, ended).await?;
        }
        let mut etags = self.commit(batch, &kept.record).await?;
        kept.ended = None;
        kept.etag = etags.swap_remove(0).ok_or(Error::Unavailable { why: "no etag".into() })?;
        Ok(())
    }

    /// Stores a record whatever is there, as the jobs of the deployed service do.
    pub async fn overwrite(&self, record: &Record) -> Result<(), Error> {
        let id = record.id.to_string();
        self.records.put(&id, Expect::Anything, &stored_form(record)).await.map(drop)
    }

    /// The same for many, for tests of many.
    #[cfg(test)]
    pub async fn overwrite_all(&self, records: &[Record]) -> Result<(), Error> {
        for some in records.chunks(500) {
            let mut batch = Batch::new();
            for record in some {
                let (id, expect) = (record.id.to_string(), Expect::Anything);
                self.records.put_in(&mut batch, &id, expect, &stored_form(record))?;
            }
            self.store.commit(batch).await?;
        }
        Ok(())
    }

    /// Removes a record, unless it was changed since it was read. Its operations are remembered until
    /// another record of the VM goes, and its replaced ends for as long as something may be left of them.
    pub async fn remove(
        &self,
        kept: &Stored,
        fence: Option<&Fence>,
        rest: Rest,
    ) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        let (id, expect) = (kept.record.id.to_string(), Expect::Etag(kept.etag.clone()));
        self.records.delete_in(&mut batch, &id, expect)?;
        let jobs: Vec<Uuid> = jobs(&kept.record).collect();
        let row = json!({"jobs": jobs, "record": kept.record.to_json()});
        self.past.put_in(&mut batch, &kept.record.vm_uuid.to_string(), Expect::Anything, &row)?;
        if let Some(ended) = &kept.ended {
            self.history.put_in(&mut batch, ended).await?;
        }
        match rest {
            Rest::Stays => self.ends.stay_in(&mut batch, &kept.record).await?,
            Rest::Gone => self.ends.go_in(&mut batch, &kept.record).await?,
        }
        match self.store.commit(batch).await {
            Err(Error::UnknownOutcome { why }) => match self.get(kept.record.id).await? {
                None => Ok(()),
                Some(_) => Err(Error::UnknownOutcome { why }),
            },
            done => done.map(drop),
        }
    }

    /// Removes what ended longer ago than `keep`: entries of the history, and records of aborted migrations.
    pub async fn prune(&self, keep: Duration, now: Time, fence: &Fence) -> Result<(), Error> {
        self.history.prune(keep, now, fence).await?;
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let is_old = |it: &Stored| {
            let ended = it.record.finished_timestamp.unwrap_or(it.record.created_timestamp);
            it.record.state == State::Aborted && now.since(ended) > keep
        };
        let over = Query::all().with(OVER, true).by("created_timestamp");
        for kept in self.pages(over, is_old, PRUNED).await? {
            let mut batch = Batch::new();
            batch.require(fence);
            let expect = Expect::Etag(kept.etag.clone());
            self.records.delete_in(&mut batch, &kept.record.id.to_string(), expect)?;
            self.store.commit(batch).await?;
        }
        Ok(())
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
    async fn found(&self, query: Query) -> Result<Vec<Stored>, Error> {
        self.pages(query, |_| true, usize::MAX).await
    }

    /// Returns at most so many records of a query, of those that are wanted.
    async fn pages(
        &self,
        query: Query,
        is_wanted: impl Fn(&Stored) -> bool,
        limit: usize,
    ) -> Result<Vec<Stored>, Error> {
        let (mut found, mut marker): (Vec<Stored>, Option<Marker>) = (Vec::new(), None);
        loop {
            let page = match marker {
                Some(marker) => query.clone().after(marker),
                None => query.clone(),
            };
            let page = self.records.find(page).await?;
            for unreadable in page.unreadable {
                tracing::error!(reason = %unreadable, "cannot read a migration's record; leaving it out");
            }
            for row in page.records {
                match Stored::read(row.value, row.etag) {
                    Ok(kept) => found.push(kept),
                    Err(why) => {
                        tracing::error!(id = row.key, reason = %why, "cannot read a migration's record; leaving it out")
                    }
                }
            }
            found.retain(&is_wanted);
            match page.next.filter(|_| found.len() < limit) {
                Some(next) => marker = Some(next),
                None => {
                    found.truncate(limit);
                    return Ok(found);
                }
            }
        }
    }
}

/// What is left on the nodes of a migration whose record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Gone,
    /// Copies that were replaced may be.
    Stays,
}

/// Those that are not over.
fn open() -> Query {
    Query::all().with(OVER, Value::Null)
}

/// A record with the fields by which alone it is found.
fn stored_form(record: &Record) -> Value {
    let mut stored = record.to_json();
    let jobs: Vec<Uuid> = jobs(record).collect();
    if !jobs.is_empty() {
        stored[JOBS] = json!(jobs);
    }
    if is_over(record) {
        stored[OVER] = json!(true);
    }
    stored
}

fn corrupt(key: String, why: &Invalid) -> Error {
    Error::Corrupt { bucket: RECORDS.bucket.into(), key, why: why.to_string() }
}

/// The ids of a record's operations, and of the one that waits for its turn.
pub fn jobs(record: &Record) -> impl Iterator<Item = Uuid> {
    let entries = record.progress_history.iter().filter_map(|entry| entry.job_uuid);
    entries.chain(record.intent.job)
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
