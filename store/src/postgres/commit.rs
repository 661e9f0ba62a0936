// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Batches: one transaction each, and what is done when it is not known whether it happened.

use deadpool_postgres::{ClientWrapper, Transaction};
use tokio_postgres::IsolationLevel;
use uuid::Uuid;

use super::connection::Failure;
use super::pool::{CALL, Pool, pause, within};
use super::tables::newer;
use crate::engine::{Content, Write, Writes};
use crate::error::Error;

/// With every so many writes the ids of old batches are deleted. No transaction lasts a day.
const FORGET: i64 = 1000;

/// The etags of what a batch put.
type Etags = Vec<Option<i64>>;

/// How a batch ended that did not simply happen.
enum Ended {
    /// Before COMMIT was sent: nothing was done.
    Before(Failure),
    /// Without an answer to COMMIT.
    InDoubt { id: Uuid, etags: Etags, why: String },
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Before(failure)
    }
}

/// Makes all writes or none, trying again where nothing was done.
pub(super) async fn commit(pool: &Pool, writes: &Writes) -> Result<Etags, Error> {
    let mut backoff = pool.backoff();
    loop {
        let why = match attempt(pool, writes).await {
            Ok(etags) => return Ok(etags),
            Err(Ended::Before(Failure::Refused(error))) => return Err(error),
            Err(Ended::Before(Failure::Passing(why))) => why,
            Err(Ended::InDoubt { id, etags, why }) => {
                if happened(pool, id).await? {
                    return Ok(etags);
                }
                why
            }
        };
        pause(&mut backoff, why).await?;
    }
}

/// Finds out whether a batch happened, and makes sure that it never will if it has not: the row of its id
/// can be written once, and a transaction that writes it waits for one that is about to.
async fn happened(pool: &Pool, id: Uuid) -> Result<bool, Error> {
    let ask = "INSERT INTO store.batch (id, happened) VALUES ($1, false) \
         ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING happened";
    let asked = pool.retried(CALL, |mut connection| async move {
        let row = connection.client().query_one(ask, &[&id]).await?;
        connection.release();
        Ok(row.get(0))
    });
    asked.await.map_err(|error| Error::UnknownOutcome { why: error.to_string() })
}

/// Makes the writes once.
async fn attempt(pool: &Pool, writes: &Writes) -> Result<Etags, Ended> {
    let mut connection = pool.connection().await?;
    let done = transact(connection.client(), writes).await;
    if matches!(done, Ok(_) | Err(Ended::Before(Failure::Refused(_)))) {
        connection.release();
    }
    done
}

async fn transact(client: &mut ClientWrapper, writes: &Writes) -> Result<Etags, Ended> {
    let id = Uuid::new_v4();
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start();
    let txn = within(CALL, begin).await?;
    let etags = within(CALL, write_all(&txn, id, writes)).await?;
    match within(CALL, txn.commit()).await {
        Ok(()) => Ok(etags),
        Err(Failure::Passing(why)) => Err(Ended::InDoubt { id, etags, why }),
        Err(Failure::Refused(error)) => Err(Ended::InDoubt { id, etags, why: error.to_string() }),
    }
}

async fn write_all(txn: &Transaction<'_>, id: Uuid, writes: &Writes) -> Result<Etags, Failure> {
    let insert = "INSERT INTO store.batch (id, happened) VALUES ($1, true)";
    txn.execute(&txn.prepare_cached(insert).await?, &[&id]).await?;
    if let Some(fence) = &writes.fence {
        // The row stays locked, so that a takeover waits for this batch.
        let select = "SELECT FROM store.lease \
             WHERE name = $1 AND number = $2 AND until > clock_timestamp() FOR SHARE";
        let select = txn.prepare_cached(select).await?;
        if txn.query_opt(&select, &[&fence.lease, &fence.number]).await?.is_none() {
            let (lease, number) = (fence.lease.clone(), fence.number);
            return Err(Error::Fenced { lease, number }.into());
        }
    }
    let mut checked = "";
    let mut etags = Vec::new();
    for write in &writes.writes {
        if write.schema.bucket != checked {
            check_version(txn, write).await?;
            checked = write.schema.bucket;
        }
        etags.push(write_one(txn, write).await?);
    }
    if etags.iter().flatten().any(|etag| etag % FORGET == 0) {
        let delete = "DELETE FROM store.batch WHERE id IN (SELECT id FROM store.batch \
             WHERE at < clock_timestamp() - interval '1 day' LIMIT 10000 FOR UPDATE SKIP LOCKED)";
        txn.execute(delete, &[]).await?;
    }
    Ok(etags)
}

