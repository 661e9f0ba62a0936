// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `CONFORMANCE.md` and the names of the tests must agree: every number is there once, leads to a
//! test that exists and carries it, and no numbered test is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const STATEMENTS: usize = 111;
const BUGS: usize = 25;
/// The scars of the design, by the words that their tests carry after `scar_`.
const SCARS: usize = 13;
/// At most so many statements may be left untested.
const UNTESTED: usize = 10;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The tests of a source file, by name.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[tokio::test") || line == "#[test]" {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or(line.strip_prefix("fn ")) {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if std::mem::take(&mut marked) {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// The numbers that a name carries: `s017`, `b06`.
fn numbers(name: &str) -> BTreeSet<String> {
    let is_number = |word: &&str| {
        let digits = word.get(1..).unwrap_or_default();
        let length = match word.as_bytes().first() {
            Some(b's') => 3,
            Some(b'b') => 2,
            _ => return false,
        };
        digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split('_').filter(is_number).map(str::to_owned).collect()
}

/// File → its tests, of every file that the table may name.
fn sources() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = vec![
        "tests/testbed/tests/programs/statements.rs".to_owned(),
        "tests/testbed/tests/programs/statements/smf.rs".to_owned(),
        "vminfod/tests/serving.rs".to_owned(),
        "vminfod/src/sources/watched/tests.rs".to_owned(),
    ];
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/statements");
    for entry in std::fs::read_dir(own).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        files.push(format!("vminfod/tests/statements/{name}"));
    }
    let read = |file: String| {
        let text = std::fs::read_to_string(root().join(&file)).ok()?;
        Some((file, tests_in(&text)))
    };
    files.into_iter().filter_map(read).collect()
}

/// Rows of the table: first cell, and the file and test of the last one.
fn rows(text: &str) -> Vec<(String, Option<(String, String)>)> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let number = |cell: &str| cell.bytes().any(|byte| byte.is_ascii_digit());
    text.lines()
        .filter(|line| line.starts_with('|'))
        .map(cells)
        .filter(|cells| cells.first().is_some_and(|first| number(first)))
        .map(|cells| {
            let place = cells.last().and_then(|last| last.split_once(": "));
            let place =
                place.map(|(file, test)| (file.to_owned(), test.trim_matches('`').to_owned()));
            (cells[0].clone(), place.filter(|(file, _)| file.ends_with(".rs")))
        })
        .collect()
}

#[test]
fn the_table_and_the_names_of_the_tests_agree() {
    let text = std::fs::read_to_string(root().join("vminfod/CONFORMANCE.md")).unwrap();
    let sources = sources();
    let (mut tested, mut untested) = (BTreeSet::new(), BTreeSet::new());
    let mut named = BTreeSet::new();
    for (number, place) in rows(&text) {
        let Some((file, test)) = place else {
            assert!(untested.insert(number.clone()), "{number} is twice in the table");
            continue;
        };
        let tests = sources.get(&file).unwrap_or_else(|| panic!("{number}: no file {file}"));
        assert!(tests.contains(&test), "{number}: no test {test} in {file}");
        let carried = if number.starts_with("scar") {
            test.split('_').any(|word| word == "scar")
        } else {
            numbers(&test).contains(&number)
        };
        assert!(carried, "{test} does not carry {number}");
        named.insert((file, test));
        tested.insert(number);
    }
    let all =
        (1..=STATEMENTS).map(|n| format!("s{n:03}")).chain((1..=BUGS).map(|n| format!("b{n:02}")));
    let wanted: BTreeSet<String> = all.chain((1..=SCARS).map(|n| format!("scar {n}"))).collect();
    let missing: Vec<&String> =
        wanted.iter().filter(|n| !tested.contains(*n) && !untested.contains(*n)).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    let odd: Vec<&String> = tested.union(&untested).filter(|n| !wanted.contains(*n)).collect();
    assert!(odd.is_empty(), "no such number: {odd:?}");
    assert!(
        tested.is_disjoint(&untested),
        "both tested and not: {:?}",
        tested.intersection(&untested)
    );
    assert!(untested.len() <= UNTESTED, "{untested:?}");
    assert!(untested.iter().all(|number| number.starts_with('s')), "{untested:?}");
    for (file, tests) in &sources {
        for test in tests.iter().filter(|test| !numbers(test).is_empty() || test.contains("scar_"))
        {
            assert!(
                named.contains(&(file.clone(), test.clone())),
                "{test} of {file} is not in the table"
            );
        }
    }
}

#[test]
fn numbers_of_names() {
    let set = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(numbers("s043_b01_scar_a_stalled_reader"), set(&["s043", "b01"]));
    assert_eq!(numbers("s12_b1_s0123_box"), set(&[]));
}
