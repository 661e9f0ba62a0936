// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Evacuations of nodes: a row of each that is under way, so that it is seen and paused from any headnode. When it
//! ends, the history has it.

use sdc_clients::migrations::{Ended, Evacuation};
use serde_json::{Map, Value, json};
use store::{Batch, Bucket, Error, Expect, Fence, Query, Schema, Store};
use uuid::Uuid;

use super::ends::pages;
use super::history::{self, History};
use super::refused::Refused;
use super::through::Through;
use migration_core::time::Time;

const EVACUATIONS: Schema =
    Schema { bucket: "migration_evacuations", version: 1, fields: &[], lists: &[] };

/// A node has no more VMs.
const MOST_EXCLUDED: usize = 10_000;

/// How often a write is tried that loses against others.
const TRIES: usize = 8;

#[derive(Clone, Debug)]
pub struct Evacuations {
    store: Store,
    bucket: Bucket<Evacuation>,
    history: History,
}

impl Evacuations {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<Evacuations, Error> {
        Ok(Evacuations {
            store: store.clone(),
            bucket: Bucket::open(store, EVACUATIONS).await?,
            history: History::open(store).await?,
        })
    }

    /// Returns all that are under way. Those that cannot be read are in the log.
    pub async fn all(&self) -> Result<Vec<Evacuation>, Error> {
        let (rows, unreadable) = pages(&self.bucket, Query::all()).await?;
        for error in unreadable {
            tracing::error!(reason = %error, "cannot read the record of an evacuation; leaving it out");
        }
        Ok(rows.into_iter().map(|row| row.value).collect())
    }

