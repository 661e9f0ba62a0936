// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Loses answers, for simulated tests: a decorator of another engine.

use std::fmt::Debug;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::{Engine, Fence, Row, Rows, Writes};
use crate::error::Error;
use crate::query::Search;
use crate::schema::Schema;

/// What is asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A bucket is opened.
    Open,
    /// A record or a page is read.
    Read,
    /// A batch is written.
    Commit,
    /// A lease is claimed or given back.
    Lease,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is answered.
    None,
    /// The store is away: nothing is done.
    Before,
    /// It is done, and the answer is lost.
    After,
    /// It is not done, and no answer ever comes.
    Never,
}

/// Decides what happens to each call.
pub trait Faults: Debug + Send + Sync {
    /// The fate of the next call.
    fn next(&self, call: Call) -> Fault;

    /// Waits as long as the call is held up, before it is done, and again before it is answered.
    fn held(&self, _call: Call, _is_done: bool) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }
}

/// An engine whose answers may be lost.
#[derive(Debug)]
pub(crate) struct Faulty {
    engine: Arc<dyn Engine>,
    faults: Arc<dyn Faults>,
}

impl Faulty {
    pub(crate) fn new(engine: Arc<dyn Engine>, faults: Arc<dyn Faults>) -> Faulty {
        Faulty { engine, faults }
    }

    async fn run<R>(
        &self,
        call: Call,
        work: impl Future<Output = Result<R, Error>>,
    ) -> Result<R, Error> {
        let why = "the answer was lost on purpose".to_owned();
        self.faults.held(call, false).await;
        match self.faults.next(call) {
            Fault::None => {
                let done = work.await;
                self.faults.held(call, true).await;
                done
            }
            Fault::Before => Err(Error::Unavailable { why }),
            Fault::After => {
                work.await?;
                match call {
                    Call::Commit => Err(Error::UnknownOutcome { why }),
                    _ => Err(Error::Unavailable { why }),
                }
            }
            Fault::Never => future::pending().await,
        }
    }
}

impl Engine for Faulty {
    fn declare(&self, schema: Schema) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.run(Call::Open, self.engine.declare(schema)))
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Row>, Error>> {
        Box::pin(self.run(Call::Read, self.engine.get(bucket, key)))
    }

    fn find(&self, search: Search) -> BoxFuture<'_, Result<Rows, Error>> {
        Box::pin(self.run(Call::Read, self.engine.find(search)))
    }

    fn commit(&self, writes: Writes) -> BoxFuture<'_, Result<Vec<Option<i64>>, Error>> {
        Box::pin(self.run(Call::Commit, self.engine.commit(writes)))
    }

    fn claim<'a>(
        &'a self,
        lease: &'a str,
        holder: &'a str,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Option<i64>, Error>> {
        Box::pin(self.run(Call::Lease, self.engine.claim(lease, holder, duration)))
    }

    fn release(&self, fence: Fence) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.run(Call::Lease, self.engine.release(fence)))
    }
}
