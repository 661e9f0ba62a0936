// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tables, which the program makes itself, and what is written to them besides batches.

use std::time::Duration;

use deadpool_postgres::Transaction;
use serde_json::Value;

use super::connection::{Connection, Failure};
use crate::engine::Fence;
use crate::error::{Error, Invalid};
use crate::index;
use crate::schema::Schema;

/// The layout of the tables.
const FORMAT: u32 = 1;

/// Two programs that start at once wait for each other. Keys and values compare by their bytes, whatever
/// the database's language.
const TABLES: &str = r#"
    SELECT pg_advisory_xact_lock(8230341);
    CREATE SCHEMA IF NOT EXISTS store;
    CREATE TABLE IF NOT EXISTS store.format (number bigint NOT NULL);
    INSERT INTO store.format SELECT 1 WHERE NOT EXISTS (SELECT FROM store.format);
    CREATE SEQUENCE IF NOT EXISTS store.etag;
    CREATE TABLE IF NOT EXISTS store.bucket (
        name text COLLATE "C" PRIMARY KEY, version bigint NOT NULL, fields text NOT NULL);
    CREATE TABLE IF NOT EXISTS store.record (
        bucket text COLLATE "C", key text COLLATE "C", etag bigint NOT NULL, value text NOT NULL,
        PRIMARY KEY (bucket, key));
    CREATE TABLE IF NOT EXISTS store.entry (
        bucket text COLLATE "C", field text COLLATE "C", value bytea, key text COLLATE "C",
        PRIMARY KEY (bucket, field, value, key));
    CREATE INDEX IF NOT EXISTS entry_of_record ON store.entry (bucket, key);
    CREATE TABLE IF NOT EXISTS store.lease (
        name text COLLATE "C" PRIMARY KEY, holder text NOT NULL, number bigint NOT NULL,
        until timestamptz NOT NULL);
    CREATE TABLE IF NOT EXISTS store.batch (
        id uuid PRIMARY KEY, happened boolean NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
"#;

/// Makes the tables and checks the format.
pub(super) async fn prepare(mut connection: Connection) -> Result<(), Failure> {
    let txn = connection.client().transaction().await?;
    txn.batch_execute(TABLES).await?;
    let found: i64 = txn.query_one("SELECT number FROM store.format", &[]).await?.get(0);
    if found != i64::from(FORMAT) {
        return Err(Failure::Refused(newer("the store".to_owned(), found, FORMAT)));
    }
    txn.commit().await?;
    connection.release();
    Ok(())
}

/// The error for a program that knows an older version than the store.
pub(super) fn newer(what: String, found: i64, known: u32) -> Error {
    Error::Newer { what, found: u32::try_from(found).unwrap_or(u32::MAX), known }
}

/// Makes a bucket, or its indices anew. Batches that write to it wait.
pub(super) async fn declare(mut connection: Connection, schema: Schema) -> Result<(), Failure> {
    let (bucket, fields) = (schema.bucket, schema.fields_text());
    let txn = connection.client().transaction().await?;
    let insert = "INSERT INTO store.bucket VALUES ($1, 0, '') ON CONFLICT DO NOTHING";
    txn.execute(insert, &[&bucket]).await?;
    let select = "SELECT version, fields FROM store.bucket WHERE name = $1 FOR UPDATE";
    let row = txn.query_one(select, &[&bucket]).await?;
    let (version, found): (i64, String) = (row.get(0), row.get(1));
    if version > i64::from(schema.version) {
        return Err(newer(format!("bucket {bucket}"), version, schema.version).into());
    }
    if version < i64::from(schema.version) {
        index_again(&txn, schema).await?;
        let update = "UPDATE store.bucket SET version = $2, fields = $3 WHERE name = $1";
        txn.execute(update, &[&bucket, &i64::from(schema.version), &fields]).await?;
    } else if found != fields {
        let (bucket, version) = (bucket.to_owned(), schema.version);
        return Err(Error::from(Invalid::Fields { bucket, version }).into());
    }
    txn.commit().await?;
    connection.release();
    Ok(())
}

async fn index_again(txn: &Transaction<'_>, schema: Schema) -> Result<(), Failure> {
    let bucket = schema.bucket;
    txn.execute("DELETE FROM store.entry WHERE bucket = $1", &[&bucket]).await?;
    let mut last = String::new();
    loop {
        let select = "SELECT key, value FROM store.record WHERE bucket = $1 AND key > $2 ORDER BY key LIMIT 100";
        let rows = txn.query(select, &[&bucket, &last]).await?;
        let Some(row) = rows.last() else { return Ok(()) };
        last = row.get(0);
        let (mut keys, mut fields, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let (key, text): (&str, &str) = (row.get(0), row.get(1));
            // One that is no JSON is found by its key alone.
            let record: Value = serde_json::from_str(text).unwrap_or_default();
            let entries = index::entries(&schema, &record).map_err(|error| {
                let (bucket, key) = (bucket.to_owned(), key.to_owned());
                Error::Corrupt { bucket, key, why: error.to_string() }
            })?;
            for entry in entries {
                keys.push(key);
                fields.push(entry.field);
                values.push(entry.value);
            }
        }
        let insert = "INSERT INTO store.entry (bucket, key, field, value) \
             SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bytea[])";
        txn.execute(insert, &[&bucket, &keys, &fields, &values]).await?;
    }
}

/// Renews a lease, or takes it under the next number where it ran out. One that would run for an hour and for ten
/// terms was claimed before the server's clock went back: no claim would succeed until that time has come again.
pub(super) async fn claim(
    mut connection: Connection,
    lease: &str,
    holder: &str,
    duration: Duration,
) -> Result<Option<i64>, Failure> {
    let statement = "INSERT INTO store.lease AS l \
         VALUES ($1, $2, 1, clock_timestamp() + $3::float8 * interval '1 s') \
         ON CONFLICT (name) DO UPDATE SET holder = $2, until = excluded.until, \
             number = l.number + CASE WHEN l.holder = $2 AND l.until > clock_timestamp() THEN 0 ELSE 1 END \
         WHERE l.holder = $2 OR l.until <= clock_timestamp() \
             OR l.until > clock_timestamp() + greatest($3::float8 * interval '10 s', interval '1 hour') \
         RETURNING number";
    let client = connection.client();
    let statement = client.prepare_cached(statement).await?;
    let row = client.query_opt(&statement, &[&lease, &holder, &duration.as_secs_f64()]).await?;
    connection.release();
    Ok(row.map(|row| row.get(0)))
}

/// Ends the lease, if it is held under this number.
pub(super) async fn release(mut connection: Connection, fence: &Fence) -> Result<(), Failure> {
    let statement =
        "UPDATE store.lease SET until = clock_timestamp() WHERE name = $1 AND number = $2";
    connection.client().execute(statement, &[&fence.lease, &fence.number]).await?;
    connection.release();
    Ok(())
}