/// Refuses a writer whose indices would not be those of the bucket.
async fn check_version(txn: &Transaction<'_>, write: &Write) -> Result<(), Failure> {
    let select = "SELECT version FROM store.bucket WHERE name = $1 FOR SHARE";
    let select = txn.prepare_cached(select).await?;
    let row = txn.query_opt(&select, &[&write.schema.bucket]).await?;
    let version: i64 = row.map_or(0, |row| row.get(0));
    if version == i64::from(write.schema.version) {
        return Ok(());
    }
    let what = format!("bucket {}", write.schema.bucket);
    Err(newer(what, version, write.schema.version).into())
}

async fn write_one(txn: &Transaction<'_>, write: &Write) -> Result<Option<i64>, Failure> {
    let (bucket, key) = (write.schema.bucket, write.key.as_str());
    let select = "SELECT etag FROM store.record WHERE bucket = $1 AND key = $2 FOR UPDATE";
    let row = txn.query_opt(&txn.prepare_cached(select).await?, &[&bucket, &key]).await?;
    let found: Option<i64> = row.map(|row| row.get(0));
    if !write.accepts(found) {
        return Err(write.conflict(found).into());
    }
    let Some(content) = &write.content else {
        for delete in [
            "DELETE FROM store.entry WHERE bucket = $1 AND key = $2",
            "DELETE FROM store.record WHERE bucket = $1 AND key = $2",
        ] {
            txn.execute(&txn.prepare_cached(delete).await?, &[&bucket, &key]).await?;
        }
        return Ok(None);
    };
    let statement = match found {
        Some(_) => {
            "UPDATE store.record SET etag = nextval('store.etag'), value = $3 \
             WHERE bucket = $1 AND key = $2 RETURNING etag"
        }
        None => {
            "INSERT INTO store.record (bucket, key, etag, value) \
             VALUES ($1, $2, nextval('store.etag'), $3) ON CONFLICT DO NOTHING RETURNING etag"
        }
    };
    let statement = txn.prepare_cached(statement).await?;
    let Some(row) = txn.query_opt(&statement, &[&bucket, &key, &content.text]).await? else {
        return Err(Failure::Passing("another batch made the record first".to_owned()));
    };
    write_entries(txn, bucket, key, content).await?;
    Ok(Some(row.get(0)))
}

/// Writes what differs in the indices.
async fn write_entries(
    txn: &Transaction<'_>,
    bucket: &str,
    key: &str,
    content: &Content,
) -> Result<(), Failure> {
    let fields: Vec<&str> = content.entries.iter().map(|entry| entry.field).collect();
    let values: Vec<&[u8]> = content.entries.iter().map(|entry| entry.value.as_slice()).collect();
    for statement in [
        "DELETE FROM store.entry WHERE bucket = $1 AND key = $2 AND (field, value) NOT IN \
         (SELECT * FROM unnest($3::text[], $4::bytea[]))",
        "INSERT INTO store.entry (bucket, key, field, value) \
         SELECT $1, $2, * FROM unnest($3::text[], $4::bytea[]) ON CONFLICT DO NOTHING",
    ] {
        let statement = txn.prepare_cached(statement).await?;
        txn.execute(&statement, &[&bucket, &key, &fields, &values]).await?;
    }
    Ok(())
}
