// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Buckets of JSON records with compare-and-swap, for the services of a data centre: one embedded
//! file by default, PostgreSQL for two or more instances. It knows nothing of what the records say.
//!
//! A [`Bucket`] has records of one type under keys. Each record has an [`Etag`], an opaque text that
//! changes with each write and never comes back; a write says what it expects to be there
//! ([`Expect`]). A [`Schema`] names the top-level fields of a record by which [`Bucket::find`] finds
//! and orders. A [`Batch`] of writes to several buckets happens whole or not at all. A lease
//! ([`Store::claim`]) says which instance runs timers; its [`Fence`] number rises with each new
//! holder, and a batch that [requires](Batch::require) it is refused once the lease ran out, by the
//! store's clock. [`Store::lead`] holds one for as long as it can, and works meanwhile.
//!
//! A write is acknowledged after it is on the disk. What was acknowledged stays when the process or
//! the database server is killed. [`Error::UnknownOutcome`] says that a write may have happened; it
//! is returned only where the store could not be asked. Services answer 503 to that and to
//! [`Error::Unavailable`].
//!
//! # Engines
//!
//! | engine | file | clock of leases | when it is away |
//! | --- | --- | --- | --- |
//! | embedded | one file (`redb`), fsync before the answer, open in one process only | the process's; opening the file ends all leases | a file that cannot be written is opened anew at the next call |
//! | in memory | the same code on memory, in the caller's task, so that a simulated run repeats itself | tokio's, also where it is paused | never; [`Faults`] loses answers |
//! | PostgreSQL | tables that the program makes and migrates itself | the server's | calls try again for about 15 s |
//!
//! PostgreSQL: each batch is one transaction that writes a row with its own id. When the reply to
//! COMMIT is lost, another connection inserts that id: if the row is there the batch happened, and if
//! not, the inserted row makes sure that it never will. Only then is it tried again.
//!
//! # Limits
//!
//! [`limits`] has them all; what exceeds one is refused with [`Error::TooLarge`], and a page of
//! [`Bucket::find`] ends early. A search with conditions reads the index entries of its first condition:
//! put the narrowest first.
//!
//! # Modules
//!
//! Highest first; each uses only modules listed below it. There are no tasks of the crate's own; the
//! pool has one for each connection to PostgreSQL.

#![forbid(unsafe_code)]

mod bucket; // records of one type: get, put, delete, find

mod lead; // the one way to lead

mod store; // a handle to one engine: batches and leases

mod faults; // loses answers, for simulated tests

mod postgres; // the engine on a PostgreSQL server

mod embedded; // the engine on one file, or on memory

mod engine; // what an engine does, on rows of text

mod query; // conditions, order, markers and pages

mod index; // the order of indexed values

mod schema; // names of buckets, fields and keys

mod error; // what can go wrong

mod etag; // the version of a record

pub mod limits; // how large things may be

pub use bucket::{Bucket, Page, Versioned};
pub use engine::{Expect, Fence};
pub use error::{Error, Invalid, Thing};
pub use etag::Etag;
pub use faults::{Call, Fault, Faults};
pub use query::{Marker, Query};
pub use schema::Schema;
pub use store::{Batch, Store};
