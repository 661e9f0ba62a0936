// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CONFORMANCE.md against the sources: every statement has a test, every such test a row.

#![allow(clippy::unwrap_used)] // A test program may stop at once.

use std::collections::BTreeSet;
use std::path::Path;

fn statements() -> BTreeSet<String> {
    let numbered = |letter: &str, count: u32| -> Vec<String> {
        (1..=count).map(|n| format!("{letter}{n}")).collect()
    };
    numbered("K", 12).into_iter().chain(numbered("R", 13)).collect()
}

/// `k06_our_rule` → `K6`.
fn statement_of(test: &str) -> Option<String> {
    let (head, _) = test.split_once('_')?;
    let (letter, number) = head.split_at_checked(1)?;
    let number: u32 = number.parse().ok()?;
    matches!(letter, "k" | "r").then(|| format!("{}{number}", letter.to_uppercase()))
}

/// Functions of the test sources, below this folder, that are named by a statement's number and marked as tests.
fn tests_in_sources(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(tests_in_sources(&path));
        }
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let [mark, line] = pair else { continue };
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            let name = name.and_then(|rest| rest.split_once('(')).map(|(name, _)| name);
            if (mark.starts_with("#[tokio::test") || *mark == "#[test]")
                && let Some(name) = name.filter(|name| statement_of(name).is_some())
            {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn every_statement_has_a_test_and_every_such_test_a_row() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(here.join("CONFORMANCE.md")).unwrap();
    let (mut rows, mut named) = (BTreeSet::new(), BTreeSet::new());
    for line in table.lines().filter(|line| line.starts_with("| K") || line.starts_with("| R")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, tests] = cells.as_slice() else { panic!("{line}") };
        let tests: Vec<&str> =
            tests.split_whitespace().map(|name| name.trim_matches('`')).collect();
        assert!(!tests.is_empty(), "{number} has no test");
        for test in tests {
            assert_eq!(statement_of(test).as_deref(), Some(*number), "{test}");
            named.insert(test.to_owned());
        }
        assert!(rows.insert((*number).to_owned()), "{number} twice");
    }
    assert_eq!(rows, statements());
    assert_eq!(named, tests_in_sources(&here.join("tests")));
}
