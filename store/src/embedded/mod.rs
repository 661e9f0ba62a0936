// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The engine on one file, or on memory.
//!
//! `file` opens it, `tables` has the layout and the writes, `find` the searches, `leases` the leases. A file is
//! opened by one process at a time, which is thus the only holder of all leases. A file that could not be read
//! or written is closed, and opened anew at the next call.

mod failure;
mod file;
mod find;
mod leases;
mod tables;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::{Engine, Fence, Row, Rows, Writes};
use crate::error::Error;
use crate::query::Search;
use crate::schema::Schema;
use failure::Failure;
use file::File;
use leases::Leases;

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct Embedded {
    file: Arc<File>,
    leases: Arc<Leases>,
    /// On memory, calls are made in the caller's task, so that runs repeat themselves.
    is_in_memory: bool,
}

impl Embedded {
    /// Opens the file, or makes it.
    pub(crate) async fn open(path: PathBuf) -> Result<Embedded, Error> {
        let engine = Embedded {
            file: Arc::new(File::at(path)),
            leases: Arc::default(),
            is_in_memory: false,
        };
        engine.run(|file, _| file.read(|_| Ok(()))).await?;
        Ok(engine)
    }

    /// An empty store in memory.
    pub(crate) fn in_memory() -> Result<Embedded, Error> {
        let file = Arc::new(File::in_memory()?);
        Ok(Embedded { file, leases: Arc::default(), is_in_memory: true })
    }

    /// Runs `work` on a thread that may block.
    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&File, &Leases) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        if self.is_in_memory {
            return work(&self.file, &self.leases);
        }
        let (file, leases) = (self.file.clone(), self.leases.clone());
        let done = tokio::task::spawn_blocking(move || work(&file, &leases)).await;
        done.unwrap_or_else(|error| Err(Error::UnknownOutcome { why: error.to_string() }))
    }
}

impl Engine for Embedded {
    fn declare(&self, schema: Schema) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.run(move |file, _| file.write(|txn| tables::declare(txn, &schema))))
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Row>, Error>> {
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        Box::pin(self.run(move |file, _| file.read(|txn| find::get(txn, &bucket, &key))))
    }

    fn find(&self, search: Search) -> BoxFuture<'_, Result<Rows, Error>> {
        Box::pin(self.run(move |file, _| file.read(|txn| find::find(txn, &search))))
    }

    fn commit(&self, writes: Writes) -> BoxFuture<'_, Result<Vec<Option<i64>>, Error>> {
        Box::pin(self.run(move |file, leases| {
            file.write(|txn| {
                if let Some(fence) = &writes.fence {
                    leases.check(fence).map_err(Failure::Refused)?;
                }
                tables::apply(txn, &writes)
            })
        }))
    }

    fn claim<'a>(
        &'a self,
        lease: &'a str,
        holder: &'a str,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Option<i64>, Error>> {
        let (lease, holder) = (lease.to_owned(), holder.to_owned());
        Box::pin(self.run(move |file, leases| leases.claim(file, &lease, &holder, duration)))
    }

    fn release(&self, fence: Fence) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.run(move |_, leases| {
            leases.release(&fence);
            Ok(())
        }))
    }

    fn copied(&self) -> Result<Arc<dyn Engine>, Error> {
        if !self.is_in_memory {
            return Err(Error::Unavailable { why: "only a store in memory is copied".to_owned() });
        }
        let copy = Embedded::in_memory()?;
        self.file.read(|from| {
            let copied = copy.file.write(|to| tables::copy(from, to));
            copied.map_err(Failure::Refused)
        })?;
        Ok(Arc::new(copy))
    }
}
