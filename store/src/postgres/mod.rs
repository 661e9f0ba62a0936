// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The engine on a PostgreSQL server.
//!
//! `pool` has the connections and says which errors pass, `tables` the layout, `commit` the batches,
//! `find` the searches.

mod commit;
mod find;
mod pool;
mod tables;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::{Engine, Fence, Row, Rows, Writes};
use crate::error::Error;
use crate::query::Search;
use crate::schema::Schema;
use pool::{CALL, Pool};

/// How long new indices of a bucket may take.
const INDEX: Duration = Duration::from_secs(600);

/// The engine.
#[derive(Debug)]
pub(crate) struct Postgres {
    pool: Pool,
}

impl Postgres {
    /// The server at this address, which is not asked yet.
    pub(crate) fn new(address: &str) -> Result<Postgres, Error> {
        Ok(Postgres { pool: Pool::new(address)? })
    }
}

impl Engine for Postgres {
    fn declare(&self, schema: Schema) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.pool.retried(INDEX, move |connection| tables::declare(connection, schema)))
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Row>, Error>> {
        Box::pin(self.pool.retried(CALL, move |connection| find::get(connection, bucket, key)))
    }

    fn find(&self, search: Search) -> BoxFuture<'_, Result<Rows, Error>> {
        Box::pin(async move {
            self.pool.retried(CALL, |connection| find::find(connection, &search)).await
        })
    }

    fn commit(&self, writes: Writes) -> BoxFuture<'_, Result<Vec<Option<i64>>, Error>> {
        Box::pin(async move { commit::commit(&self.pool, &writes).await })
    }

    fn claim<'a>(
        &'a self,
        lease: &'a str,
        holder: &'a str,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Option<i64>, Error>> {
        let claim = move |connection| tables::claim(connection, lease, holder, duration);
        Box::pin(self.pool.retried(CALL, claim))
    }

    fn release(&self, fence: Fence) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.pool.retried(CALL, |connection| tables::release(connection, &fence)).await
        })
    }
}
