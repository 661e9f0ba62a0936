// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `history`: what has ended. `why`: why a migration is not done, or how the last one ended.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::cli::screen::visible;
use daemon::cli::{Cell, Layout, Screen, TERMINAL, Table, Tone, UnknownColumn, Usage, span};
use daemon::config::parse_span;
use sdc_clients::migrations::{Ended, HistoryQuery};
use serde_json::Value;

use super::args::NAME;
use super::names::Names;
use super::order::{now, say};
use super::services::Services;
use super::show::Style;
use super::{next, units};
use migration_core::time::Time;

const COLUMNS: [&str; 16] = [
    "ended",
    "vm",
    "what",
    "outcome",
    "from",
    "to",
    "downtime",
    "bytes",
    "by",
    "details",
    "program",
    "took",
    "uuid",
    "owner",
    "migration",
    "ago",
];
/// Those that fit a terminal of 80 columns.
const OF_PEOPLE: &str = "ago,vm,what,outcome,from,to,by";
const USUAL: usize = 10;

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Query {
    pub vm: Option<String>,
    pub cn: Option<String>,
    pub since: Option<String>,
    pub owner: Option<String>,
}

/// Prints what has ended.
pub(super) async fn list(
    services: &Services,
    asked: Query,
    layout: &Layout,
    style: Style,
) -> anyhow::Result<ExitCode> {
    let vm_uuid = match &asked.vm {
        Some(vm) => Some(services.vm(vm).await?),
        None => None,
    };
    let query = HistoryQuery {
        vm_uuid,
        cn_uuid: services.any_node(asked.cn.as_deref()).await?,
        owner_uuid: match &asked.owner {
            Some(owner) => Some(services.owner(owner).await?),
            None => None,
        },
        since: asked.since.as_deref().map(|text| since(text, now())).transpose()?,
        limit: None,
    };
    let is_for_people =
        style.ansi && style.screen.is_terminal && !layout.asks_for_table() && !layout.json;
    let columns = layout.columns.clone().or_else(|| is_for_people.then(|| OF_PEOPLE.to_owned()));
    let within = is_for_people.then_some(TERMINAL);
    let layout = &Layout { columns, within, ..layout.clone() };
    // A column that does not exist is refused before any request.
    table(&[], &Names::default(), layout, style.screen)?;
    let found = services.migrations.history(&query).await?;
    if layout.json && layout.columns.is_none() {
        let text = format!("{:#}\n", serde_json::to_value(&found)?);
        return Ok(daemon::cli::print(NAME, &style.screen.harmless(&text)));
    }
    let vms: BTreeSet<String> = found.iter().filter_map(|one| one.vm_uuid.clone()).collect();
    let names = services.names_of(vms).await;
    Ok(daemon::cli::print(NAME, &table(&found, &names, layout, style.screen)?))
}

/// Says why a migration is not done, and what a person may do; of a VM that does not migrate, how the last one ended.
pub(super) async fn why(services: &Services, typed: &str) -> anyhow::Result<ExitCode> {
    let vm = services.vm(typed).await?;
    let migration = match services.migrations.get(&vm).await {
        Err(error) if error.is_not_found_resource() && error.errors().is_empty() => {
            return last(services, typed, &vm).await;
        }
        got => got?,
    };
    let field = |key: &str| migration.other.get(key).and_then(Value::as_str).map(visible);
    let mut text = format!("{} {}", visible(&migration.phase), visible(&migration.state));
    if let Some(place) = next::place(&migration) {
        text += &format!("\n{place}");
    }
    let waits = field("waits_for");
    for part in field("why")
        .iter()
        .chain(waits.iter().filter(|waits| Some(*waits) != field("why").as_ref()))
    {
        text += &format!("\n{part}");
    }
    if let Some(next) = next::step(&migration, Some(typed)) {
        text += &format!("\n{next}");
    }
    say(&text)
}

/// Says how the last migration of a VM ended that does not migrate.
async fn last(services: &Services, typed: &str, vm: &str) -> anyhow::Result<ExitCode> {
    let query =
        HistoryQuery { vm_uuid: Some(vm.to_owned()), limit: Some(1), ..HistoryQuery::default() };
    let found = services.migrations.history(&query).await.context("the history")?;
    let Some(last) = found.first() else {
        let known = services.known(vm).await;
        let known = known.unwrap_or_else(|| format!("{} does not migrate", visible(typed)));
        bail!("{known}; the history has no migration of it");
    };
    let by = last.by.as_deref().map(|by| format!(" by {}", visible(by))).unwrap_or_default();
    let error = last.error.as_deref().map(|why| format!("\n{}", visible(why))).unwrap_or_default();
    say(&format!(
        "It does not migrate. The last that ended: {} {}, {}{by}{error}",
        visible(&last.what),
        visible(&last.outcome),
        visible(&last.ended)
    ))
}

