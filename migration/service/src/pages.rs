// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/status` and `/metrics`, for the node that the service runs on.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use daemon::http::{Body, ok, with_ping};
use daemon::metrics::{answer, by_reason, gauges, labelled, size};
use daemon::text::counted;
use http::Response;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ends::{Replaced, Sight, StoredEnd};
use super::enrol::Enrolment;
use super::refused::Refused;
use super::runner::is_busy;
use super::signs::told;
use super::state::Service;
use super::strangers::Stranger;
use migration_core::need::{DAY_MS, Why, age, needs, silent, waits_for};
use migration_core::record::{Record, State as RecordState, node_of};
use migration_core::time::Time;

/// Returns the routes of the pages.
pub fn router(service: Service) -> Router {
    let pages = Router::new().route("/status", get(status)).route("/metrics", get(metrics));
    with_ping(pages).with_state(service)
}

/// The longest that a page waits for the store, which tries for longer: a client waits 5 s, a Prometheus 10 s.
const PATIENCE: Duration = Duration::from_secs(3);

async fn status(State(service): State<Service>) -> Response<Body> {
    let why = match timeout(PATIENCE, page(&service)).await {
        Ok(Ok(page)) => return ok(&page),
        Ok(Err(refused)) => refused.message().to_owned(),
        Err(_) => format!("nothing came within {} s", PATIENCE.as_secs()),
    };
    let need = daemon::needs::find("migration-store-away");
    let told = need.map(|need| format!("{}: {why}. {}", need.says, need.command));
    // What is not known is null: it is not nothing.
    ok(&json!({
        "alarms": told.as_slice(), "migrations": null, "replaced": null, "revoked": null, "rounds_seen": null,
        "url": *service.url, "version": env!("CARGO_PKG_VERSION"),
    }))
}

