// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tables, and what is written to them.

use redb::{
    Key, ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction,
};
use serde_json::Value;

use super::failure::Failure;
use crate::engine::Writes;
use crate::error::{Error, Invalid};
use crate::index::{self, Entry};
use crate::schema::Schema;

/// The layout of the tables.
const FORMAT: u32 = 1;

/// Bucket, key → etag, JSON.
pub(super) const RECORDS: TableDefinition<'static, (&str, &str), (i64, &str)> =
    TableDefinition::new("records");
/// Bucket, field, value, key: the indices.
pub(super) const ENTRIES: TableDefinition<'static, (&str, &str, &[u8], &str), ()> =
    TableDefinition::new("entries");
/// Bucket → version, fields.
const BUCKETS: TableDefinition<'static, &str, (u32, &str)> = TableDefinition::new("buckets");
/// `format`, and `etag`: the number of the last write.
const NUMBERS: TableDefinition<'static, &str, i64> = TableDefinition::new("numbers");

/// Makes the tables and checks the format.
pub(super) fn prepare(txn: &WriteTransaction) -> Result<(), Failure> {
    txn.open_table(RECORDS)?;
    txn.open_table(ENTRIES)?;
    let mut numbers = txn.open_table(NUMBERS)?;
    let found = numbers.get("format")?.map(|number| number.value());
    match found.and_then(|number| u32::try_from(number).ok()) {
        None => {
            numbers.insert("format", i64::from(FORMAT))?;
            Ok(())
        }
        Some(FORMAT) => Ok(()),
        Some(found) => {
            let what = "the store".to_owned();
            Err(Failure::Refused(Error::Newer { what, found, known: FORMAT }))
        }
    }
}

/// Makes a bucket, or its indices anew.
pub(super) fn declare(txn: &WriteTransaction, schema: &Schema) -> Result<(), Failure> {
    let mut buckets = txn.open_table(BUCKETS)?;
    let fields = schema.fields_text();
    let found = buckets.get(schema.bucket)?.map(|row| (row.value().0, row.value().1.to_owned()));
    match found {
        Some((version, _)) if version > schema.version => {
            return Err(Failure::Refused(newer(schema.bucket, version, schema.version)));
        }
        Some((version, found)) if version == schema.version => {
            if found == fields {
                return Ok(());
            }
            let bucket = schema.bucket.to_owned();
            return Err(Failure::Refused(Invalid::Fields { bucket, version }.into()));
        }
        Some(_) => index_again(txn, schema)?,
        None => {}
    }
    buckets.insert(schema.bucket, (schema.version, fields.as_str()))?;
    Ok(())
}

/// Copies all tables.
pub(super) fn copy(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), Failure> {
    copy_table(from, to, RECORDS)?;
    copy_table(from, to, ENTRIES)?;
    copy_table(from, to, BUCKETS)?;
    copy_table(from, to, NUMBERS)
}

fn copy_table<K: Key + 'static, V: redb::Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<(), Failure> {
    let from = match from.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        from => from?,
    };
    let mut to = to.open_table(table)?;
    for row in from.iter()? {
        let (key, value) = row?;
        to.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// The entries of a stored record. One that is no JSON is found by its key alone.
fn index_of(schema: &Schema, text: &str) -> Result<Vec<Entry>, Error> {
    let record: Value = serde_json::from_str(text).unwrap_or_default();
    index::entries(schema, &record)
}

/// The error for a program that knows an older version of the bucket than the store.
fn newer(bucket: &str, found: u32, known: u32) -> Error {
    Error::Newer { what: format!("bucket {bucket}"), found, known }
}

fn index_again(txn: &WriteTransaction, schema: &Schema) -> Result<(), Failure> {
    let records = txn.open_table(RECORDS)?;
    let mut entries = txn.open_table(ENTRIES)?;
    let bucket = schema.bucket;
    let end = end(bucket);
    let all = (bucket, "", &[][..], "")..(end.as_str(), "", &[][..], "");
    entries.retain_in(all, |_, ()| false)?;
    for row in records.range((bucket, "")..(end.as_str(), ""))? {
        let (name, content) = row?;
        let key = name.value().1;
        for entry in index_of(schema, content.value().1).map_err(|error| {
            let (bucket, key) = (bucket.to_owned(), key.to_owned());
            Failure::Refused(Error::Corrupt { bucket, key, why: error.to_string() })
        })? {
            entries.insert((bucket, entry.field, entry.value.as_slice(), key), ())?;
        }
    }
    Ok(())
}

/// The end of a bucket's range: no name has a NUL.
pub(super) fn end(bucket: &str) -> String {
    format!("{bucket}\0")
}

/// Makes all writes, or fails with the first that does not find what it expects.
pub(super) fn apply(txn: &WriteTransaction, writes: &Writes) -> Result<Vec<Option<i64>>, Failure> {
    let buckets = txn.open_table(BUCKETS)?;
    let mut records = txn.open_table(RECORDS)?;
    let mut entries = txn.open_table(ENTRIES)?;
    let mut numbers = txn.open_table(NUMBERS)?;
    let mut last = numbers.get("etag")?.map_or(0, |number| number.value());
    let mut etags = Vec::new();
    for write in &writes.writes {
        let (bucket, key) = (write.schema.bucket, write.key.as_str());
        let version = buckets.get(bucket)?.map_or(0, |row| row.value().0);
        if version != write.schema.version {
            return Err(Failure::Refused(newer(bucket, version, write.schema.version)));
        }
        let old = records.get((bucket, key))?.map(|row| (row.value().0, row.value().1.to_owned()));
        let found = old.as_ref().map(|(etag, _)| *etag);
        if !write.accepts(found) {
            return Err(Failure::Refused(write.conflict(found)));
        }
        if let Some((_, text)) = old {
            for entry in index_of(&write.schema, &text).map_err(Failure::Refused)? {
                entries.remove((bucket, entry.field, entry.value.as_slice(), key))?;
            }
        }
        let Some(content) = &write.content else {
            records.remove((bucket, key))?;
            etags.push(None);
            continue;
        };
        last += 1;
        records.insert((bucket, key), (last, content.text.as_str()))?;
        for entry in &content.entries {
            entries.insert((bucket, entry.field, entry.value.as_slice(), key), ())?;
        }
        etags.push(Some(last));
    }
    numbers.insert("etag", last)?;
    Ok(etags)
}
