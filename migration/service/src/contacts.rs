// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last contact with the agent of each node: all instances know it, also after their start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use migration_core::dead::{Contact, LastContact};
use migration_core::time::Time;
use store::{Bucket, Error, Expect, Schema, Store};
use tokio::time::Instant;
use uuid::Uuid;

/// One row for each node that ever had a migration.
const CONTACTS: Schema = Schema { bucket: "migration_heard", version: 1, fields: &[], lists: &[] };

/// A contact within so many ms of the row is not written: a round asks many times.
const FRESH_MS: i64 = 30_000;

/// The last contacts.
#[derive(Clone, Debug)]
pub struct Contacts {
    bucket: Bucket<LastContact>,
    /// When this process last wrote a node's row, by the clock, which may be put forward, and by the time that passes.
    written: Arc<Mutex<BTreeMap<Uuid, (Time, Instant)>>>,
    /// The nodes whose open migrations this process has compared with the store.
    compared: Arc<Mutex<BTreeSet<Uuid>>>,
    /// The nodes whose question is being answered.
    asking: Arc<Mutex<BTreeSet<Uuid>>>,
}

/// A question of a node that is being answered: until this is dropped there is no second one.
#[derive(Debug)]
pub struct Asking(Arc<Mutex<BTreeSet<Uuid>>>, Uuid);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Contacts {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<Contacts, Error> {
        Ok(Contacts {
            bucket: Bucket::open(store, CONTACTS).await?,
            written: Arc::default(),
            compared: Arc::default(),
            asking: Arc::default(),
        })
    }

    /// Takes the place of a node's question; none while another one is answered.
    pub fn asks(&self, cn: Uuid) -> Option<Asking> {
        let is_first = self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(cn);
        is_first.then(|| Asking(Arc::clone(&self.asking), cn))
    }

    /// Returns the last contact with a node's agent. A clock that was put forward since makes no contact older than
    /// it is.
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

    /// Notes that what a node's agent has open was compared with the store: what it receives later is known.
    pub fn compared(&self, cn: Uuid) {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).insert(cn);
    }

    /// Returns true if it was since the start of this process. A store is restored while no process uses it.
    pub fn is_compared(&self, cn: Uuid) -> bool {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).contains(&cn)
    }

    /// Records a contact with a node's agent. If that cannot be written, the next contact is.
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
