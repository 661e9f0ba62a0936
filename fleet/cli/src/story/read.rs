// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each source tells, in its own order. What has no time is left out. Pure.

use std::collections::BTreeMap;

use daemon::cli::Tone;
use jiff::Timestamp;
use sdc_clients::fleet::Message;
use sdc_clients::migrations::{Ended, Migration};
use serde_json::{Deserializer, Value};

use crate::changes;
use crate::names::Names;

const MIGRATIONS: &str = "migration-service";

/// What a source tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(super) at: Timestamp,
    pub(super) source: &'static str,
    /// The node that it is about.
    pub(super) cn: Option<String>,
    pub(super) what: String,
    pub(super) details: String,
    pub(super) tone: Option<Tone>,
}

/// The feed's changes: the stream orders what one node says.
pub(crate) fn of_feed(found: &[(Timestamp, Message)]) -> Vec<Vec<Told>> {
    let mut nodes: BTreeMap<&str, Vec<Told>> = BTreeMap::new();
    for it in changes::told(found) {
        let (details, tone) = (it.details(), it.is_odd.then_some(Tone::Odd));
        let cn = Some(it.cn.to_owned());
        let told = Told { at: it.at, source: "vminfod", cn, what: it.what, details, tone };
        nodes.entry(it.cn).or_default().push(told);
    }
    nodes.into_values().collect()
}

/// The migrations that have ended, the newest first, and the one that has not.
pub(super) fn of_migrations(ended: &[Ended], open: Option<&Migration>, names: &Names) -> Vec<Told> {
    let mut all = Vec::new();
    // How it went is a step of what has ended, or of what has not.
    let mut steps = BTreeMap::new();
    let mut told = |at: Option<&str>, cn: Option<&str>, (what, state): (&str, &str), details| {
        let Some(at) = at.and_then(|at| at.parse().ok()) else { return };
        let tone = (state == "failed").then_some(Tone::Bad);
        let (cn, what) = (cn.map(str::to_owned), format!("{what} {state}"));
        all.push(Told { at, source: MIGRATIONS, cn, what, details, tone });
    };
    for one in ended {
        let node = |cn: &Option<String>| cn.as_deref().map(|cn| names.node(cn).to_owned());
        let by = one.by.as_ref().map(|by| format!("by {by}"));
        let way = node(&one.from).zip(node(&one.to)).map(|(from, to)| format!("{from} to {to}"));
        let down =
            one.downtime_ms.map(|ms| format!("down for {}.{} s", ms / 1000, ms % 1000 / 100));
        let from = one.from.as_deref();
        told(one.began.as_deref(), from, (&one.what, "begins"), joined([way.clone(), by]));
        for step in &one.steps {
            steps.insert((step.phase.clone(), step.began.clone()), ());
            let at = step.ended.as_deref().or(step.began.as_deref());
            told(at, from, (&step.phase, &step.state), joined([step.error.clone()]));
        }
        let said = joined([way, down, one.error.clone()]);
        told(Some(&one.ended), from, (&one.what, &one.outcome), said);
    }
    for step in open.iter().flat_map(|open| &open.progress_history) {
        if steps.contains_key(&(step.phase.clone(), step.started_timestamp.clone())) {
            continue;
        }
        let ended = step.other.get("finished_timestamp").and_then(Value::as_str);
        let from = open.and_then(|open| open.source_server_uuid.as_deref());
        let at = ended.or(step.started_timestamp.as_deref());
        told(at, from, (&step.phase, &step.state), joined([step.error.clone()]));
    }
    all.sort_by_key(|it| it.at);
    all
}

/// VMAPI's jobs, the newest first; those of migrations are told by their service.
pub(super) fn of_jobs(jobs: &[Value]) -> Vec<Told> {
    let told = |job: &Value| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let task = text(&job["params"]["task"]).or_else(|| text(&job["name"]))?;
        let results = job["chain_results"].as_array().into_iter().flatten();
        let mut failed = results.filter_map(|it| text(&it["error"])).filter(|it| !it.is_empty());
        let (what, state) = (task, text(&job["execution"]).unwrap_or_default());
        let tone = (state == "failed").then_some(Tone::Bad);
        (!what.starts_with("migrate-")).then_some(Told {
            at: time(&job["created_at"])?,
            source: "VMAPI",
            cn: None,
            what: format!("job {what} {state}"),
            details: failed.next().unwrap_or_default(),
            tone,
        })
    };
    let mut all: Vec<Told> = jobs.iter().filter_map(told).collect();
    all.sort_by_key(|it| it.at);
    all
}

/// What the programs of a node printed, each behind a line `== PROGRAM`. Those that printed nothing that can be read are
/// returned too.
pub(super) fn of_node(cn: &str, vm: &str, printed: &str) -> (Vec<Vec<Told>>, Vec<&'static str>) {
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    // No JSON has a newline within a string.
    for part in format!("\n{printed}").split("\n== ").skip(1) {
        let (program, said) = part.split_once('\n').unwrap_or((part, ""));
        let said = Deserializer::from_str(said).into_iter().map_while(Result::ok);
        let said: Vec<Value> = said.collect();
        let (source, told) = match program {
            "net-agent" => ("net-agent", nics(said.first())),
            "vm-agent" => ("vm-agent", records(&said, vm)),
            "kvmd" => ("kvmd", verdicts(said.first(), vm)),
            _ => continue,
        };
        if said.is_empty() {
            silent.push(source);
        }
        let told = told.into_iter().map(|(at, what, details)| {
            let tone = what.starts_with("failed").then_some(Tone::Bad);
            Told { at, source, cn: Some(cn.to_owned()), what, details, tone }
        });
        all.push(told.collect());
    }
    (all, silent)
}

/// When, what, and why.
type Entry = (Timestamp, String, String);

/// What net-agent wrote, in the order of its file.
fn nics(history: Option<&Value>) -> Vec<Entry> {
    let entry = |it: &Value| {
        let what = format!("{} NIC {}", said(it, "outcome"), said(it, "mac"));
        Some((time(&it["at"])?, what, format!("{}: {}", said(it, "rule"), said(it, "why"))))
    };
    items(history).filter_map(entry).collect()
}

/// What vm-agent wrote, of the last writes of the node, and what it decided last.
fn records(said_all: &[Value], vm: &str) -> Vec<Entry> {
    let puts = items(said_all.first().map(|status| &status["last_puts"])).rev();
    let puts = puts.filter(|it| it["vm"] == vm).filter_map(|it| {
        Some((time(&it["at"])?, "wrote VMAPI's record".to_owned(), said(it, "what").to_owned()))
    });
    let decided = said_all.get(1).and_then(|it| {
        let what = format!("decided: {}", said(it, "action"));
        Some((time(&it["at"])?, what, said(it, "reason").to_owned()))
    });
    let mut all: Vec<Entry> = puts.chain(decided).collect();
    all.sort_by_key(|it| it.0);
    all
}

/// Who turned it off.
fn verdicts(all: Option<&Value>, vm: &str) -> Vec<Entry> {
    let entry = |it: &Value| {
        let evidence = items(Some(&it["evidence"])).filter_map(Value::as_str);
        let what = format!("off by {} ({})", said(it, "initiator"), said(it, "kind"));
        Some((time(&it["date"])?, what, evidence.collect::<Vec<_>>().join(", ")))
    };
    items(all).filter(|it| it["name"] == vm).filter_map(entry).collect()
}

fn items(of: Option<&Value>) -> impl DoubleEndedIterator<Item = &Value> {
    of.and_then(Value::as_array).into_iter().flatten()
}

fn said<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or("-")
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
