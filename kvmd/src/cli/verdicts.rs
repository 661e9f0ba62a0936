// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Verdicts and instances as lines and rows. Pure.

use std::time::Duration;

use daemon::cli::names::Names;
use daemon::cli::screen::visible;
use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn, ago, facts, span};
use serde_json::Value;

/// The columns of a verdict; the default ones first.
const VERDICT: [&str; 12] = [
    "ago",
    "name",
    "initiator",
    "kind",
    "user",
    "evidence",
    "confidence",
    "rule",
    "marker",
    "source",
    "generation",
    "date",
];
/// How many of them are shown by default.
const USUAL: usize = 6;
/// The columns of an instance; the default ones first.
const INSTANCE: [&str; 7] = ["name", "state", "qemu", "since", "reachable", "pid", "generation"];

/// Returns one row for each verdict.
pub fn table<'a>(
    verdicts: impl Iterator<Item = &'a Value>,
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&VERDICT).usually(USUAL);
    for verdict in verdicts {
        let cell = |column: &str| match column {
            "ago" => match verdict["date"].as_str().and_then(|date| date.parse().ok()) {
                Some(date) => Cell::shown(verdict["date"].clone(), ago(date)),
                None => Value::Null.into(),
            },
            "name" => Cell::name(called(verdict, names)),
            "evidence" => Cell::shown(verdict["evidence"].clone(), evidence(verdict)),
            "user" => {
                Cell::shown(verdict["user"].clone(), if is_user(verdict) { "user" } else { "-" })
            }
            column => verdict[column].clone().into(),
        };
        table.row(VERDICT.map(cell).to_vec());
    }
    table.print(layout, screen)
}

/// Returns one row for each watched instance.
pub fn instances(
    status: &Value,
    names: &Names,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&INSTANCE).usually(5);
    for (name, instance) in status["instances"].as_object().into_iter().flatten() {
        let cell = |column: &str| match (column, &instance[column]) {
            ("name", _) => names.name(name).into(),
            ("state", Value::String(state)) if state == "watching" => {
                Cell::toned(state.as_str(), Tone::Good)
            }
            ("state", state) => Cell::toned(state.clone(), Tone::Odd),
            ("reachable", Value::Bool(false)) => Cell::toned("no", Tone::Bad),
            ("reachable", _) => "yes".into(),
            (_, value) => value.clone().into(),
        };
        table.row(INSTANCE.map(cell).to_vec());
    }
    table.print(layout, screen)
}

/// By what it tells a user's wish, for people.
fn rule(name: &str) -> String {
    let meant = match name {
        "reason" => "who turned a VM off is judged by the reason that QEMU gives",
        "ganeti" => "as shipped: a shutdown without powerdown or stop is the user's wish",
        other => return other.to_owned(),
    };
    format!("{name}: {meant}")
}

/// Returns `/status` for people: the daemon, the watched instances, the verdicts.
pub fn status_lines(
    status: &Value,
    names: &Names,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let count = |key: &str| status["counts"][key].as_u64().unwrap_or_default();
    let mut lines = vec![
        ("rule", rule(&text(&status["rule"]))),
        ("up", span(Duration::from_secs(status["up_s"].as_u64().unwrap_or_default()))),
        ("verdicts", format!("{}, {} of them users' wishes", count("verdicts"), count("users"))),
        ("markers", format!("{} written", count("markers_written"))),
    ];
    if count("markers_failed") > 0 {
        let failed = format!("{} could not be changed", count("markers_failed"));
        lines.push(("", screen.paint(Tone::Bad, &failed)));
    }
    let mut told = facts(&lines);
    if status["instances"].as_object().is_some_and(|all| !all.is_empty()) {
        told += "\n";
        told += &instances(status, names, &Layout::default(), screen)?;
    }
    let verdicts = status["verdicts"].as_array().map_or(&[][..], Vec::as_slice);
    if !verdicts.is_empty() {
        told += "\n";
        told += &verdicts.iter().map(|it| sentence(it, names) + "\n").collect::<String>();
    }
    Ok(told)
}

/// Returns a verdict in one line.
pub fn sentence(verdict: &Value, names: &Names) -> String {
    format!(
        "{}  {}  {}/{} ({}){}  {}",
        text(&verdict["date"]),
        visible(called(verdict, names)),
        text(&verdict["initiator"]),
        text(&verdict["kind"]),
        text(&verdict["confidence"]),
        if is_user(verdict) { "  user" } else { "" },
        visible(&evidence(verdict)),
    )
}

/// Returns how people call the instance: a zone by its VM's alias.
fn called<'a>(verdict: &'a Value, names: &'a Names) -> &'a str {
    names.name(verdict["name"].as_str().unwrap_or("-"))
}

fn is_user(verdict: &Value) -> bool {
    verdict["user"] == Value::Bool(true)
}

fn evidence(verdict: &Value) -> String {
    let all = verdict["evidence"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Removes control characters: a guest must not move a terminal's cursor.
fn text(value: &Value) -> String {
    visible(value.as_str().unwrap_or("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PIPE: Screen = Screen { is_terminal: false, colour: false };

    #[test]
    fn for_people_and_for_programs() {
        let none = Names::default();
        let verdict = json!({"date": "2026-05-31T16:34:39Z", "name": "web\u{1b}01",
            "initiator": "guest", "kind": "poweroff", "confidence": "high", "user": true,
            "evidence": ["SHUTDOWN", "reason guest-shutdown"], "marker": "written"});
        assert_eq!(
            sentence(&verdict, &none),
            "2026-05-31T16:34:39Z  web\\u001b01  guest/poweroff (high)  user  \
             SHUTDOWN, reason guest-shutdown"
        );
        let layout = |columns: &str| Layout {
            parsable: true,
            columns: Some(columns.to_owned()),
            ..Layout::default()
        };
        let row = |columns| table(std::iter::once(&verdict), &none, &layout(columns), PIPE);
        assert_eq!(row("kind,user,marker").unwrap(), "poweroff:user:written\n");
        assert!(row("nope").is_err());
        let status = json!({"rule": "reason", "up_s": 7, "counts": {"verdicts": 1, "users": 1},
            "instances": {"db01": {"state": "queued", "qemu": null, "since": "x", "reachable": true}},
            "verdicts": [verdict]});
        let told = status_lines(&status, &none, PIPE).unwrap();
        assert!(told.contains("\nup        7s\nverdicts  1, 1 of them"), "{told}");
        assert!(
            told.starts_with("rule      reason: who turned a VM off is judged by the reason that QEMU gives\nup  "),
            "{told}"
        );
        assert!(
            told.contains(
                "\n\nNAME  STATE   QEMU  SINCE  REACHABLE\ndb01  queued  -     x      yes\n"
            ),
            "{told}"
        );
    }

    #[test]
    fn people_read_the_aliases_of_zones() {
        let zone = "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11";
        let names = Names::of([(zone.to_owned(), "web".to_owned())].into_iter());
        let verdict = json!({"date": "2026-05-31T16:34:39Z", "name": zone});
        assert!(sentence(&verdict, &names).starts_with("2026-05-31T16:34:39Z  web  -/-"));
        let layout = Layout { columns: Some("name".to_owned()), ..Layout::default() };
        let shown = table(std::iter::once(&verdict), &names, &layout, PIPE).unwrap();
        assert_eq!(shown, "NAME\nweb\n");
        let status = json!({"instances": {zone: {"state": "watching"}}});
        let shown = instances(&status, &names, &layout, PIPE).unwrap();
        assert_eq!(shown, "NAME\nweb\n");
    }
}
