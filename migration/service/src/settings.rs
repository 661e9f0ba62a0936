// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The settings in the store, and their form in `GET` and `PUT /settings`.

use serde_json::{Map, Value, json};
use store::{Batch, Bucket, Error, Expect, Schema, Store};
use uuid::Uuid;

use super::history::{self, History};
use super::refused::Refused;
use super::through::Through;
use migration_core::limits::{Overrides, Settings};
use migration_core::time::Time;

const SETTINGS: Schema =
    Schema { bucket: "migration_settings", version: 1, fields: &[], lists: &[] };
/// The key of what holds everywhere; the values of a node have its uuid.
const ALL: &str = "all";

/// The settings that operators change.
#[derive(Clone, Debug)]
pub struct SettingsStore {
    store: Store,
    bucket: Bucket<Map<String, Value>>,
    history: History,
}

impl SettingsStore {
    /// Opens the bucket.
    pub async fn open(store: &Store) -> Result<SettingsStore, Error> {
        let (bucket, history) = (Bucket::open(store, SETTINGS).await?, History::open(store).await?);
        Ok(SettingsStore { store: store.clone(), bucket, history })
    }

    /// Returns all settings.
    pub async fn read(&self) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        let mut query = store::Query::all();
        loop {
            let page = self.bucket.find(query.clone()).await?;
            for row in page.records {
                match row.key.parse::<Uuid>() {
                    Ok(cn) => drop(settings.of_cn.insert(cn, overrides(&row.value))),
                    Err(_) => apply(&mut settings, &row.value),
                }
            }
            match page.next {
                Some(next) => query = store::Query::all().after(next),
                None => return Ok(settings),
            }
        }
    }

    /// Changes what is named, which the history has from then on, and returns the settings in the form of [`shown`].
    /// Refuses with 409 for a name that is not known, or a value that cannot be.
    pub async fn change(
        &self,
        cn: Option<Uuid>,
        values: &Map<String, Value>,
        through: &Through,
        now: Time,
    ) -> Result<Value, Refused> {
        for (name, value) in values {
            check(cn.is_some(), name, value)?;
        }
        let key = cn.map_or(ALL.to_owned(), |cn| cn.to_string());
        for _ in 0..8 {
            let (mut row, expect) = match self.bucket.get(&key).await {
                Ok(found) => (found.value, Expect::Etag(found.etag)),
                Err(Error::NotFound { .. }) => (Map::new(), Expect::Absent),
                Err(error) => return Err(error.into()),
            };
            let before = row.clone();
            for (name, value) in values {
                match value.is_null() {
                    true => drop(row.shift_remove(name)),
                    false => drop(row.insert(name.clone(), value.clone())),
                }
            }
            if row == before {
                return Ok(shown(&self.read().await?, cn));
            }
            let was: Map<String, Value> = values
                .keys()
                .map(|name| (name.clone(), before.get(name).cloned().unwrap_or_default()))
                .collect();
            let details = Map::from_iter([
                ("values".to_owned(), Value::Object(values.clone())),
                ("before".to_owned(), Value::Object(was)),
            ]);
            let mut batch = Batch::new();
            self.bucket.put_in(&mut batch, &key, expect, &row)?;
            let ended = history::about("set", cn, through, details, now);
            self.history.put_in(&mut batch, &ended).await?;
            match self.store.commit(batch).await {
                Ok(_) => return Ok(shown(&self.read().await?, cn)),
                Err(Error::EtagConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Refused::coded(503, "ServiceUnavailableError", "the settings change all the time"))
    }
}

/// Returns the settings as people see them; with a node, its own values.
pub fn shown(settings: &Settings, cn: Option<Uuid>) -> Value {
    let Some(cn) = cn else {
        return json!({
            "allow_user_migrations": settings.allow_user_migrations,
            "max_running_migrations_per_cn": settings.max_running_migrations_per_cn,
            "zfs_send_mbps_limit": settings.zfs_send_mbps_limit,
            "max_attempts": settings.max_attempts,
            "schedule_leeway": settings.schedule_leeway,
            "auto_finalize_after": settings.auto_finalize_after,
            "max_paused": settings.max_paused,
            "dead_after": settings.dead_after,
        });
    };
    let own = settings.of_cn.get(&cn).copied().unwrap_or_default();
    let mut shown = json!({});
    if let Some(count) = own.max_running_migrations_per_cn {
        shown["max_running_migrations_per_cn"] = json!(count);
    }
    if let Some(mbps) = own.zfs_send_mbps_limit {
        shown["zfs_send_mbps_limit"] = json!(mbps);
    }
    shown
}

fn check(is_of_cn: bool, name: &str, value: &Value) -> Result<(), Refused> {
    let count = |least: u64| {
        let is_count = value.as_u64().is_some_and(|it| it >= least && it <= u64::from(u32::MAX));
        if is_count { Ok(()) } else { Err(format!("expected a whole number from {least} on")) }
    };
    let checked = match name {
        _ if value.is_null() => Ok(()), // the default again
        "max_running_migrations_per_cn" => count(0),
        "zfs_send_mbps_limit" => count(1),
        _ if is_of_cn => Err("a node has no such setting of its own".to_owned()),
        "allow_user_migrations" if value.is_boolean() => Ok(()),
        "allow_user_migrations" => Err("expected true or false".to_owned()),
        "max_attempts" | "dead_after" => count(1),
        "schedule_leeway" | "auto_finalize_after" | "max_paused" => count(0),
        _ => Err("there is no such setting".to_owned()),
    };
    checked.map_err(|why| Refused::parameter(name, &format!("{why}; found {value}")))
}

fn overrides(row: &Map<String, Value>) -> Overrides {
    let max_running_migrations_per_cn = count(row, "max_running_migrations_per_cn");
    Overrides {
        max_running_migrations_per_cn,
        zfs_send_mbps_limit: count(row, "zfs_send_mbps_limit"),
    }
}

fn apply(settings: &mut Settings, row: &Map<String, Value>) {
    let set = |place: &mut u32, name: &str| *place = count(row, name).unwrap_or(*place);
    settings.allow_user_migrations = row.get("allow_user_migrations") == Some(&json!(true));
    set(&mut settings.max_running_migrations_per_cn, "max_running_migrations_per_cn");
    set(&mut settings.zfs_send_mbps_limit, "zfs_send_mbps_limit");
    set(&mut settings.max_attempts, "max_attempts");
    set(&mut settings.schedule_leeway, "schedule_leeway");
    settings.auto_finalize_after = count(row, "auto_finalize_after");
    settings.max_paused = count(row, "max_paused");
    set(&mut settings.dead_after, "dead_after");
}

fn count(row: &Map<String, Value>, name: &str) -> Option<u32> {
    row.get(name).and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test] // R13
    async fn settings_are_kept_and_a_node_has_its_own() {
        let store = Store::in_memory().unwrap();
        let kept = SettingsStore::open(&store).await.unwrap();
        let cn = Uuid::from_u128(7);
        let (through, now) = (Through::default(), Time::from_millis(0));
        let change = async |cn, values: Value| {
            kept.change(cn, values.as_object().unwrap(), &through, now).await
        };
        let all = change(
            None,
            json!({"max_running_migrations_per_cn": 2, "allow_user_migrations": true}),
        );
        let all = all.await.unwrap();
        assert_eq!(
            (&all["max_running_migrations_per_cn"], &all["max_attempts"]),
            (&json!(2), &json!(10))
        );
        let names: Vec<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, migration_core::limits::SETTINGS);
        let own = change(Some(cn), json!({"zfs_send_mbps_limit": 100})).await.unwrap();
        assert_eq!(own, json!({"zfs_send_mbps_limit": 100}));
        let settings = SettingsStore::open(&store).await.unwrap().read().await.unwrap();
        assert!(settings.allow_user_migrations);
        assert_eq!((settings.running_on(cn), settings.bytes_per_second(cn)), (2, 12_500_000));
        for (cn, bad) in [
            (None, json!({"color": 1})),
            (None, json!({"max_attempts": 0})),
            (None, json!({"allow_user_migrations": "true"})),
            (Some(cn), json!({"max_attempts": 3})),
            (Some(cn), json!({"zfs_send_mbps_limit": -1})),
        ] {
            assert_eq!(change(cn, bad.clone()).await.unwrap_err().status(), 409, "{bad}");
        }
        let own = change(Some(cn), json!({"zfs_send_mbps_limit": null})).await.unwrap();
        assert_eq!(own, json!({}));
    }
}
