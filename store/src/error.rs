// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What can go wrong.

use sdc_clients::quoted;

use crate::etag::Etag;

/// Why the store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such record.
    #[error("bucket {bucket} has no record {key}")]
    NotFound { bucket: String, key: String },
    /// Another version of the record is there than the write expects, or none.
    #[error("record {key} of bucket {bucket} is not as expected: {}", match found {
        Some(etag) => format!("its etag is {etag}"),
        None => "it is not there".to_owned(),
    })]
    EtagConflict {
        bucket: String,
        key: String,
        /// What is there.
        found: Option<Etag>,
    },
    /// The lease that the write requires is not held any more, or by another.
    #[error("lease {lease} is not held under number {number} any more")]
    Fenced {
        lease: String,
        /// The number that the write requires.
        number: i64,
    },
    /// The storage cannot be used now. Nothing was changed.
    #[error("the store is not available: {why}")]
    Unavailable {
        /// What the engine said, for people.
        why: String,
    },
    /// The write may have happened; the storage went away before it could say so. Read again.
    #[error("it is not known whether the write happened: {why}")]
    UnknownOutcome {
        /// What the engine said, for people.
        why: String,
    },
    /// What is stored is no record of this type.
    #[error("record {key} of bucket {bucket} cannot be read: {why}")]
    Corrupt {
        bucket: String,
        key: String,
        /// Where it does not parse.
        why: String,
    },
    /// Something exceeds one of the [`limits`](crate::limits).
    #[error("{what} has {size}, {limit} is the limit")]
    TooLarge {
        /// What is too large.
        what: Thing,
        /// How large it is.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// The call itself is wrong, whatever is stored.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A later version of the program has written the store: it must not be written by this one.
    #[error("{what} has version {found}, this program knows {known}")]
    Newer {
        /// `the store`, or a bucket.
        what: String,
        /// The version that is there.
        found: u32,
        /// The version of this program.
        known: u32,
    },
}

impl Error {
    /// Whether the storage is away: a service answers 503, never 404.
    pub fn is_away(&self) -> bool {
        matches!(self, Error::Unavailable { .. } | Error::UnknownOutcome { .. })
    }
}

/// What can be too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Thing {
    /// A record, in bytes of JSON.
    #[error("record {key} of bucket {bucket}, in bytes,")]
    Record { bucket: String, key: String },
    /// A string in an indexed field, in bytes.
    #[error("indexed field {field}, in bytes,")]
    Field { field: String },
    /// The values in all indexed fields of one record.
    #[error("the number of indexed values")]
    Entries,
    /// The conditions of a search.
    #[error("the number of conditions")]
    Conditions,
    /// The writes of a batch.
    #[error("the number of writes in a batch")]
    Batch,
    /// The records of a batch, in bytes.
    #[error("a batch, in bytes,")]
    BatchBytes,
}

/// What a call must not ask for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A bucket, field, lease or holder with a name that is empty, too long, or has other characters
    /// than letters, digits, `_`, `-`, `.` and `/`.
    #[error("{} is not a valid name", quoted(.0))]
    Name(String),
    /// A key that is empty, too long or has control characters.
    #[error("{} is not a valid key", quoted(.0))]
    Key(String),
    /// A record that is no JSON object.
    #[error("record {key} of bucket {bucket} is not a JSON object")]
    NoObject { bucket: String, key: String },
    /// A record that cannot be written as JSON.
    #[error("record {key} of bucket {bucket} cannot be written as JSON: {why}")]
    NoJson {
        bucket: String,
        key: String,
        /// What the serializer said.
        why: String,
    },
    /// A value that cannot be indexed: an object, or a list in a field that is declared to have one value.
    #[error("the value of field {0} cannot be indexed")]
    Value(String),
    /// A search by a field that the schema does not name, or ordered by a list.
    #[error("bucket {bucket} has no index on {field} for this")]
    NotIndexed { bucket: String, field: String },
    /// Two writes of a batch to one record.
    #[error("a batch writes record {key} of bucket {bucket} twice")]
    Twice { bucket: String, key: String },
    /// Other fields than the store knows of this version of the bucket: a new version is needed.
    #[error("bucket {bucket} has other fields in its version {version}")]
    Fields { bucket: String, version: u32 },
    /// A text that no search gave as its marker.
    #[error("{} is not a marker of a search", quoted(.0))]
    Marker(String),
    /// An address of a server that does not parse.
    #[error("not the address of a PostgreSQL server: {0}")]
    Address(String),
}
