// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The numbers of `docs/contract`: each one that the code names is stated there, and each statement
//! is named by a test or says why not.

use std::collections::BTreeMap;

use super::source::{self, Kind};

/// Says in which pages a number is looked up, in this order, by words of the file's path.
const SCOPES: [(&[&str], &[&str]); 14] = [
    (
        &["daemon/src/kept", "simnode/src/reprovision", "hub/src/setup", "programs/zones"],
        &["zones"],
    ),
    (&["store/"], &["migration", "volapi"]),
    (
        &["src/papi", "src/imgapi", "src/workflow", "conform/services", "conform/real_runs"],
        &["peers"],
    ),
    (&["hub/src", "programs/checks"], &["beliefs"]),
    (
        &["simnode/", "vmadm_validate", "programs/node"],
        &["vmadm", "vminfod", "faults", "net-agent"],
    ),
    (&["volumes/core", "volumes/cli", "volapi"], &["volapi"]),
    (
        &[
            "migration/core",
            "migration/agent",
            "migration/service",
            "migration/cli",
            "trust/src",
            "programs/trust",
            "programs/compromised",
            "testbed/src/explore",
            "testbed/src/moving",
            "real_zfs",
            "programs/by_hand",
            "programs/documents",
            "programs/guides",
            "programs/needs",
            "programs/cut_off",
        ],
        &["migration", "zones"],
    ),
    (&["fleet/agent", "fleet/cli", "fleet_feed", "clients/src/fleet"], &["fleet"]),
    (&["kvmd"], &["kvmd"]),
    (&["vm-agent"], &["vm-agent", "vmapi", "faults"]),
    (&["napi", "vmapi", "mocks", "sdc-clients"], &["napi", "vmapi"]),
    (&["agent", "migration", "swarm"], &["net-agent", "faults"]),
    (&["sim", "storm", "faults", "soak"], &["faults", "net-agent", "vminfod"]),
    (&[""], &["vminfod", "faults"]),
];

const NOT_TESTED: &str = "*not tested: ";

struct Statement {
    place: String,
    is_excused: bool,
    named: bool,
}

/// Page → number → statement.
type Pages = BTreeMap<String, BTreeMap<String, Statement>>;

#[test]
fn every_number_is_stated_and_every_statement_is_tested_or_excused() {
    let root = source::root();
    let mut pages = pages();
    let mut faults = Vec::new();
    for path in source::files(&root, ".", "rs") {
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        for (line, number, is_test) in named(&path, &text) {
            let place = format!("{path}:{line}");
            match statement(&mut pages, &path, &number) {
                Some(Ok(statement)) if is_test => statement.named = true,
                Some(Err(page)) => faults.push(format!("{place}: {number} is not in {page}")),
                _ => {}
            }
        }
    }
    reliability(&mut pages);
    for (number, statement) in pages.values().flatten() {
        if statement.named || statement.is_excused {
            continue;
        }
        faults.push(format!(
            "{}: {number} is named by no test, and does not say `{NOT_TESTED}REASON*`",
            statement.place
        ));
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// Reads the statements: list items and table rows that begin with a number in bold.
fn pages() -> Pages {
    let root = source::root();
    let mut pages = Pages::new();
    for path in source::files(&root, "docs/contract", "md") {
        let page = pages.entry(path.rsplit('/').next().unwrap().replace(".md", "")).or_default();
        let mut current = String::new();
        for (at, line) in std::fs::read_to_string(root.join(&path)).unwrap().lines().enumerate() {
            let start = line.strip_prefix("- **").or(line.strip_prefix("| **"));
            let number = start.and_then(|rest| rest.split_once("**")).map(|(number, _)| number);
            match number.filter(|number| numbers(number).first().is_some_and(|it| it == number)) {
                Some(number) => {
                    current = number.to_owned();
                    let place = format!("{path}:{}", at + 1);
                    let statement = Statement { place, is_excused: false, named: false };
                    let twice = page.insert(current.clone(), statement);
                    assert!(twice.is_none(), "{path}:{}: {number} is there twice", at + 1);
                }
                // A list item goes on in indented lines.
                None if !line.starts_with("  ") => current.clear(),
                None => {}
            }
            if let Some(statement) = page.get_mut(&current) {
                statement.is_excused |= line.contains(NOT_TESTED);
            }
        }
    }
    pages
}

/// Finds a number in the pages that the path looks up: none of them has its letter, or the first
/// that has it states it, or does not.
fn statement<'a>(
    pages: &'a mut Pages,
    path: &str,
    number: &str,
) -> Option<Result<&'a mut Statement, String>> {
    let letter = |number: &str| number.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let scope = SCOPES.iter().find(|(words, _)| words.iter().any(|word| path.contains(word)));
    let name = scope?.1.iter().find(|name| {
        pages.get(**name).is_some_and(|page| page.keys().any(|it| letter(it) == letter(number)))
    })?;
    let page = pages.get_mut(*name)?;
    Some(page.get_mut(number).ok_or_else(|| format!("docs/contract/{name}.md")))
}

