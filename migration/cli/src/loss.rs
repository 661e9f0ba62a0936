// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is lost where a copy is given up, for the question before it. Pure.

use std::time::Duration;

use daemon::cli::screen::visible;
use daemon::cli::span;
use sdc_clients::migrations::{Migration, Verification};
use serde_json::Value;

use super::units;
use migration_core::time::Time;

/// Returns when the last phase of this kind that succeeded ended.
fn ended<'a>(migration: &'a Migration, phase: &str) -> Option<&'a str> {
    let entries = migration.progress_history.iter().rev();
    let last = entries.clone().find(|it| it.phase == phase && it.state == "successful")?;
    last.other.get("finished_timestamp").and_then(Value::as_str)
}

fn age(at: Option<&str>, now: Time) -> String {
    let passed = at.and_then(Time::parse).map(|at| now.since(at));
    let passed = passed.and_then(|ms| u64::try_from(ms).ok());
    match (at, passed) {
        (Some(at), Some(ms)) => {
            format!("{} ({} ago)", visible(at), span(Duration::from_secs(ms / 1000)))
        }
        (Some(at), None) => visible(at),
        (None, _) => "an unknown time".to_owned(),
    }
}

/// Returns what `rollback --discard` loses: its age and its bytes.
pub(super) fn of_target(
    name: &str,
    migration: &Migration,
    compared: Option<&Verification>,
    now: Time,
) -> String {
    let bytes = compared.and_then(|it| it.other.get("written_bytes")).and_then(Value::as_u64);
    let bytes = bytes.map_or("an unknown number of bytes".to_owned(), units::bytes);
    let since = age(ended(migration, "switch"), now);
    let node = migration.target_server_uuid.as_deref().map_or("its node".to_owned(), visible);
    format!(
        "This will move instance {name} back to its old node.\nWhat it wrote on {node} since {since} is LOST: \
         {bytes}."
    )
}

/// Returns what `switch --source-dead` loses: what was written since the last sync began.
pub(super) fn of_source(name: &str, cn: &str, migration: &Migration, now: Time) -> String {
    let synced = migration.progress_history.iter().rev();
    let synced = synced.clone().find(|it| it.phase == "sync" && it.state == "successful");
    let since = age(synced.and_then(|it| it.started_timestamp.as_deref()), now);
    format!(
        "This will start instance {name} from its last synced copy; you confirm that node {cn} is dead.\n\
         What it wrote there since {since} is LOST. If that node comes back, its copy is stopped and hidden."
    )
}

/// Returns what it means that the node of the old copy is dead, where the VM is on its new node.
pub(super) fn of_old(name: &str, cn: &str) -> String {
    format!(
        "Instance {name} stays on its new node; you confirm that node {cn} is dead.\nIf that node comes back, its copy is \
         stopped and hidden."
    )
}

/// Returns what a second `abort --force` leaves or loses.
pub(super) fn of_abort(name: &str, migration: &Migration) -> String {
    let why = migration.error.as_deref().map_or("no reason is known".to_owned(), visible);
    let node = migration.target_server_uuid.as_deref().map_or("the new node".to_owned(), visible);
    format!(
        "This will end the migration of instance {name}, whose abort failed: {why}.\nWhat cannot be deleted stays on \
         {node}. If the old node has no copy of the instance, the last one is deleted and LOST."
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn migration() -> Migration {
        let entry = |phase: &str, state: &str, hour: u32| {
            json!({
                "phase": phase, "state": state,
                "started_timestamp": format!("2026-03-01T0{hour}:00:00.000Z"),
                "finished_timestamp": format!("2026-03-01T0{hour}:30:00.000Z"),
            })
        };
        let history = [
            entry("sync", "successful", 1),
            entry("sync", "successful", 2),
            entry("sync", "failed", 3),
            entry("switch", "successful", 4),
            entry("rollback", "failed", 5),
        ];
        serde_json::from_value(json!({"target_server_uuid": "T", "progress_history": history}))
            .unwrap()
    }

    #[test] // M23
    fn a_discard_names_age_and_bytes() {
        let now = Time::parse("2026-03-01T06:35:00Z").unwrap();
        let compared = serde_json::from_value(json!({"written_bytes": 3_u64 << 30})).unwrap();
        assert_eq!(
            of_target("1aa4 (web)", &migration(), Some(&compared), now),
            "This will move instance 1aa4 (web) back to its old node.\nWhat it wrote on T since \
             2026-03-01T04:30:00.000Z (2h5m ago) is LOST: 3.0GiB."
        );
        let text = of_target("x", &Migration::default(), None, now);
        assert!(
            text.ends_with(
                "on its node since an unknown time is LOST: an unknown number of bytes."
            )
        );
    }

    #[test] // M22
    fn a_dead_source_names_the_last_sync() {
        let now = Time::parse("2026-03-01T06:00:00Z").unwrap();
        let text = of_source("x", "C", &migration(), now);
        assert!(text.contains("since 2026-03-01T02:00:00.000Z (4h ago) is LOST."), "{text}");
    }
}
