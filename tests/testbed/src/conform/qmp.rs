// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed conform qmp FILE`: recorded QMP sessions of real QEMUs against kvmd's verdicts, by
//! both rules. What is expected stands beside the recording: `…transcripts….jsonl` →
//! `…expected….json`.
//!
//! Of each scenario one client's received lines are fed, in order and at their recorded times,
//! then the end of the stream; nothing else of the scenario is known to the judge.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use indexmap::IndexMap;
use kvmd::judge::ADMIN_WINDOW;
use kvmd::session::Session;
use kvmd::verdict::{Kind, word};
use serde::Deserialize;

use super::tally::{Tally, no_flags};

/// One line of the recording.
#[derive(Debug, Deserialize)]
struct Row {
    scenario: String,
    direction: String,
    t_ms: f64,
    line: String,
    #[serde(default)]
    client: Option<String>,
}

/// What is expected of a scenario.
#[derive(Debug, Deserialize)]
struct Expected {
    client: Option<String>,
    initiator: Option<String>,
    kind: String,
    #[serde(default)]
    kvmd_2_11_rule: Option<String>,
}

/// The client whose rows carry no name.
const OBSERVER: &str = "obs";
/// The kind of a scenario that is about something else.
const NO_VERDICT: &str = "not-a-verdict-scenario";

/// Compares with the recording at `path`.
pub(super) fn check(path: &Path, flags: &[String]) -> anyhow::Result<Tally> {
    no_flags(flags)?;
    let (beside, is_its_own) = expected_path(path)?;
    let text = std::fs::read_to_string(&beside).with_context(|| beside.display().to_string())?;
    let expected: IndexMap<String, Expected> =
        serde_json::from_str(&text).with_context(|| beside.display().to_string())?;
    let recorded = read(path)?;
    let mut tally = Tally::default();
    for (scenario, rows) in &recorded {
        let wrong = expected.get(scenario).map_or_else(
            || vec!["recorded, but nothing is expected of it".to_owned()],
            |expected| examine(rows, expected),
        );
        tally.case(scenario, &wrong);
    }
    for scenario in expected.keys().filter(|name| is_its_own && !recorded.contains_key(*name)) {
        tally.case(scenario, &["nothing is recorded of it".to_owned()]);
    }
    Ok(tally)
}

/// The recording's own expectations, else those of all recordings beside it.
fn expected_path(path: &Path) -> anyhow::Result<(PathBuf, bool)> {
    let name = path.file_name().and_then(|name| name.to_str()).context("not a file")?;
    let name = name.replace("transcripts", "expected").replace(".jsonl", ".json");
    let own = path.with_file_name(name);
    let is_its_own = own.exists() && own != path;
    Ok((if is_its_own { own } else { path.with_file_name("qmp-expected.json") }, is_its_own))
}

fn read(path: &Path) -> anyhow::Result<IndexMap<String, Vec<Row>>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut scenarios: IndexMap<String, Vec<Row>> = IndexMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row: Row = serde_json::from_str(line)
            .with_context(|| format!("{}:{}", path.display(), number + 1))?;
        scenarios.entry(row.scenario.clone()).or_default().push(row);
    }
    Ok(scenarios)
}

/// What our two rules say that is not expected.
fn examine(rows: &[Row], expected: &Expected) -> Vec<String> {
    let Some(client) = expected.client.as_deref() else {
        // No client's stream is named: there is nobody to give a verdict on.
        let no_verdict = expected.kind == NO_VERDICT;
        let reason = format!("no client is named, and {:?} is expected", expected.kind);
        return if no_verdict { Vec::new() } else { vec![reason] };
    };
    let (session, at) = feed(rows, client);
    let verdict = session.verdict(at, ADMIN_WINDOW);
    let (initiator, kind) = (word(&verdict.initiator), word(&verdict.kind));
    let mut wrong = Vec::new();
    if expected.kind == NO_VERDICT {
        if verdict.kind != Kind::Unwatched {
            wrong.push(format!("expected no verdict, got {initiator}/{kind}"));
        }
    } else {
        let wanted = expected.initiator.as_deref().unwrap_or("-");
        if (initiator.as_str(), kind.as_str()) != (wanted, expected.kind.as_str()) {
            wrong.push(format!(
                "expected {wanted}/{}, got {initiator}/{kind} on {:?}",
                expected.kind, verdict.evidence
            ));
        }
    }
    let shipped = if session.user_by_shipped_rule() { "user" } else { "not-user" };
    if expected.kvmd_2_11_rule.as_deref().is_some_and(|wanted| wanted != shipped) {
        wrong.push(format!(
            "shipped rule: expected {}, got {shipped}",
            expected.kvmd_2_11_rule.as_deref().unwrap_or_default()
        ));
    }
    wrong
}

/// Feeds what `client` received; gives the session and when its stream ended.
fn feed(rows: &[Row], client: &str) -> (Session, Duration) {
    let mut session = Session::default();
    let mut at = Duration::ZERO;
    for row in rows.iter().filter(|row| row.client.as_deref().unwrap_or(OBSERVER) == client) {
        at = at.max(Duration::from_secs_f64((row.t_ms / 1000.0).clamp(0.0, 1e9)));
        if row.direction == "recv" {
            // A line that cannot be understood is counted by the session, as on a live one.
            let _counted = session.line(at, &Ok(row.line.as_bytes().to_vec().into()));
        }
    }
    (session, at)
}
