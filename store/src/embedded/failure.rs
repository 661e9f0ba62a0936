// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a transaction was given up.

use crate::error::Error;

/// Why a transaction was given up.
#[derive(Debug)]
pub(super) enum Failure {
    /// The call is refused; the file is as good as ever.
    Refused(Error),
    /// The file could not be read or written.
    Storage(Box<redb::Error>),
}

/// Each of the database's own errors is one of the storage.
macro_rules! storage {
    ($($kind:ty),*) => {
        $(impl From<$kind> for Failure {
            fn from(error: $kind) -> Failure {
                Failure::Storage(Box::new(error.into()))
            }
        })*
    };
}
storage!(redb::DatabaseError, redb::TransactionError, redb::TableError, redb::StorageError);
