// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Records of one type.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Content, Expect, Row, Write};
use crate::error::{Error, Invalid, Thing};
use crate::etag::Etag;
use crate::index;
use crate::limits;
use crate::query::{Marker, Query};
use crate::schema::{self, Schema};
use crate::store::{Batch, Store};

/// Records of type `T` under keys.
#[derive(Debug)]
pub struct Bucket<T> {
    store: Store,
    schema: Schema,
    records: PhantomData<fn() -> T>,
}

impl<T> Clone for Bucket<T> {
    fn clone(&self) -> Bucket<T> {
        Bucket { store: self.store.clone(), schema: self.schema, records: PhantomData }
    }
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    pub key: String,
    pub etag: Etag,
    /// What it says.
    pub value: T,
}

/// What a search found.
#[derive(Debug)]
pub struct Page<T> {
    /// The records, in the order of the query.
    pub records: Vec<Versioned<T>>,
    /// An [`Error::Corrupt`] for each record that is there and cannot be read.
    pub unreadable: Vec<Error>,
    /// Where the page ended; none after the last one.
    pub next: Option<Marker>,
}

impl<T: Serialize + DeserializeOwned> Bucket<T> {
    /// Opens the bucket. Makes it where it is not there, and its indices anew where the schema has a
    /// later version than the store.
    /// Fails with [`Error::Newer`] where the store knows a later version, [`Invalid::Fields`] where it knows other
    /// fields under this version, [`Error::Corrupt`] for a record that is no object, and those of the storage.
    pub async fn open(store: &Store, schema: Schema) -> Result<Bucket<T>, Error> {
        schema.check()?;
        store.engine().declare(schema).await?;
        Ok(Bucket { store: store.clone(), schema, records: PhantomData })
    }

    /// Returns the record.
    pub async fn get(&self, key: &str) -> Result<Versioned<T>, Error> {
        schema::key(key)?;
        match self.store.engine().get(self.schema.bucket, key).await? {
            Some(row) => self.parse(row),
            None => {
                Err(Error::NotFound { bucket: self.schema.bucket.to_owned(), key: key.to_owned() })
            }
        }
    }

    /// Writes the record and returns its new etag.
    pub async fn put(&self, key: &str, expect: Expect, value: &T) -> Result<Etag, Error> {
        let mut batch = Batch::new();
        self.put_in(&mut batch, key, expect, value)?;
        let mut etags = self.store.commit(batch).await?;
        Ok(etags.pop().flatten().expect("invariant: a put has an etag"))
    }

    /// Deletes the record.
    /// Fails with [`Error::EtagConflict`], [`Error::NotFound`] where anything is expected and nothing is there, and
    /// those of the storage.
    pub async fn delete(&self, key: &str, expect: Expect) -> Result<(), Error> {
        let mut batch = Batch::new();
        self.delete_in(&mut batch, key, expect)?;
        self.store.commit(batch).await.map(drop)
    }

    /// Adds the writing of a record to a batch.
    pub fn put_in(
        &self,
        batch: &mut Batch,
        key: &str,
        expect: Expect,
        value: &T,
    ) -> Result<(), Error> {
        let (bucket, named) = (self.schema.bucket.to_owned(), key.to_owned());
        let value = match serde_json::to_value(value) {
            Ok(value) if value.is_object() => value,
            Ok(_) => return Err(Invalid::NoObject { bucket, key: named }.into()),
            Err(error) => {
                return Err(Invalid::NoJson { bucket, key: named, why: error.to_string() }.into());
            }
        };
        let text = value.to_string();
        if text.len() > limits::RECORD {
            let what = Thing::Record { bucket, key: named };
            return Err(Error::TooLarge { what, size: text.len(), limit: limits::RECORD });
        }
        let entries = index::entries(&self.schema, &value)?;
        self.add(batch, key, expect, Some(Content { text, entries }))
    }

    /// Adds the deletion of a record to a batch.
    pub fn delete_in(&self, batch: &mut Batch, key: &str, expect: Expect) -> Result<(), Error> {
        self.add(batch, key, expect, None)
    }

    /// Returns a page of the records that the query describes.
    /// Fails with [`Error::Invalid`] for a field without an index, and those of the storage.
    pub async fn find(&self, query: Query) -> Result<Page<T>, Error> {
        let found = self.store.engine().find(query.search(&self.schema)?).await?;
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        for row in found.rows {
            match self.parse(row) {
                Ok(record) => records.push(record),
                Err(error) => unreadable.push(error),
            }
        }
        Ok(Page { records, unreadable, next: found.end.map(Marker::at) })
    }

    fn add(
        &self,
        batch: &mut Batch,
        key: &str,
        expect: Expect,
        content: Option<Content>,
    ) -> Result<(), Error> {
        schema::key(key)?;
        batch.add(Write { schema: self.schema, key: key.to_owned(), expect, content })
    }

    fn parse(&self, row: Row) -> Result<Versioned<T>, Error> {
        match serde_json::from_str(&row.text) {
            Ok(value) => Ok(Versioned { key: row.key, etag: Etag::of(row.etag), value }),
            Err(error) => {
                let bucket = self.schema.bucket.to_owned();
                Err(Error::Corrupt { bucket, key: row.key, why: error.to_string() })
            }
        }
    }
}
