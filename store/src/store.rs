// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A handle to one engine: batches and leases.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::embedded::Embedded;
use crate::engine::{Engine, Fence, Write, Writes};
use crate::error::{Error, Invalid, Thing};
use crate::etag::Etag;
use crate::faults::{Faults, Faulty};
use crate::limits;
use crate::postgres::Postgres;
use crate::schema;

/// A storage. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Arc<dyn Engine>,
}

impl Store {
    /// Opens the file, or makes it. No other process can open it meanwhile.
    /// Fails with [`Error::Unavailable`] where the file cannot be opened or is no store, [`Error::Newer`].
    pub async fn embedded(path: &Path) -> Result<Store, Error> {
        Ok(Store { engine: Arc::new(Embedded::open(path.to_owned()).await?) })
    }

    /// An empty store in memory, with the code of the embedded one.
    pub fn in_memory() -> Result<Store, Error> {
        Ok(Store { engine: Arc::new(Embedded::in_memory()?) })
    }

    /// Another store in memory with the records that this one in memory has now, as a backup of this moment has them,
    /// for simulated tests. No lease is held there.
    /// Fails with [`Error::Unavailable`] where this one is not in memory.
    pub fn copied(&self) -> Result<Store, Error> {
        Ok(Store { engine: self.engine.copied()? })
    }

    /// The store on a PostgreSQL server, such as `postgresql://user:password@host/database`. Nothing
    /// is asked of the server yet.
    pub fn postgres(address: &str) -> Result<Store, Error> {
        Ok(Store { engine: Arc::new(Postgres::new(address)?) })
    }

    /// The same storage with faults, for simulated tests.
    pub fn with_faults(&self, faults: Arc<dyn Faults>) -> Store {
        Store { engine: Arc::new(Faulty::new(self.engine.clone(), faults)) }
    }

    /// Makes all writes of the batch or none. Returns the new etags, in the order in which the writes were
    /// added; none for a deletion.
    /// Fails with [`Error::EtagConflict`] or [`Error::NotFound`] for the first write that does not find what it
    /// expects, [`Error::Fenced`], and those of the storage.
    pub async fn commit(&self, batch: Batch) -> Result<Vec<Option<Etag>>, Error> {
        // Sorted, so that two batches never wait for each other in a circle.
        let mut order: Vec<usize> = (0..batch.writes.len()).collect();
        let name = |at: &usize| (batch.writes[*at].schema.bucket, &batch.writes[*at].key);
        order.sort_by(|a, b| name(a).cmp(&name(b)));
        if let Some(pair) = order.windows(2).find(|pair| name(&pair[0]) == name(&pair[1])) {
            let (bucket, key) = name(&pair[0]);
            let (bucket, key) = (bucket.to_owned(), key.clone());
            return Err(Invalid::Twice { bucket, key }.into());
        }
        let writes = order.iter().map(|at| batch.writes[*at].clone()).collect();
        let numbers = self.engine.commit(Writes { writes, fence: batch.fence }).await?;
        let mut etags = vec![None; numbers.len()];
        for (at, number) in order.into_iter().zip(numbers) {
            etags[at] = number.map(Etag::of);
        }
        Ok(etags)
    }

    /// Takes the lease, or renews it where `holder` has it: it then runs for `duration` from now, by the
    /// store's clock. Returns its fence, or none while another holds it. `holder` names one run of one
    /// process; one that let its lease run out gets another number.
    /// Fails with [`Error::Invalid`] for a name, and those of the storage.
    pub async fn claim(
        &self,
        lease: &str,
        holder: &str,
        duration: Duration,
    ) -> Result<Option<Fence>, Error> {
        schema::name(lease)?;
        schema::name(holder)?;
        let number = self.engine.claim(lease, holder, duration).await?;
        Ok(number.map(|number| Fence { lease: lease.to_owned(), number }))
    }

    /// Gives the lease back, so that another need not wait. Does nothing where it is no more held.
    pub async fn release(&self, fence: Fence) -> Result<(), Error> {
        self.engine.release(fence).await
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }
}

/// Writes that happen together.
#[derive(Debug, Default)]
pub struct Batch {
    writes: Vec<Write>,
    bytes: usize,
    fence: Option<Fence>,
}

impl Batch {
    /// No writes yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The batch happens only while the lease is held under this number.
    pub fn require(&mut self, fence: &Fence) {
        self.fence = Some(fence.clone());
    }

    pub(crate) fn add(&mut self, write: Write) -> Result<(), Error> {
        let content = write.content.as_ref();
        let bytes = self.bytes + write.key.len() + content.map_or(0, |it| it.text.len());
        for (what, size, limit) in [
            (Thing::Batch, self.writes.len() + 1, limits::BATCH),
            (Thing::BatchBytes, bytes, limits::BATCH_BYTES),
        ] {
            if size > limit {
                return Err(Error::TooLarge { what, size, limit });
            }
        }
        self.bytes = bytes;
        self.writes.push(write);
        Ok(())
    }
}
