// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Searches.

use std::collections::BTreeSet;
use std::ops::Bound;

use redb::{AccessGuard, ReadOnlyTable, ReadTransaction};
use serde_json::Value;

use super::failure::Failure;
use super::tables::{ENTRIES, RECORDS, end};
use crate::engine::{Row, Rows};
use crate::index::{self, BY_KEY};
use crate::limits;
use crate::query::{Position, Search};

type Records = ReadOnlyTable<(&'static str, &'static str), (i64, &'static str)>;
type Entries = ReadOnlyTable<(&'static str, &'static str, &'static [u8], &'static str), ()>;

type Found<'a> = (
    AccessGuard<'a, (&'static str, &'static str, &'static [u8], &'static str)>,
    AccessGuard<'a, ()>,
);

/// Reads a record.
pub(super) fn get(txn: &ReadTransaction, bucket: &str, key: &str) -> Result<Option<Row>, Failure> {
    row(&txn.open_table(RECORDS)?, bucket, key)
}

fn row(records: &Records, bucket: &str, key: &str) -> Result<Option<Row>, Failure> {
    Ok(records.get((bucket, key))?.map(|row| {
        let (etag, text) = row.value();
        Row { key: key.to_owned(), etag, text: text.to_owned() }
    }))
}

/// Reads a page.
pub(super) fn find(txn: &ReadTransaction, search: &Search) -> Result<Rows, Failure> {
    let (records, entries) = (txn.open_table(RECORDS)?, txn.open_table(ENTRIES)?);
    let positions = match search.conditions.split_first() {
        None => in_order(&entries, search)?,
        // What `matching` parses would grow with the bucket, and the order's index is read no farther than a page.
        Some((first, _)) if search.order != BY_KEY && is_many(&entries, search, first)? => {
            in_order(&entries, search)?
        }
        Some((first, others)) => matching(&records, &entries, search, first, others)?,
    };
    let is_full = positions.len() == search.limit;
    let (mut found, mut bytes) = (Rows::default(), 0);
    for position in positions {
        let Some(row) = row(&records, &search.bucket, &position.1)? else { continue };
        bytes += row.text.len();
        if bytes > limits::PAGE_BYTES && !found.rows.is_empty() {
            return Ok(found);
        }
        found.rows.push(row);
        found.end = Some(position);
    }
    if !is_full {
        found.end = None;
    }
    Ok(found)
}

/// Returns true if more records have this value than a page has.
fn is_many(entries: &Entries, search: &Search, first: &(&str, Vec<u8>)) -> Result<bool, Failure> {
    let bucket = search.bucket.as_str();
    let mut count = 0;
    for entry in entries.range((bucket, first.0, first.1.as_slice(), "")..)? {
        let name = entry?.0;
        let (of, field, value, _) = name.value();
        if (of, field, value) != (bucket, first.0, first.1.as_slice()) || count > search.limit {
            break;
        }
        count += 1;
    }
    Ok(count > search.limit)
}

/// Walks the index of the order, and keeps those that meet the conditions.
fn in_order(entries: &Entries, search: &Search) -> Result<Vec<Position>, Failure> {
    let (bucket, field) = (search.bucket.as_str(), search.order);
    let end = end(field);
    let mut from = Bound::Included((bucket, field, &[][..], ""));
    let mut to = Bound::Excluded((bucket, end.as_str(), &[][..], ""));
    if let Some((value, key)) = &search.after {
        let after = Bound::Excluded((bucket, field, value.as_slice(), key.as_str()));
        *(if search.is_descending { &mut to } else { &mut from }) = after;
    }
    let range = entries.range::<(&str, &str, &[u8], &str)>((from, to))?;
    let position = |entry: Result<Found<'_>, redb::StorageError>| {
        let name = entry?.0;
        let (_, _, value, key) = name.value();
        for (field, value) in &search.conditions {
            if entries.get((bucket, *field, value.as_slice(), key))?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some((value.to_vec(), key.to_owned())))
    };
    if search.is_descending {
        range.rev().filter_map(|it| position(it).transpose()).take(search.limit).collect()
    } else {
        range.filter_map(|it| position(it).transpose()).take(search.limit).collect()
    }
}

/// Walks the index of the first condition and keeps as many of the first in the order as a page has.
fn matching(
    records: &Records,
    entries: &Entries,
    search: &Search,
    first: &(&str, Vec<u8>),
    others: &[(&str, Vec<u8>)],
) -> Result<Vec<Position>, Failure> {
    let bucket = search.bucket.as_str();
    let mut best: BTreeSet<Position> = BTreeSet::new();
    for entry in entries.range((bucket, first.0, first.1.as_slice(), "")..)? {
        let name = entry?.0;
        let (of, field, value, key) = name.value();
        if (of, field, value) != (bucket, first.0, first.1.as_slice()) {
            break;
        }
        let mut matches = true;
        for (field, value) in others {
            matches &= entries.get((bucket, *field, value.as_slice(), key))?.is_some();
        }
        let position = (order_value(records, search, key)?, key.to_owned());
        let is_past = match &search.after {
            Some(after) if search.is_descending => position >= *after,
            Some(after) => position <= *after,
            None => false,
        };
        if !matches || is_past {
            continue;
        }
        best.insert(position);
        if best.len() > search.limit {
            let _worst = if search.is_descending { best.pop_first() } else { best.pop_last() };
        }
    }
    Ok(if search.is_descending {
        best.into_iter().rev().collect()
    } else {
        best.into_iter().collect()
    })
}

/// The value by which a record is ordered.
fn order_value(records: &Records, search: &Search, key: &str) -> Result<Vec<u8>, Failure> {
    if search.order == BY_KEY {
        return Ok(Vec::new());
    }
    let text = records.get((search.bucket.as_str(), key))?;
    let record: Value =
        text.and_then(|row| serde_json::from_str(row.value().1).ok()).unwrap_or_default();
    index::encode(search.order, &record[search.order]).map_err(Failure::Refused)
}
