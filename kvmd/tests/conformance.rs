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

/// Returns the tests below this folder that have a statement's number in the comment above them, as
/// `(number, test)`.
fn tests_in_sources(dir: &Path) -> BTreeSet<(String, String)> {
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
        for three in lines.windows(3) {
            let [comment, mark, line] = three else { continue };
            let number = comment.strip_prefix("// ").filter(|text| statements().contains(*text));
            let name = line.trim_start_matches("async ").strip_prefix("fn ");
            let name = name.and_then(|rest| rest.split_once('(')).map(|(name, _)| name);
            if (mark.starts_with("#[tokio::test") || *mark == "#[test]")
                && let (Some(number), Some(name)) = (number, name)
            {
                found.insert((number.to_owned(), name.to_owned()));
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
        assert!(!tests.is_empty(), "{number} has no test");
        for test in tests.split_whitespace() {
            named.insert(((*number).to_owned(), test.trim_matches('`').to_owned()));
        }
        assert!(rows.insert((*number).to_owned()), "{number} twice");
    }
    assert_eq!(rows, statements());
    assert_eq!(named, tests_in_sources(&here.join("tests")));
}
