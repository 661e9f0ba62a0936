// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an engine does, on rows of text. Bucket and store above it know types; engines know none.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::Error;
use crate::etag::Etag;
use crate::index::Entry;
use crate::query::{Position, Search};
use crate::schema::Schema;

/// What a write expects to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// No record under this key.
    Absent,
    /// The record with this etag.
    Etag(Etag),
    /// Whatever is there.
    Anything,
}

/// The number under which a lease is held. It rises with each new holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(crate) lease: String,
    pub(crate) number: i64,
}

impl Fence {
    /// The name of the lease.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    pub fn number(&self) -> i64 {
        self.number
    }
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) etag: i64,
    pub(crate) text: String,
}

/// The rows of a page, and where it ended if more may follow.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    pub(crate) end: Option<Position>,
}

#[derive(Debug, Clone)]
pub(crate) struct Write {
    /// The bucket, as the writer knows it.
    pub(crate) schema: Schema,
    pub(crate) key: String,
    pub(crate) expect: Expect,
    /// What is put; nothing where the record is deleted.
    pub(crate) content: Option<Content>,
}

/// What is put.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) text: String,
    pub(crate) entries: Vec<Entry>,
}

impl Write {
    /// The error where something else is there than the write expects.
    pub(crate) fn conflict(&self, found: Option<i64>) -> Error {
        let (bucket, key) = (self.schema.bucket.to_owned(), self.key.clone());
        match (&self.expect, found) {
            (Expect::Anything, None) => Error::NotFound { bucket, key },
            _ => Error::EtagConflict { bucket, key, found: found.map(Etag::of) },
        }
    }

    /// Whether the write may be made where this is found.
    pub(crate) fn accepts(&self, found: Option<i64>) -> bool {
        match &self.expect {
            Expect::Absent => found.is_none(),
            Expect::Etag(etag) => found.is_some() && found == etag.number(),
            Expect::Anything => found.is_some() || self.content.is_some(),
        }
    }
}

/// Writes that happen together: sorted, at most one for each record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes {
    pub(crate) writes: Vec<Write>,
    pub(crate) fence: Option<Fence>,
}

pub(crate) trait Engine: Debug + Send + Sync {
    /// Makes the bucket, or brings its indices up to this version.
    fn declare(&self, schema: Schema) -> BoxFuture<'_, Result<(), Error>>;

    /// Reads a record.
    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Row>, Error>>;

    /// Reads a page.
    fn find(&self, search: Search) -> BoxFuture<'_, Result<Rows, Error>>;

    /// Makes all writes or none, and returns the etag of each record that was put.
    fn commit(&self, writes: Writes) -> BoxFuture<'_, Result<Vec<Option<i64>>, Error>>;

    /// Takes or renews a lease, and returns its number, or none while another holds it.
    fn claim<'a>(
        &'a self,
        lease: &'a str,
        holder: &'a str,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Option<i64>, Error>>;

    /// Gives a lease back before it runs out.
    fn release(&self, fence: Fence) -> BoxFuture<'_, Result<(), Error>>;

    /// Returns another engine, in memory, with the records that this one in memory has now.
    fn copied(&self) -> Result<Arc<dyn Engine>, Error> {
        Err(Error::Unavailable { why: "only a store in memory is copied".to_owned() })
    }
}