async fn page(service: &Service) -> Result<Value, Refused> {
    let now = service.clock.now();
    let all = service.records.open_ones().await?;
    let alive: Vec<&Record> = all.iter().map(|kept| &kept.record).collect();
    let migrations = alive.iter().map(|record| {
        json!({
            "vm_uuid": record.vm_uuid, "id": record.id, "phase": record.phase, "state": record.state,
            "source_server_uuid": record.source_server_uuid,
            "target_server_uuid": record.target_server_uuid,
            "message": record.progress_history.last().and_then(|entry| entry.message.clone()),
            "error": record.error, "bytes_of_last_sync": record.last_sync_size,
            "waits_for": waits_for(record, None, now),
        })
    });
    let migrations: Vec<Value> = migrations.collect();
    let (seen, ends) = (service.records.news.seen().await?, service.records.ends.all().await?);
    let strangers = service.records.strangers.all().await?;
    let alarms = all_alarms(&alive, &ends, &strangers, now);
    let mut alarms: Vec<String> = alarms.into_iter().map(|it| it.1).collect();
    alarms.extend(of_certificates(service).await?);
    alarms.extend(service.kept.warning());
    let revoked = match &service.enrolment {
        Some(enrolment) => enrolment.revoked().await?,
        None => Vec::new(),
    };
    let replaced: Vec<_> = ends.iter().map(|kept| &kept.row).collect();
    Ok(json!({
        "alarms": alarms, "migrations": migrations, "replaced": replaced, "revoked": revoked, "rounds_seen": seen,
        "url": *service.url, "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// The same of the certificates of agents and volapi.
async fn of_certificates(service: &Service) -> Result<Vec<String>, Refused> {
    match &service.enrolment {
        Some(enrolment) => enrolment.needs().await,
        None => Ok(Vec::new()),
    }
}

/// What a person has to do something about, of records and of ends that were replaced.
fn all_alarms(
    open: &[&Record],
    ends: &[StoredEnd],
    strangers: &[Stranger],
    now: Time,
) -> Vec<(Why, String)> {
    let of_ends = ends.iter().filter_map(|kept| {
        let is_open = open.iter().any(|record| record.id == kept.row.migration);
        let (why, text) = of_end(&kept.row, is_open)?;
        Some((why, format!("{}: {text}", kept.row.vm_uuid)))
    });
    let of_strangers = strangers.iter().map(|it| {
        let Stranger { vm_uuid: vm, cn_uuid: cn, migration, .. } = it;
        if let Some(other) = it.instead {
            let what = "is said to be used instead of that on";
            let since = "which was not declared dead here: both may run";
            let ends = format!(
                "sdc-migrate adopt --other NODE {vm}, with the node whose copy is not to be used"
            );
            let lies = format!("sdc-migrate trust revoke {cn} if it lies");
            let text = format!("{vm}: the copy on {cn} {what} {other}, {since}. {ends}; {lies}");
            return (Why::Stranger, text);
        }
        let what = "is open, which the store does not know";
        (
            Why::Stranger,
            format!("{vm}: on {cn} migration {migration} {what}: sdc-migrate adopt {vm}"),
        )
    });
    let of_records = open.iter().flat_map(|record| alarms(record, now));
    of_records.chain(of_ends).chain(of_strangers).collect()
}

/// The same of an end that was replaced, whose migration is open or not.
fn of_end(row: &Replaced, is_open: bool) -> Option<(Why, String)> {
    let Replaced { end, cn_uuid, .. } = row;
    let back = row.returned.map(|at| {
        format!("the {end}'s node was declared dead and is back since {at}; its copy was replaced")
    });
    match (row.sight, back) {
        (Sight::Gone, _) => None,
        (Sight::Runs, _) => {
            let what = "though it was replaced, and so does the other copy";
            Some((Why::RunsReplaced, format!("it RUNS on {cn_uuid}, {what}: stop it there")))
        }
        (_, Some(back)) => {
            let what = format!("and must not be used. sdc-migrate finalize {}", row.vm_uuid);
            Some((Why::Returned, format!("{back} {what}")))
        }
        (_, None) if is_open => {
            let what = "was declared dead; its copy must not be used";
            Some((Why::Declared, format!("the {end}'s node {what}")))
        }
        (_, None) => None,
    }
}

/// What a person has to do something about: the state, and the sentence with what ends it.
fn alarms(record: &Record, now: Time) -> Vec<(Why, String)> {
    let alarms = needs(record, now).into_iter().map(|why| (why, sentence(record, why, now)));
    alarms.collect()
}

/// Returns the row of a state: whose it is, what it means, the details, the command.
fn sentence(record: &Record, why: Why, now: Time) -> String {
    let intent = &record.intent;
    let days = usize::try_from(age(record, now) / DAY_MS).unwrap_or_default();
    let days = counted(days, "day", "days");
    let (vm, held) = (record.vm_uuid, held(intent.held_bytes));
    let node = silent(record).and_then(|(_, end)| Some((end, node_of(record, end)?)));
    let detail = match why {
        Why::Stuck => format!(" ({}, {days})", record.phase.name()),
        Why::Paused | Why::Unsynced | Why::Unfinalized => format!(" (for {days}: {held})"),
        Why::Again => {
            intent.again.as_ref().map(|it| format!(": {}", it.sentence(now))).unwrap_or_default()
        }
        Why::Hidden => {
            let since = intent.hidden_since.map_or(0, |since| now.since(since));
            format!(" (for {} s)", since / 1000)
        }
        why if why.is_silence() => {
            let since = node.and_then(|(end, cn)| Some((cn, intent.silent(end)?)));
            since.map(|(cn, at)| format!(" ({cn}, since {at})")).unwrap_or_default()
        }
        Why::Older => {
            let by = intent.older_by.map(|cn| format!("{cn} received a later revision; "));
            let since = intent.older.map(|at| format!("as is known since {at}"));
            format!(" ({}{})", by.unwrap_or_default(), since.unwrap_or_default())
        }
        _ => record.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default(),
    };
    let told = told(record, why, node.map(|(_, cn)| cn).unwrap_or_default());
    let (says, command) = told.map_or(("", String::new()), |(need, command)| (need.says, command));
    format!("{vm}: {says}{detail}. {command}")
}

fn held(bytes: Option<u64>) -> String {
    bytes.map_or("a copy".to_owned(), |bytes| format!("a copy of {} MB", bytes / 1_000_000))
}

/// The prefix of every name.
const PREFIX: &str = "migration_service";

/// Name and help of the counter, which has the reasons as labels. It is of this process.
const REFUSED: (&str, &str) =
    ("handshakes_refused", "Connections whose peer did not authenticate, by reason");

/// Name and help of each gauge.
const GAUGES: [(&str, &str); 21] = [
    ("migrations_running", "Migrations whose operation runs"),
    ("migrations_queued", "Migrations that wait for their turn"),
    ("migrations_paused", "Migrations that wait for an action"),
    ("migrations_scheduled", "Migrations that wait for their time"),
    ("migrations_failed", "Migrations whose last operation failed"),
    ("migrations_switched", "Migrations that are not finalized yet"),
    ("migrations_stuck", "Migrations whose operation has run for more than a day"),
    ("migrations_again", "Migrations whose step has been tried again for more than a minute"),
    ("migrations_late", "Migrations whose time to switch has passed"),
    ("migrations_paused_long", "Migrations that have been paused for more than 3 days"),
    ("migrations_unfinalized_long", "Migrations that were switched more than 7 days ago"),
    ("migrations_hidden", "Migrations with no copy shown for more than a minute"),
    ("migrations_silent", "Migrations one of whose nodes has not answered for more than a minute"),
    ("migrations_returned", "Copies that were replaced, and whose node is back"),
    ("migrations_replaced_running", "Copies that run though they were replaced"),
    ("migrations_both_run", "Migrations both of whose copies run"),
    ("migrations_unknown", "Ends and records of migrations that have to be adopted"),
    ("alarms", "What a person has to do something about"),
    (
        "certificates_need",
        "Programs that wait to be let in, or whose certificate ends within 14 days",
    ),
    ("rounds_age_seconds", "Since a service last did the rounds; -1: never"),
    ("store_up", "1 if the store could be read for this page"),
];

/// The gauges while the store cannot be read: it is unknown when the rounds were done, and the service is not up.
const UNREAD: [f64; GAUGES.len()] = {
    let mut all = [0.0; GAUGES.len()];
    all[GAUGES.len() - 2] = -1.0;
    all
};

async fn metrics(State(service): State<Service>) -> Response<Body> {
    let mut registry = Registry::with_prefix(PREFIX);
    let read = timeout(PATIENCE, reading(&service)).await.unwrap_or(UNREAD);
    let all = GAUGES.iter().zip(read);
    gauges(&mut registry, all.map(|((name, help), value)| (*name, *help, value)));
    let none = || trust::Refusals::default().counts().collect();
    let refused = service.enrolment.as_ref().map_or_else(none, Enrolment::refused);
    let (name, help) = REFUSED;
    labelled(&mut registry, [(name, help, by_reason(refused))]);
    answer(&registry)
}

async fn reading(service: &Service) -> [f64; GAUGES.len()] {
    let records = &service.records;
    let (all, ends, strangers, seen) = tokio::join!(
        records.open_ones(),
        records.ends.all(),
        records.strangers.all(),
        records.news.seen()
    );
    let is_up = all.is_ok() && ends.is_ok() && strangers.is_ok() && seen.is_ok();
    let (all, ends) = (all.unwrap_or_default(), ends.unwrap_or_default());
    let strangers = strangers.unwrap_or_default();
    let (seen, now) = (seen.unwrap_or_default(), service.clock.now());
    let alive: Vec<&Record> = all.iter().map(|kept| &kept.record).collect();
    let mut counts: BTreeMap<RecordState, usize> = BTreeMap::new();
    let mut running = 0;
    for record in &alive {
        running += usize::from(is_busy(record));
        *counts.entry(record.state).or_default() += 1;
    }
    let of = |state| size(counts.get(&state).copied().unwrap_or_default());
    let alarms = all_alarms(&alive, &ends, &strangers, now);
    let alarms: Vec<Why> = alarms.into_iter().map(|it| it.0).collect();
    let count = |why| size(alarms.iter().filter(|it| **it == why).count());
    let certificates = of_certificates(service).await.map_or(0, |needs| needs.len());
    let age = seen.map_or(-1000, |seen| now.since(seen));
    [
        size(running),
        of(RecordState::Queued),
        of(RecordState::Paused),
        of(RecordState::Scheduled),
        of(RecordState::Failed),
        of(RecordState::Successful),
        count(Why::Stuck),
        count(Why::Again),
        count(Why::Late),
        count(Why::Paused) + count(Why::Unsynced),
        count(Why::Unfinalized) + count(Why::FinalizeFailed),
        count(Why::Hidden),
        size(alarms.iter().filter(|it| it.is_silence()).count()),
        count(Why::Returned),
        count(Why::RunsReplaced),
        count(Why::BothRun) + count(Why::CopyRuns) + count(Why::OldRuns),
        count(Why::Older) + count(Why::Stranger),
        size(alarms.len() + certificates),
        size(certificates),
        f64::from(i32::try_from(age / 1000).unwrap_or(i32::MAX)),
        f64::from(u8::from(is_up)),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use migration_core::samples::record;

    #[test]
    fn documents_every_metric() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics-migration-service.md");
        let page = std::fs::read_to_string(page).unwrap();
        let counter = format!("{}_total", REFUSED.0);
        for name in GAUGES.iter().map(|(name, _)| *name).chain([counter.as_str()]) {
            assert!(page.contains(&format!("| `{PREFIX}_{name}` |")), "{name} is not in the table");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `migration_service_")).count();
        assert_eq!(rows, GAUGES.len() + 1, "the table has unknown rows");
    }

    #[test] // M58
    fn what_waits_for_a_person_is_told() {
        let now = Time::parse("2026-02-20T00:00:00Z").unwrap();
        let at = |text: &str| json!([{"type": "progress", "phase": "sync", "state": "successful", "finished_timestamp": text}]);
        for (fields, want) in [
            (json!({"state": "paused"}), vec![Why::Unsynced]),
            (json!({"state": "paused", "num_sync_phases": 1}), vec![Why::Paused]),
            (json!({"state": "failed", "phase": "sync", "error": "x"}), vec![Why::SyncFailed]),
            (
                json!({"state": "paused", "progress_history": at("2026-02-17T00:00:00.000Z")}),
                vec![],
            ),
            (json!({"state": "running"}), vec![Why::Stuck]),
            (
                json!({"state": "running", "progress_history": at("2026-02-19T00:00:00.000Z")}),
                vec![],
            ),
            (json!({"state": "failed", "error": "x"}), vec![Why::BeginFailed]),
            (json!({"state": "scheduled", "error": "x"}), vec![Why::Late]),
            (json!({"state": "successful", "phase": "switch"}), vec![Why::Unfinalized]),
            (json!({"state": "aborted"}), vec![]),
            (json!({"state": "paused", "created_timestamp": "2026-02-19T00:00:00.000Z"}), vec![]),
            (
                json!({"state": "failed", "journal": {"hidden_since": "2026-02-19T23:59:00.000Z"}}),
                vec![Why::BeginFailed],
            ),
            (
                json!({"state": "failed", "journal": {"hidden_since": "2026-02-19T23:58:59.000Z"}}),
                vec![Why::BeginFailed, Why::Hidden],
            ),
        ] {
            let found: Vec<Why> =
                alarms(&record(fields.clone()), now).into_iter().map(|it| it.0).collect();
            assert_eq!(found, want, "{fields}");
        }
    }

    #[test] // M58 M121
    fn an_end_that_was_replaced_is_told_by_what_was_seen_of_it() {
        let now = Time::parse("2026-02-20T00:00:00Z").unwrap();
        let id = uuid::Uuid::nil();
        for (sight, returned, is_open, want) in [
            (Sight::Silent, None, true, Some(Why::Declared)),
            (Sight::Silent, None, false, None),
            (Sight::Silent, Some(now), false, Some(Why::Returned)),
            (Sight::Unwell, Some(now), true, Some(Why::Returned)),
            (Sight::Ahead, Some(now), true, Some(Why::Returned)),
            (Sight::Off, Some(now), true, Some(Why::Returned)),
            (Sight::Shown, Some(now), false, Some(Why::Returned)),
            (Sight::Runs, Some(now), true, Some(Why::RunsReplaced)),
            (Sight::Runs, Some(now), false, Some(Why::RunsReplaced)),
            (Sight::Gone, Some(now), true, None),
        ] {
            let (end, revision, declared) = (migration_core::intent::End::Source, 1, now);
            let (migration, vm_uuid, cn_uuid) = (id, id, id);
            let row = Replaced {
                migration,
                end,
                vm_uuid,
                cn_uuid,
                revision,
                nonce: None,
                declared,
                returned,
                sight,
                deletes: false,
            };
            assert_eq!(of_end(&row, is_open).map(|it| it.0), want, "{sight:?} {is_open}");
        }
    }
}