/// The fault matrix of RELIABILITY.md names tests for each row; another test checks that they exist.
fn reliability(pages: &mut Pages) {
    let text = std::fs::read_to_string(source::root().join("RELIABILITY.md")).unwrap();
    for line in text.lines().filter(|line| line.contains('`')) {
        let cell = line.split('|').nth(1).unwrap_or_default().trim().trim_start_matches('F');
        let faults = pages.get_mut("faults").unwrap();
        if let Some(statement) = faults.get_mut(&format!("F{cell}")) {
            statement.named = true;
        }
    }
}

/// Lists the numbers that a file names: the line, the number, and whether a test names it.
fn named(path: &str, text: &str) -> Vec<(usize, String, bool)> {
    let is_test_file = ["/tests/", "/tests.rs", "/tables/"].iter().any(|it| path.contains(it));
    let mut is_test = is_test_file || path.starts_with("tests/");
    let mut found = Vec::new();
    for part in source::parts(text) {
        is_test |= part.kind == Kind::Code && part.text.contains("#[cfg(test)]");
        let here = match part.kind {
            Kind::InnerDoc | Kind::Comment => numbers(&part.text),
            Kind::Text => opening(part.text.trim_start_matches('r').trim_matches(['#', '"'])),
            Kind::Code => continue,
        };
        let counts = is_test && part.kind != Kind::InnerDoc;
        found.extend(here.into_iter().map(|number| (part.line, number, counts)));
    }
    found
}

/// The numbers of a string that begins with one, such as the name of a table's row.
fn opening(text: &str) -> Vec<String> {
    let first = text.split([' ', ',', ':']).next().unwrap_or_default();
    let is_number = numbers(first).first().is_some_and(|number| number == first);
    if is_number || text.starts_with("race") { numbers(text) } else { Vec::new() }
}

/// All numbers in a text: `S67`, `C1–C5`, `race 18`, `races 1 2`, `race 1–33`.
fn numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut letter = "";
    for word in text.split(|c: char| c.is_whitespace() || "(),;.`*\"/[]'".contains(c)) {
        let word = word.trim_end_matches(':');
        if matches!(word, "race" | "races") {
            letter = "race ";
            continue;
        }
        let (from, to) = word.split_once('–').unwrap_or((word, word));
        let after_letter = from.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let own = &from[..from.len() - after_letter.len()];
        let bounds = (digits(after_letter), digits(to.strip_prefix(own).unwrap_or(to)));
        let (1 | 0, (Some(from), Some(to))) = (own.len(), bounds) else {
            letter = "";
            continue;
        };
        if own.len() == 1 {
            letter = "";
        } else if letter.is_empty() {
            continue;
        }
        found.extend((from..=to).map(|number| format!("{letter}{own}{number}")));
    }
    found
}

fn digits(text: &str) -> Option<u32> {
    let is_short = (1..=3).contains(&text.len());
    (is_short && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[test]
fn numbers_are_found_in_every_form() {
    for (text, want) in [
        ("// S67", "S67"),
        ("(K8), C1–C3 and I1 I2", "K8 C1 C2 C3 I1 I2"),
        ("D5, race 9, G5 young", "D5 race 9 G5"),
        ("races 1 2: hidden; races 31–33", "race 1 race 2 race 31 race 32 race 33"),
        ("90-B8-D0-1 B8:D0 IPv4 S1x 12 S1234", ""),
    ] {
        assert_eq!(numbers(text).join(" "), want, "{text}");
    }
    assert_eq!(opening("G6 young"), ["G6"]);
    assert_eq!(opening("see G6"), Vec::<String>::new());
}
