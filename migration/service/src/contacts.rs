// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the agent of each node said last, and when: all services know it, also after their start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use migration_core::dead::{Contact, LastContact};
use migration_core::time::Time;
use store::{Bucket, Error, Expect, Schema, Store};
use tokio::time::Instant;
use uuid::Uuid;

/// One row for each node that ever had a migration.
const HEARD: Schema = Schema { bucket: "migration_heard", version: 1, fields: &[], lists: &[] };

/// What is said within so many ms of the row is not written: a round asks many times.
const FRESH_MS: i64 = 30_000;

/// The last words.
#[derive(Clone, Debug)]
pub struct Contacts {
    bucket: Bucket<LastContact>,
    /// When this process last wrote a node's row, by the clock, which may be put forward, and by the time that passes.
    written: Arc<Mutex<BTreeMap<Uuid, (Time, Instant)>>>,
    /// The nodes whose open migrations this process has compared with the store.
    compared: Arc<Mutex<BTreeSet<Uuid>>>,
}

impl Contacts {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<Contacts, Error> {
        Ok(Contacts {
            bucket: Bucket::open(store, HEARD).await?,
            written: Arc::default(),
            compared: Arc::default(),
        })
    }

    /// Returns what the agent of a node said last. A clock that was put forward since makes no word older than it is.
    pub async fn last(&self, cn: Uuid, now: Time) -> Result<Option<LastContact>, Error> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).get(&cn).copied();
        let passed = written.map(|(_, at)| i64::try_from(at.elapsed().as_millis()).unwrap_or(0));
        match self.bucket.get(&cn.to_string()).await {
            Ok(found) => {
                let LastContact { at, what } = found.value;
                let at = passed.map_or(at, |passed| at.max(now.plus(-passed)));
                Ok(Some(LastContact { at, what }))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the agent of a node has open was compared with the store: what it has heard later is known.
    pub fn compared(&self, cn: Uuid) {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).insert(cn);
    }

    /// Returns true if it was since the start of this process. A store is restored while no process uses it.
    pub fn is_compared(&self, cn: Uuid) -> bool {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).contains(&cn)
    }

    /// Keeps that the agent of a node has said something. Where that cannot be written the next word is.
    pub async fn note(&self, cn: Uuid, what: Contact, at: Time) {
        {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if written.get(&cn).is_some_and(|(last, _)| (0..FRESH_MS).contains(&at.since(*last))) {
                return;
            }
            written.insert(cn, (at, Instant::now()));
        }
        let last = LastContact { at, what };
        if let Err(error) = self.bucket.put(&cn.to_string(), Expect::Anything, &last).await {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&cn);
            tracing::warn!(%cn, reason = %error, "cannot record when an agent last answered; its next answer is recorded instead");
        }
    }
}
