// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each service shows that another one has done: the latest event of bytes of each VM, and the leader's heartbeat.

use serde_json::{Value, json};
use store::{Bucket, Error, Expect, Schema, Store};
use uuid::Uuid;

use migration_core::progress::Latest;
use migration_core::time::Time;

/// The latest event of bytes of each VM, so that every service has it for its watchers.
const EVENTS: Schema = Schema { bucket: "migration_events", version: 1, fields: &[], lists: &[] };

/// The last heartbeat of the leader.
const LEADER: Schema = Schema { bucket: "migration_leader", version: 1, fields: &[], lists: &[] };
/// The one key of that bucket.
const SEEN: &str = "seen";

/// The latest events and the heartbeat.
#[derive(Clone, Debug)]
pub struct News {
    events: Bucket<Value>,
    leader: Bucket<Value>,
}

impl News {
    /// Opens the buckets.
    pub async fn open(store: &Store) -> Result<News, Error> {
        Ok(News {
            events: Bucket::open(store, EVENTS).await?,
            leader: Bucket::open(store, LEADER).await?,
        })
    }

    /// Returns the last heartbeat of the leader.
    pub async fn seen(&self) -> Result<Option<Time>, Error> {
        match self.leader.get(SEEN).await {
            Ok(found) => Ok(serde_json::from_value(found.value["at"].clone()).ok()),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says that this service does the rounds.
    pub async fn put_seen(&self, now: Time) -> Result<(), Error> {
        self.leader.put(SEEN, Expect::Anything, &json!({ "at": now })).await.map(drop)
    }

    /// Returns the latest event of bytes of a VM.
    pub async fn event(&self, vm: Uuid) -> Result<Option<Latest>, Error> {
        match self.events.get(&vm.to_string()).await {
            Ok(found) => {
                let of = serde_json::from_value(found.value["of"].clone()).unwrap_or_default();
                Ok(Some(Latest { of, event: found.value["event"].clone() }))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores the latest event of bytes of a VM.
    pub async fn put_event(&self, vm: Uuid, latest: &Latest) -> Result<(), Error> {
        let row = json!({"of": latest.of, "event": latest.event});
        self.events.put(&vm.to_string(), Expect::Anything, &row).await.map(drop)
    }

    /// Removes the latest event of bytes of a VM.
    pub async fn forget_event(&self, vm: Uuid) -> Result<(), Error> {
        match self.events.delete(&vm.to_string(), Expect::Anything).await {
            Err(Error::NotFound { .. }) => Ok(()),
            done => done,
        }
    }
}
