// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is printed, and the report that may be sent to others.

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::finding::{Finding, Verdict};
use super::ledger::belief;

/// Returns the table for people: what is false first.
pub fn table(
    findings: &[Finding],
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&["number", "state", "belief", "seen"]);
    for verdict in [Verdict::Fails, Verdict::Unknown, Verdict::Holds] {
        for finding in findings.iter().filter(|finding| finding.verdict == verdict) {
            let tone = match verdict {
                Verdict::Holds => Tone::Good,
                Verdict::Fails => Tone::Bad,
                Verdict::Unknown => Tone::Odd,
            };
            let sentence = belief(finding.belief).map_or("", |belief| belief.sentence);
            table.row(vec![
                finding.belief.into(),
                Cell::toned(verdict.word(), tone),
                sentence.into(),
                finding.seen.clone().into(),
            ]);
        }
    }
    table.print(layout, screen)
}

/// Returns the report: the same, as JSON, with the versions of the product and the platform.
pub fn report(findings: &[Finding], platform: &str) -> Value {
    let rows = findings.iter().map(|finding| {
        let belief = belief(finding.belief);
        json!({
            "belief": finding.belief,
            "sentence": belief.map(|belief| belief.sentence),
            "evidence": belief.map(|belief| belief.evidence),
            "verdict": finding.verdict.word().to_lowercase(),
            "seen": finding.seen,
        })
    });
    json!({
        "version": daemon::cli::version(),
        "platform": platform,
        "made": Timestamp::now().strftime("%Y-%m-%d").to_string(),
        "findings": rows.collect::<Vec<_>>(),
    })
}
