// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Ends of migrations whose node was declared dead and whose copy was replaced by the other one: rows of a bucket of
//! their own, which outlive the record. A row ends when its copy was seen gone.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{Batch, Bucket, Error, Etag, Expect, Fence, Marker, Query, Schema, Store, Versioned};
use uuid::Uuid;

use migration_core::intent::End;
use migration_core::record::Record;
use migration_core::time::Time;

const ENDS: Schema =
    Schema { bucket: "migration_ends", version: 1, fields: &["cn_uuid", "vm_uuid"], lists: &[] };

/// An end that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    pub migration: Uuid,
    /// Which of its ends.
    pub end: End,
    pub vm_uuid: Uuid,
    /// The node that was declared dead.
    pub cn_uuid: Uuid,
    /// The highest revision with which its agent may have been asked. Where the record is there, the record's counts.
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<u32>,
    /// When the node was declared dead.
    pub declared: Time,
    /// When it was first seen alive after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Time>,
    /// What was seen last.
    pub sight: Sight,
    /// An operator has ordered the copy deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletes: bool,
}

/// What was seen of a copy that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// The node gives no sign of life.
    Silent,
    /// Its agent cannot report the state of the copy.
    Unwell,
    /// Its agent received a later revision than the store has.
    Ahead,
    /// It is stopped and hidden, and does not boot with its node.
    Off,
    /// It does not run, but it is shown or boots with its node.
    Shown,
    Runs,
    /// It is not there any more.
    Gone,
}

impl Replaced {
    /// Returns the ends of a record that were replaced.
    pub fn of(record: &Record) -> Vec<Replaced> {
        let intent = &record.intent;
        let both = [
            (End::Source, Some(record.source_server_uuid), &intent.source_dead),
            (End::Target, record.target_server_uuid, &intent.target_dead),
        ];
        let replaced = both.into_iter().filter(|(end, ..)| intent.is_replaced(*end));
        let rows = replaced.filter_map(|(end, cn, word)| {
            Some(Replaced {
                migration: record.id,
                end,
                vm_uuid: record.vm_uuid,
                cn_uuid: cn?,
                revision: intent.revision,
                nonce: intent.nonce,
                declared: word.as_ref()?.at,
                returned: intent.returned,
                sight: Sight::Silent,
                deletes: false,
            })
        });
        rows.collect()
    }

    fn key(&self) -> String {
        format!("{}-{}", self.migration, self.end)
    }
}

/// A row and the version that was read.
#[derive(Clone, Debug)]
pub struct StoredEnd {
    pub row: Replaced,
    etag: Etag,
}

/// The rows.
#[derive(Clone, Debug)]
pub struct Ends(Store, Bucket<Replaced>);

impl Ends {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<Ends, Error> {
        Ok(Ends(store.clone(), Bucket::open(store, ENDS).await?))
    }

    /// Returns all rows.
    pub async fn all(&self) -> Result<Vec<StoredEnd>, Error> {
        self.found(Query::all()).await
    }

    /// Returns those of a node.
    pub async fn of_cn(&self, cn: Uuid) -> Result<Vec<StoredEnd>, Error> {
        self.found(Query::all().with("cn_uuid", cn.to_string())).await
    }

    /// Returns those of a VM.
    pub async fn of_vm(&self, vm: Uuid) -> Result<Vec<StoredEnd>, Error> {
        self.found(Query::all().with("vm_uuid", vm.to_string())).await
    }

    /// Returns the rows that a record needs and that are not there.
    pub async fn lacking(&self, record: &Record) -> Result<Vec<Replaced>, Error> {
        let mut lacking = Vec::new();
        for row in Replaced::of(record) {
            match self.1.get(&row.key()).await {
                Err(Error::NotFound { .. }) => lacking.push(row),
                found => drop(found?),
            }
        }
        Ok(lacking)
    }

