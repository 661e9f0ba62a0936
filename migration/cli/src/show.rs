// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `get` and `list`: the output of the shipped tool, and tables. Pure: the time is handed in.

use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;
use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use sdc_clients::migrations::{Migration, Progress};
use serde_json::Value;

use super::names::Names;
use super::next::place;
use super::steps::waits_for;
use super::units;
use migration_core::time::Time;

/// How the shipped output is decorated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// Marks, colours and lines that are rewritten; `--no-ansi` has none of them.
    pub ansi: bool,
    pub screen: Screen,
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        if self.ansi { self.screen.paint(tone, text) } else { text.to_owned() }
    }
}

/// Returns how long ago a time of a record was, in ms; none if it is no time, or is to come.
fn age(at: Option<&String>, now: Time) -> Option<u64> {
    u64::try_from(now.since(Time::parse(at?)?)).ok()
}

fn server(uuid: Option<&String>, hosts: &Hosts) -> String {
    let uuid = uuid.filter(|uuid| !uuid.is_empty());
    uuid.map_or("(none)".to_owned(), |uuid| visible(hosts.name(uuid)))
}

/// Returns what `get` prints; nodes that have names there are shown by them.
pub(super) fn get(migration: &Migration, hosts: &Hosts, now: Time, style: Style) -> String {
    let runtime = migration.duration_ms.map(units::short).unwrap_or_default();
    let state = visible(&migration.state);
    let state = match migration.state.as_str() {
        "successful" => style.paint(Tone::Good, &state),
        "failed" => style.paint(Tone::Bad, &state),
        _ => state,
    };
    let mut facts = vec![
        ("State", state),
        ("Source server", server(migration.source_server_uuid.as_ref(), hosts)),
        ("Target server", server(migration.target_server_uuid.as_ref(), hosts)),
        ("Created", migration.created_timestamp.as_deref().map(visible).unwrap_or_default()),
        ("Automatic", migration.automatic.to_string()),
        ("Total runtime", runtime),
    ];
    if let Some(at) = &migration.scheduled_timestamp {
        facts.push(("Scheduled for", visible(at)));
    }
    if let Some(place) = place(migration) {
        facts.push(("Instance", place));
    }
    if let Some(why) = waits_for(migration) {
        facts.push(("Waits for", why));
    }
    let mut text: String =
        facts.iter().map(|(name, fact)| format!("{name:<13}: {fact}\n")).collect();
    text += "Phases       :\n";
    let (indent, width) = if style.ansi { ("  ", 8) } else { ("", 16) };
    let line = |phase: &str, age: &str, runtime: &str, message: &str| {
        format!("{phase:<width$} {age:>6} {runtime:<8}  {message}\n")
    };
    text += &format!("{indent}{}", line("PHASE", "AGE", "RUNTIME", "MESSAGE"));
    for entry in &migration.progress_history {
        let age = age(entry.started_timestamp.as_ref(), now).map(units::short);
        let runtime = entry.duration_ms.map(units::short).unwrap_or_default();
        let message = entry.error.as_ref().or(entry.message.as_ref());
        let message = message.map(|text| visible(text)).unwrap_or_default();
        let phase = match style.ansi {
            true => visible(&entry.phase),
            false => format!("{} [{}]", visible(&entry.phase), visible(&entry.state)),
        };
        text += &mark(entry, style);
        text += &line(&phase, &age.unwrap_or_default(), &runtime, &message);
        if let Some(warning) = warning(entry) {
            text += &format!("{indent}{}", line("", "", "warning", &warning));
        }
    }
    let error = migration.error.as_deref().map(visible);
    text += &match (migration.state.as_str(), error) {
        ("successful", _) => "\nMigration finished successfully\n".to_owned(),
        ("failed", error) => {
            let title = style.paint(Tone::Bad, "Migration error:");
            format!("\n{title} {}\n", error.unwrap_or_default())
        }
        (_, Some(error)) => format!("\n{} {error}\n", style.paint(Tone::Bad, "Migration error:")),
        (state, None) => format!("\nMigration {}\n", visible(state)),
    };
    text
}

/// Returns what a phase was done without.
fn warning(entry: &Progress) -> Option<String> {
    entry.other.get("warning").and_then(Value::as_str).map(visible)
}

fn mark(entry: &Progress, style: Style) -> String {
    match (style.ansi, entry.state.as_str()) {
        (false, _) => String::new(),
        (true, "successful") => format!("{} ", style.paint(Tone::Good, "✔")),
        (true, "running") => "► ".to_owned(),
        (true, "paused") => "\" ".to_owned(),
        (true, _) => format!("{} ", style.paint(Tone::Bad, "x")),
    }
}

/// How `list` prints its rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// The nodes and the error, too.
    pub long: bool,
    /// No header line.
    pub no_header: bool,
}

