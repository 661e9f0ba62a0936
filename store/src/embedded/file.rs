// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The open file: transactions, and what their errors mean.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::InMemoryBackend;
use redb::{Database, ReadTransaction, ReadableDatabase as _, WriteTransaction};

use super::failure::Failure;
use super::tables;
use crate::error::Error;

/// Pages of the file that are kept in memory, in bytes.
const CACHE: usize = 16 << 20;

/// A file that is opened when it is needed.
#[derive(Debug)]
pub(super) struct File {
    /// None for one in memory.
    path: Option<PathBuf>,
    database: Mutex<Option<Arc<Database>>>,
}

impl File {
    /// The file at `path`, not opened yet.
    pub(super) fn at(path: PathBuf) -> File {
        File { path: Some(path), database: Mutex::new(None) }
    }

    /// An empty file in memory.
    pub(super) fn in_memory() -> Result<File, Error> {
        let database = Database::builder()
            .set_cache_size(CACHE)
            .create_with_backend(InMemoryBackend::new())
            .map_err(|error| Error::Unavailable { why: error.to_string() })?;
        prepare(&database).map_err(|failure| means(failure, None))?;
        Ok(File { path: None, database: Mutex::new(Some(Arc::new(database))) })
    }

    /// Runs `work` in a transaction that reads.
    pub(super) fn read<R>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let database = self.open()?;
        let read = || work(&database.begin_read()?);
        read().map_err(|failure| self.failed(&database, failure))
    }

    /// Runs `work` in a transaction that writes, and brings it to the disk.
    pub(super) fn write<R>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<R, Failure>,
    ) -> Result<R, Error> {
        let database = self.open()?;
        let write = || {
            let txn = database.begin_write()?;
            let done = work(&txn)?;
            Ok((txn, done))
        };
        let (txn, done) = write().map_err(|failure| self.failed(&database, failure))?;
        // Whether a commit that failed is on the disk is unknown.
        txn.commit().map_err(|error| {
            self.close(&database);
            Error::UnknownOutcome { why: error.to_string() }
        })?;
        Ok(done)
    }

    fn database(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<Arc<Database>, Error> {
        let mut database = self.database();
        if let (None, Some(path)) = (&*database, &self.path) {
            let opened = open(path).map_err(|failure| means(failure, Some(path)))?;
            *database = Some(Arc::new(opened));
        }
        database.clone().ok_or_else(|| Error::Unavailable { why: "the memory failed".to_owned() })
    }

    /// Returns what a failure means; a file that failed is closed.
    fn failed(&self, database: &Arc<Database>, failure: Failure) -> Error {
        if matches!(failure, Failure::Storage(_)) {
            self.close(database);
        }
        means(failure, self.path.as_deref())
    }

    fn close(&self, database: &Arc<Database>) {
        let mut current = self.database();
        if self.path.is_some() && current.as_ref().is_some_and(|it| Arc::ptr_eq(it, database)) {
            *current = None;
        }
    }
}

fn open(path: &Path) -> Result<Database, Failure> {
    let is_new = !path.exists();
    let database = Database::builder().set_cache_size(CACHE).create(path)?;
    prepare(&database)?;
    if let (true, Some(dir)) = (is_new, path.parent()) {
        // A new file is safe only with the directory that names it.
        let synced = std::fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| Failure::Storage(Box::new(redb::Error::Io(error))))?;
    }
    Ok(database)
}

/// Makes the tables and checks the format.
fn prepare(database: &Database) -> Result<(), Failure> {
    let txn = database.begin_write()?;
    tables::prepare(&txn)?;
    txn.commit().map_err(|error| Failure::Storage(Box::new(error.into())))
}

fn means(failure: Failure, path: Option<&Path>) -> Error {
    match failure {
        Failure::Refused(error) => error,
        Failure::Storage(error) => {
            let place = path.map_or_else(|| "memory".to_owned(), |path| path.display().to_string());
            Error::Unavailable { why: format!("{place}: {error}") }
        }
    }
}
