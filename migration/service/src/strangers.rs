// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migrations that agents have open and the store never knew: it is empty, or older than they are.

use migration_core::intent::End;
use migration_core::time::Time;
use serde::{Deserialize, Serialize};
use store::{Bucket, Error, Expect, Query, Schema, Store};
use uuid::Uuid;

use super::ends::rows;

const STRANGERS: Schema =
    Schema { bucket: "migration_strangers", version: 1, fields: &["vm_uuid"], lists: &[] };

/// An end that an agent has, of a migration that the store does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranger {
    pub migration: Uuid,
    /// Which of its ends.
    pub end: End,
    pub vm_uuid: Uuid,
    /// The node.
    pub cn_uuid: Uuid,
    /// When the agent first claimed it.
    pub heard: Time,
    /// The node of the other copy, where the agent says that its own is used instead and this service has not declared
    /// that node dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Uuid>,
}

impl Stranger {
    /// The claim of one node does not block another's.
    fn key(&self) -> String {
        format!("{}-{}-{}", self.migration, self.end, self.cn_uuid)
    }

    /// The key that its row had in earlier versions.
    fn old_key(&self) -> String {
        format!("{}-{}", self.migration, self.end)
    }
}

#[derive(Clone, Debug)]
pub struct Strangers(Bucket<Stranger>);

impl Strangers {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<Strangers, Error> {
        Ok(Strangers(Bucket::open(store, STRANGERS).await?))
    }

    /// Returns all.
    pub async fn all(&self) -> Result<Vec<Stranger>, Error> {
        let rows = rows(&self.0, Query::all()).await?;
        Ok(rows.into_iter().map(|row| row.value).collect())
    }

    /// Returns those of a VM.
    pub async fn of_vm(&self, vm: Uuid) -> Result<Vec<Stranger>, Error> {
        let rows = rows(&self.0, Query::all().with("vm_uuid", vm.to_string())).await?;
        Ok(rows.into_iter().map(|row| row.value).collect())
    }

    /// Keeps one. One that is there stays, unless this one says more.
    pub async fn keep(&self, stranger: &Stranger) -> Result<(), Error> {
        let expect = match stranger.instead {
            Some(_) => Expect::Anything,
            None => Expect::Absent,
        };
        match self.0.put(&stranger.key(), expect, stranger).await {
            Err(Error::EtagConflict { .. }) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Forgets those of a node: its claims no longer count.
    pub async fn forget_of(&self, cn: Uuid) -> Result<(), Error> {
        for stranger in self.all().await?.iter().filter(|it| it.cn_uuid == cn) {
            self.forget(stranger).await?;
        }
        Ok(())
    }

    /// Forgets one: it is known, or has gone.
    pub async fn forget(&self, stranger: &Stranger) -> Result<(), Error> {
        for key in [stranger.key(), stranger.old_key()] {
            match self.0.delete(&key, Expect::Anything).await {
                Err(Error::NotFound { .. }) | Ok(()) => {}
                failed => return failed,
            }
        }
        Ok(())
    }
}