/// Returns the list of the shipped tool.
pub(super) fn list(migrations: &[Migration], shape: &Shape, now: Time, style: Style) -> String {
    let row = |cells: [&str; 5], state: String, rest: &str| {
        let [uuid, phase, _, age, runtime] = cells;
        let line = format!("{uuid:<36} {phase:>8} {state} {age:>6} {runtime:>7}{rest}");
        format!("{line}\n")
    };
    let rest = |source: &str, target: &str, error: &str| match shape.long {
        true => format!(" {source:<36} {target:<36} {error}"),
        false => String::new(),
    };
    let mut text = String::new();
    if !shape.no_header {
        let names = ["UUID", "PHASE", "STATE", "AGE", "RUNTIME"];
        text += &row(names, format!("{:>10}", names[2]), &rest("SOURCE_CN", "TARGET_CN", "ERROR"));
    }
    for one in migrations {
        let state = format!("{:>10}", visible(&one.state));
        let state = match one.state.as_str() {
            "successful" => style.paint(Tone::Good, &state),
            "failed" => style.paint(Tone::Bad, &state),
            _ => state,
        };
        let age = age(one.created_timestamp.as_ref(), now).map(units::short).unwrap_or_default();
        let runtime = one.duration_ms.map(units::short).unwrap_or_default();
        let source = one.source_server_uuid.as_deref().map(visible).unwrap_or_default();
        let target = server(one.target_server_uuid.as_ref(), &Hosts::default());
        let error = one.error.as_deref().map(visible).unwrap_or_default();
        let cells = [&visible(&one.vm_uuid), &visible(&one.phase), "", age.as_str(), &runtime];
        text += &row(cells, state, &rest(&source, &target, &error));
    }
    text
}

/// The columns of the table; the last ones are printed on request.
const COLUMNS: [&str; 20] = [
    "uuid",
    "phase",
    "state",
    "age",
    "runtime",
    "source_cn",
    "target_cn",
    "error",
    "progress",
    "waits_for",
    "automatic",
    "scheduled",
    "created",
    "vm",
    "from",
    "to",
    "since",
    "held",
    "rate",
    "eta",
];

/// Returns true if a column is printed that has names of VMs or nodes.
pub(super) fn asks_for_names(layout: &Layout) -> bool {
    let asked = [&layout.columns, &layout.sort].into_iter().flatten().flat_map(|it| it.split(','));
    let named = asked.map(|name| name.trim_start_matches('-'));
    named.into_iter().any(|name| ["vm", "from", "to"].contains(&name))
}

/// Returns since when a migration is as it is, in ms: the end of what it did last, else the beginning of that.
fn since(migration: &Migration, now: Time) -> Option<u64> {
    let last = migration.progress_history.last();
    let ended = last.and_then(|it| it.other.get("finished_timestamp")).and_then(Value::as_str);
    let began = last.and_then(|it| it.started_timestamp.as_deref());
    let at = ended.or(began).or(migration.created_timestamp.as_deref());
    age(at.map(str::to_owned).as_ref(), now)
}

/// Returns the list as a table.
/// Fails if a column that is asked for does not exist.
pub(super) fn table(
    migrations: &[Migration],
    names: &Names,
    layout: &Layout,
    now: Time,
    style: Style,
) -> Result<String, UnknownColumn> {
    let text = |text: Option<&String>| Cell::from(text.map(String::as_str));
    let mut table = Table::new(&COLUMNS).usually(10);
    for one in migrations {
        let tone = match one.state.as_str() {
            "successful" => Some(Tone::Good),
            "failed" => Some(Tone::Bad),
            _ => None,
        };
        let state = one.state.as_str();
        let span = |ms: Option<u64>| match ms {
            Some(ms) if ms < 1000 => Cell::shown(0, "0s".to_owned()),
            Some(ms) => Cell::shown(ms / 1000, units::short(ms)),
            None => Value::Null.into(),
        };
        let last = one.progress_history.last().filter(|last| last.state == "running");
        let percent = last.and_then(|it| units::percent(it.current_progress, it.total_progress));
        let percent = percent.map(|it| Cell::shown(it, format!("{it}%")));
        let rate = last.and_then(|it| it.transfer_bytes_second);
        let host =
            |uuid: &Option<String>| Cell::from(uuid.as_deref().map(|it| names.hosts.name(it)));
        let held = one.other.get("held_bytes").and_then(Value::as_u64);
        let held = held.map(|bytes| Cell::shown(bytes, units::bytes(bytes)));
        table.row(vec![
            one.vm_uuid.as_str().into(),
            one.phase.as_str().into(),
            tone.map_or_else(|| Cell::from(state), |tone| Cell::toned(state, tone)),
            span(age(one.created_timestamp.as_ref(), now)),
            span(one.duration_ms),
            text(one.source_server_uuid.as_ref()),
            text(one.target_server_uuid.as_ref()),
            text(one.error.as_ref()),
            percent.unwrap_or_else(|| Value::Null.into()),
            waits_for(one).into(),
            one.automatic.into(),
            text(one.scheduled_timestamp.as_ref()),
            text(one.created_timestamp.as_ref()),
            Cell::name(names.vm(&one.vm_uuid)),
            host(&one.source_server_uuid),
            host(&one.target_server_uuid),
            span(since(one, now)),
            held.unwrap_or_else(|| Value::Null.into()),
            rate.map_or(Value::Null.into(), |it| Cell::shown(it, units::rate(it))),
            span(last.and_then(|it| it.eta_ms)),
        ]);
    }
    table.print(layout, style.screen)
}

#[cfg(test)]
mod tests;