    /// Adds to a batch the rows that a record needs and that are not there, and the end of those whose copy is the one
    /// in use again.
    pub async fn need_in(&self, batch: &mut Batch, record: &Record) -> Result<(), Error> {
        for row in self.lacking(record).await? {
            self.1.put_in(batch, &row.key(), Expect::Absent, &row)?;
        }
        if let Some(end) = in_use(record) {
            let key = format!("{}-{end}", record.id);
            match self.1.get(&key).await {
                Ok(found) => self.1.delete_in(batch, &key, Expect::Etag(found.etag))?,
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds to a batch, in which a record goes, the rows that stay behind.
    pub async fn stay_in(&self, batch: &mut Batch, record: &Record) -> Result<(), Error> {
        for mut row in Replaced::of(record) {
            let (key, mut expect) = (row.key(), Expect::Absent);
            match self.1.get(&key).await {
                Ok(found) => {
                    row.revision = row.revision.max(found.value.revision);
                    (row.returned, row.sight) = (found.value.returned, found.value.sight);
                    expect = Expect::Etag(found.etag);
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            self.1.put_in(batch, &key, expect, &row)?;
        }
        Ok(())
    }

    /// Adds to a batch that the rows of a record go: nothing is left of its copies.
    pub async fn go_in(&self, batch: &mut Batch, record: &Record) -> Result<(), Error> {
        for row in Replaced::of(record) {
            match self.1.get(&row.key()).await {
                Ok(found) => self.1.delete_in(batch, &row.key(), Expect::Etag(found.etag))?,
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if this end was replaced, and its node is this one.
    pub async fn has(&self, migration: Uuid, end: End, cn: Uuid) -> Result<bool, Error> {
        match self.1.get(&format!("{migration}-{end}")).await {
            Ok(found) => Ok(found.value.cn_uuid == cn),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a row that was changed, unless it was changed since it was read.
    pub async fn write(&self, kept: &mut StoredEnd, fence: Option<&Fence>) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        let expect = Expect::Etag(kept.etag.clone());
        self.1.put_in(&mut batch, &kept.row.key(), expect, &kept.row)?;
        let mut etags = self.0.commit(batch).await?;
        kept.etag = etags.pop().flatten().ok_or(Error::Unavailable { why: "no etag".into() })?;
        Ok(())
    }

    /// Ends a row: its copy is gone.
    pub async fn end(&self, kept: &StoredEnd, fence: Option<&Fence>) -> Result<(), Error> {
        let mut batch = Batch::new();
        if let Some(fence) = fence {
            batch.require(fence);
        }
        self.1.delete_in(&mut batch, &kept.row.key(), Expect::Etag(kept.etag.clone()))?;
        self.0.commit(batch).await.map(drop)
    }

    async fn found(&self, query: Query) -> Result<Vec<StoredEnd>, Error> {
        let rows = rows(&self.1, query).await?.into_iter();
        Ok(rows.map(|row| StoredEnd { row: row.value, etag: row.etag }).collect())
    }
}

/// Returns the end whose copy was chosen to be the VM, where the other was before.
fn in_use(record: &Record) -> Option<End> {
    match (record.intent.source_shown, record.intent.target_shown) {
        (true, _) => Some(End::Source),
        (false, true) => Some(End::Target),
        (false, false) => None,
    }
}

/// Returns all rows of a query. One that cannot be read is a copy that is not watched: that is an error.
pub async fn rows<T>(bucket: &Bucket<T>, query: Query) -> Result<Vec<Versioned<T>>, Error>
where
    T: Serialize + DeserializeOwned,
{
    let (found, unreadable) = pages(bucket, query).await?;
    match unreadable.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

/// Returns all rows of a query, and why others cannot be read.
pub async fn pages<T>(
    bucket: &Bucket<T>,
    query: Query,
) -> Result<(Vec<Versioned<T>>, Vec<Error>), Error>
where
    T: Serialize + DeserializeOwned,
{
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    let mut marker: Option<Marker> = None;
    loop {
        let page = match marker {
            Some(marker) => query.clone().after(marker),
            None => query.clone(),
        };
        let page = bucket.find(page).await?;
        unreadable.extend(page.unreadable);
        found.extend(page.records);
        match page.next {
            Some(next) => marker = Some(next),
            None => return Ok((found, unreadable)),
        }
    }
}
