// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `history`: what was written and deleted. It reads the file itself, so it works whether the daemon runs
//! or not.

use anyhow::{Context as _, anyhow};
use daemon::agent::Verbs as _;
use daemon::cli::names::{self, Names};
use daemon::cli::table::plain;
use daemon::cli::{Cell, Screen, Table, Usage, ago};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::args::{HistoryArgs, Verb};
use crate::config::Config;
use crate::history::{Entry, History, Query};

/// The columns; the usual ones first.
const COLUMNS: [&str; 8] = ["ago", "mac", "outcome", "vm", "change", "rule", "why", "at"];
/// How many of them are usual.
const USUAL: usize = 5;

pub(super) async fn history(
    config: &Config,
    args: HistoryArgs,
    screen: Screen,
) -> anyhow::Result<String> {
    let layout = args.list.layout();
    let vm = match args.vm {
        // A VM that is gone has its whole uuid only.
        Some(typed) => Some(names::vm(&config.services.vminfod, Verb::NAME, &typed).await?.uuid),
        None => None,
    };
    let asked = Query {
        mac: args.mac.as_deref().map(mac_of).transpose()?,
        vm,
        since: args.since.as_deref().map(since_of).transpose()?,
    };
    let found =
        History::new(&config.basics.places.state_dir).read(&asked).context("the history")?;
    if layout.json && !layout.asks_for_table() {
        return Ok(screen.harmless(&format!("{:#}\n", serde_json::to_value(found)?)));
    }
    if found.is_empty() && !layout.asks_for_table() {
        return Ok("nothing was written or deleted\n".to_owned());
    }
    let known = if args.list.shows_names(screen) { config.names().await } else { Names::default() };
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for entry in &found {
        table.row(COLUMNS.map(|column| cell(entry, column, &known)).to_vec());
    }
    Ok(table.print(&layout, screen)?)
}

fn cell(entry: &Entry, column: &str, known: &Names) -> Cell {
    match column {
        "at" => format!("{:.0}", entry.at).into(),
        "ago" => ago(entry.at).into(),
        "mac" => entry.mac.to_string().into(),
        "outcome" => entry.outcome.as_str().into(),
        "rule" => entry.rule.as_str().into(),
        "vm" => Cell::name(known.name(&entry.vm)),
        "why" => known.in_text(&entry.why).into(),
        _ => change(entry).into(),
    }
}

/// Returns the fields that were written, old and new; of a deleted record those by which it is known.
fn change(entry: &Entry) -> String {
    let old = Value::from(entry.old.clone());
    let Some(new) = &entry.new else {
        let known = ["state", "ip", "owner_uuid", "cn_uuid"].iter();
        let known = known.filter(|field| !old[**field].is_null());
        let said = known.map(|field| format!("{field} {}", plain(&old[*field])));
        return format!("was {}", said.collect::<Vec<_>>().join(", "));
    };
    let fields = new.iter().filter(|(field, _)| *field != "check_owner");
    let said =
        fields.map(|(field, new)| format!("{field} {} → {}", plain(&old[field]), plain(new)));
    said.collect::<Vec<_>>().join(", ")
}

fn mac_of(mac: &str) -> anyhow::Result<sdc_clients::MacAddr> {
    mac.parse().map_err(|err| anyhow!(Usage(format!("--mac {mac}: {err}"))))
}

/// Reads a time, or how long ago it was.
fn since_of(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let span = daemon::config::parse_span(text);
    let span =
        span.map_err(|why| anyhow!(Usage(format!("--since: {why}, or a time in ISO 8601"))))?;
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    Ok(daemon::wall::now().checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_old_and_new_without_json() {
        let entry = |old: Value, new: Value| -> Entry {
            serde_json::from_value(json!({"at": "2026-05-31T16:34:39Z", "vm": "v", "why": "gone",
                "mac": "f2:00:00:00:00:01", "outcome": "updated", "rule": "upkeep", "old": old, "new": new}))
            .unwrap()
        };
        let update =
            entry(json!({"state": "provisioning"}), json!({"cn_uuid": "c", "state": "running"}));
        assert_eq!(change(&update), "cn_uuid - → c, state provisioning → running");
        let delete = entry(json!({"state": "running", "ip": "10.0.0.7", "mac": "x"}), Value::Null);
        assert_eq!(change(&delete), "was state running, ip 10.0.0.7");
        assert!(since_of("soon").is_err() && since_of("2h").is_ok());
    }
}