/// Reads how far back, as a span or as a time.
fn since(text: &str, now: Time) -> Result<String, Usage> {
    if let Some(time) = Time::parse(text) {
        return Ok(time.to_string());
    }
    let span =
        parse_span(text).map_err(|why| Usage(format!("--since: {why}, or a time in ISO 8601")))?;
    let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Ok(now.plus(ms.saturating_neg()).to_string())
}

/// Returns the table of what has ended.
/// Fails if a column that is asked for does not exist.
fn table(
    found: &[Ended],
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    let text = |text: &Option<String>| Cell::from(text.as_deref());
    let host = |uuid: &Option<String>| Cell::from(uuid.as_deref().map(|it| names.hosts.name(it)));
    let tenth = |ms: Option<u64>| match ms {
        Some(ms) => Cell::shown(ms, tenths(ms)),
        None => Value::Null.into(),
    };
    for one in found {
        let outcome = match one.outcome.as_str() {
            "failed" => Cell::toned("failed", Tone::Bad),
            outcome => outcome.into(),
        };
        let times = one.began.as_deref().and_then(Time::parse).zip(Time::parse(&one.ended));
        let took = times.and_then(|(began, ended)| u64::try_from(ended.since(began)).ok());
        // What is a node's alone is from it.
        let about = one.from.clone().or_else(|| one.cn_uuids.first().cloned());
        table.row(vec![
            one.ended.as_str().into(),
            Cell::name(one.vm_uuid.as_deref().map(|vm| names.vm(vm))),
            one.what.as_str().into(),
            outcome,
            host(&about),
            host(&one.to),
            tenth(one.downtime_ms),
            one.bytes.map_or(Value::Null.into(), |bytes| Cell::shown(bytes, units::bytes(bytes))),
            text(&one.by),
            Cell::from(details(one).as_deref()),
            text(&one.program),
            tenth(took),
            text(&one.vm_uuid),
            text(&one.owner_uuid),
            text(&one.migration),
            ago(&one.ended, now()),
        ]);
    }
    table.print(layout, screen)
}

/// Returns how long ago this was.
fn ago(ended: &str, now: Time) -> Cell {
    let ms = Time::parse(ended).and_then(|at| u64::try_from(now.since(at)).ok());
    ms.map_or_else(
        || Value::Null.into(),
        |ms| Cell::shown(ms / 1000, span(Duration::from_secs(ms / 1000))),
    )
}

/// Returns the details of an entry: why it failed, what was set and what it was before, how many moved.
fn details(one: &Ended) -> Option<String> {
    if let Some(error) = &one.error {
        return Some(error.clone());
    }
    let object = |key: &str| one.other.get(key).and_then(Value::as_object);
    let values = object("values")?.iter().map(|(name, value)| {
        let before = object("before").and_then(|it| it.get(name)).cloned().unwrap_or_default();
        format!("{name}={value} (was {before})")
    });
    Some(values.collect::<Vec<_>>().join(", "))
}

/// Returns a span in seconds with a tenth, or in larger units.
fn tenths(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        _ => units::long(ms),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn how_far_back_is_a_span_or_a_time() {
        let now = Time::parse("2026-03-02T00:00:00Z").unwrap();
        for (text, want) in [
            ("2h", "2026-03-01T22:00:00.000Z"),
            ("1d", "2026-03-01T00:00:00.000Z"),
            ("2026-02-01T02:00:00+02:00", "2026-02-01T00:00:00.000Z"),
        ] {
            assert_eq!(since(text, now).unwrap(), want);
        }
        assert!(since("yesterday", now).unwrap_err().to_string().starts_with("--since: "));
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let rows = json!([
            {"what": "migrate", "outcome": "successful", "ended": "2026-03-01T02:00:09.500Z",
             "began": "2026-03-01T02:00:00.000Z", "downtime_ms": 2345, "bytes": 4096, "by": "ops",
             "vm_uuid": "1aa41ab0-2046-4d53-a82c-b9876136d4f1"},
            {"what": "set", "outcome": "successful", "ended": "2026-03-01T01:00:00.000Z",
             "values": {"max_attempts": 5}, "before": {"max_attempts": null}},
            {"what": "sync", "outcome": "failed", "ended": "2026-03-01T00:00:00.000Z", "error": "no\nroom"},
        ]);
        let rows: Vec<Ended> = serde_json::from_value(rows).unwrap();
        let columns = "what,downtime,bytes,by,took,details".to_owned();
        let layout = Layout { columns: Some(columns), no_header: true, ..Layout::default() };
        let text =
            table(&rows, &Names::default(), &layout, Screen { is_terminal: false, colour: false })
                .unwrap();
        let want = "\
migrate  2.3s  4.0KiB  ops  9.5s  -
set      -     -       -    -     max_attempts=5 (was null)
sync     -     -       -    -     no\\u000aroom
";
        assert_eq!(text, want);
    }
}
