// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is printed, and the report that may be sent to others.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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

/// Writes a report into a new file, which its owner alone reads. Whatever is there already, also a link, is left, and is
/// an error: root writes nothing through what somebody else has put there.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_report_is_a_new_file_of_its_owner_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (new, target, link) =
            (dir.path().join("new"), dir.path().join("target"), dir.path().join("link"));
        write(&new, "text").unwrap();
        assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&new).unwrap(), "text");
        assert!(write(&new, "again").is_err(), "what is there stays");
        symlink(&target, &link).unwrap();
        assert!(write(&link, "text").is_err());
        assert!(!target.exists(), "it was written through a link");
    }
}
