// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CONFORMANCE.md says which test holds which statement; this holds the page to the sources.

#![allow(missing_docs, clippy::unwrap_used)] // a test: a panic is a failed test

use std::path::Path;

/// The names of all test functions below `folder`.
fn tests(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
            continue;
        }
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
                found.push(rest.split('(').next().unwrap().to_owned());
                marked = false;
            }
        }
    }
}

#[test]
fn every_statement_names_tests_that_exist_and_every_numbered_test_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    tests(&root.join("src"), &mut found);
    tests(&root.join("tests"), &mut found);
    let page = std::fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let mut named = Vec::new();
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        rows.push(cells[1].to_owned());
        for name in
            cells.last().filter(|c| !c.is_empty()).unwrap_or(&cells[cells.len() - 2]).split('`')
        {
            if name.contains('_') {
                assert!(found.iter().any(|test| test == name), "{}: no test {name}", cells[1]);
                named.push(name.to_owned());
            }
        }
    }
    let wanted = (1..=30)
        .map(|n| format!("c{n:02}"))
        .chain((1..=20).map(|n| format!("R{n}")))
        .chain((1..=33).map(|n| format!("race {n}")))
        .chain((1..=11).map(|n| format!("D{n}")));
    for id in wanted {
        assert!(rows.contains(&id), "{id} has no row");
    }
    for test in found.iter().filter(|name| {
        name.len() > 3 && name.starts_with('c') && name[1..3].bytes().all(|b| b.is_ascii_digit())
    }) {
        assert!(named.contains(test), "{test} is not on the page");
    }
}

#[test]
fn every_key_of_the_configuration_is_documented_and_every_documented_one_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/config-net-agent.md")).unwrap();
    let mut told: Vec<&str> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.split('|').nth(1).unwrap();
        told.extend(cell.split('`').skip(1).step_by(2));
    }
    let source = std::fs::read_to_string(root.join("src/config.rs")).unwrap();
    let source = source.split("mod tests").next().unwrap();
    let mut read: Vec<String> = Vec::new();
    for call in [
        "f.span(",
        "f.spans(",
        "f.text(",
        "f.parse(",
        "f.flag(",
        "f.path(",
        "f.number(",
        "f.optional_text(",
        "shipped.flag(",
        "shipped.optional_text(",
        "required(&mut shipped, ",
        "window(f, ",
    ] {
        for (at, _) in source.match_indices(call) {
            let Some(rest) = source[at + call.len()..].trim_start().strip_prefix('"') else {
                continue;
            };
            let key = rest.split('"').next().unwrap();
            if call == "window(f, " {
                read.extend([format!("{key}.min"), format!("{key}.max")]);
            } else {
                read.push(key.to_owned());
            }
        }
    }
    assert!(read.len() > 25, "{read:?}");
    for key in &read {
        assert!(told.contains(&key.as_str()), "{key} is not in docs/config-net-agent.md");
    }
    for key in told {
        assert!(read.iter().any(|known| known == key), "{key} is documented and never read");
    }
}