    /// Returns that of a node.
    /// Refuses with 404 if none is under way.
    pub async fn of(&self, cn: Uuid) -> Result<Evacuation, Refused> {
        match self.bucket.get(&cn.to_string()).await {
            Ok(found) => Ok(found.value),
            Err(Error::NotFound { .. }) => Err(none(cn)),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes that of a node if it cannot be read: nothing else ends it. Returns whether it was there.
    pub async fn remove_unreadable(&self, cn: Uuid) -> Result<bool, Refused> {
        let key = cn.to_string();
        let Err(Error::Corrupt { .. }) = self.bucket.get(&key).await else { return Ok(false) };
        self.bucket.delete(&key, Expect::Anything).await?;
        Ok(true)
    }

    /// Begins one, or changes what is named of it. `was_reserved`: the node was, if it is a new one.
    /// Refuses with 409 for a value that cannot be.
    pub async fn put(
        &self,
        cn: Uuid,
        values: &Map<String, Value>,
        was_reserved: bool,
        through: &Through,
        now: Time,
    ) -> Result<Evacuation, Refused> {
        let Through { by, program } = through.clone();
        let new = Evacuation {
            cn_uuid: cn.to_string(),
            began: now.to_string(),
            was_reserved,
            is_reserved: was_reserved,
            by,
            program,
            ..Evacuation::default()
        };
        let change = |row: &Evacuation| changed(row, values);
        let row = self.change(cn, Some(new), None, change).await?;
        row.ok_or_else(|| none(cn))
    }

    /// Changes one that is under way, while the lease is held; none if it is not under way any more.
    pub async fn update(
        &self,
        cn: Uuid,
        fence: &Fence,
        change: impl Fn(&mut Evacuation),
    ) -> Result<Option<Evacuation>, Refused> {
        let change = |row: &Evacuation| {
            let mut row = row.clone();
            change(&mut row);
            Ok(row)
        };
        self.change(cn, None, Some(fence), change).await
    }

    async fn change(
        &self,
        cn: Uuid,
        new: Option<Evacuation>,
        fence: Option<&Fence>,
        change: impl Fn(&Evacuation) -> Result<Evacuation, Refused>,
    ) -> Result<Option<Evacuation>, Refused> {
        let key = cn.to_string();
        for _ in 0..TRIES {
            let (before, expect) = match (self.bucket.get(&key).await, &new) {
                (Ok(found), _) => (found.value, Expect::Etag(found.etag)),
                (Err(Error::NotFound { .. }), Some(new)) => (new.clone(), Expect::Absent),
                (Err(Error::NotFound { .. }), None) => return Ok(None),
                (Err(error), _) => return Err(error.into()),
            };
            let row = change(&before)?;
            if row == before && expect != Expect::Absent {
                return Ok(Some(row));
            }
            let mut batch = Batch::new();
            fence.into_iter().for_each(|fence| batch.require(fence));
            self.bucket.put_in(&mut batch, &key, expect, &row)?;
            match self.store.commit(batch).await {
                Ok(_) => return Ok(Some(row)),
                Err(Error::EtagConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(changes_all_the_time())
    }

    /// Ends one: it is in the history from then on. Of a leader, only the row that it found to be over, and while the
    /// lease is held. Returns whether it ended.
    /// Refuses with 404 if none is under way.
    pub async fn end(
        &self,
        cn: Uuid,
        through: &Through,
        leader: Option<(&Fence, &Evacuation)>,
        now: Time,
    ) -> Result<bool, Refused> {
        let key = cn.to_string();
        for _ in 0..TRIES {
            let found = match self.bucket.get(&key).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Err(none(cn)),
                Err(error) => return Err(error.into()),
            };
            let mut batch = Batch::new();
            if let Some((fence, judged)) = leader {
                // An operator paused it, or named other VMs: the next round judges it anew.
                if found.value != *judged {
                    return Ok(false);
                }
                batch.require(fence);
            }
            self.bucket.delete_in(&mut batch, &key, Expect::Etag(found.etag))?;
            self.history.put_in(&mut batch, &ended(cn, found.value, through, now)).await?;
            match self.store.commit(batch).await {
                Ok(_) => return Ok(true),
                Err(Error::EtagConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(changes_all_the_time())
    }
}

fn none(cn: Uuid) -> Refused {
    Refused::not_found(&format!("no evacuation of node {cn} is under way"))
}

fn changes_all_the_time() -> Refused {
    Refused::coded(503, "ServiceUnavailableError", "the evacuation changes all the time")
}

/// Returns the entry of an evacuation in the history.
fn ended(cn: Uuid, row: Evacuation, through: &Through, now: Time) -> Ended {
    let details = json!({"moved": row.moved, "stay": row.stay, "left": row.left});
    let details: Map<String, Value> = details
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| !count.is_null())
        .map(|(name, count)| (name.clone(), count.clone()))
        .collect();
    let mut ended = history::about("evacuate", Some(cn), through, details, now);
    (ended.began, ended.to) = (Some(row.began), row.to);
    ended.by = row.by.or(ended.by);
    ended
}

/// Returns the row with what is named. What was tried is tried again.
fn changed(row: &Evacuation, values: &Map<String, Value>) -> Result<Evacuation, Refused> {
    let mut row = row.clone();
    (row.moved, row.stay, row.left) = (None, None, None);
    row.tried.clear();
    for (name, value) in values {
        let bad = || Refused::parameter(name, &format!("it cannot be {value}"));
        let uuid = |value: &Value| -> Option<String> {
            value.as_str().and_then(|text| text.parse::<Uuid>().ok()).map(|uuid| uuid.to_string())
        };
        match name.as_str() {
            "paused" => row.paused = value.as_bool().ok_or_else(bad)?,
            "to" => row.to = Some(uuid(value).ok_or_else(bad)?),
            "at_once" => {
                let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
                row.at_once = Some(count.filter(|count| *count > 0).ok_or_else(bad)?);
            }
            "excluded" => {
                let vms = value.as_array().filter(|vms| vms.len() <= MOST_EXCLUDED);
                let vms: Option<_> = vms.ok_or_else(bad)?.iter().map(uuid).collect();
                row.excluded = vms.ok_or_else(bad)?;
            }
            _ => return Err(Refused::parameter(name, "there is no such field")),
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TERM: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_lease_has_ended_changes_and_ends_none() {
        let store = Store::in_memory().unwrap();
        let evacuations = Evacuations::open(&store).await.unwrap();
        let (cn, now, through) = (Uuid::from_u128(1), Time::from_millis(0), Through::default());
        let row = evacuations.put(cn, &Map::new(), false, &through, now).await.unwrap();
        let old = store.claim("lease", "one", TERM).await.unwrap().unwrap();
        store.release(old.clone()).await.unwrap();
        let fence = store.claim("lease", "two", TERM).await.unwrap().unwrap();
        let pause = |row: &mut Evacuation| row.paused = true;
        evacuations.update(cn, &old, pause).await.unwrap_err();
        evacuations.end(cn, &through, Some((&old, &row)), now).await.unwrap_err();
        assert_eq!(evacuations.of(cn).await.unwrap(), row);
        // The one that leads ends it only as it has judged it.
        let paused = evacuations.update(cn, &fence, pause).await.unwrap().unwrap();
        assert!(!evacuations.end(cn, &through, Some((&fence, &row)), now).await.unwrap());
        assert_eq!(evacuations.of(cn).await.unwrap(), paused);
        assert!(evacuations.end(cn, &through, Some((&fence, &paused)), now).await.unwrap());
        assert_eq!(evacuations.of(cn).await.unwrap_err().status(), 404);
    }

    #[tokio::test]
    async fn a_damaged_record_stops_no_other_evacuation() {
        let store = Store::in_memory().unwrap();
        let evacuations = Evacuations::open(&store).await.unwrap();
        let (now, through) = (Time::from_millis(0), Through::default());
        let (damaged, well) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let row = evacuations.put(well, &Map::new(), false, &through, now).await.unwrap();
        let bucket: Bucket<Value> = Bucket::open(&store, EVACUATIONS).await.unwrap();
        let text = json!({"cn_uuid": damaged, "excluded": "all"});
        bucket.put(&damaged.to_string(), Expect::Absent, &text).await.unwrap();
        assert_eq!(evacuations.of(damaged).await.unwrap_err().status(), 500);
        assert_eq!(evacuations.all().await.unwrap(), [row]);
        // It is removed; what can be read is not removed so.
        assert!(evacuations.remove_unreadable(damaged).await.unwrap());
        assert_eq!(evacuations.of(damaged).await.unwrap_err().status(), 404);
        assert!(!evacuations.remove_unreadable(well).await.unwrap());
    }
}
