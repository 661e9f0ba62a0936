// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the documents name of the repository is there: paths, crates, and what cargo is told to run.

use std::collections::BTreeSet;
use std::path::Path;

use super::source;

/// What is checked beside the pages (`.md`).
const SCRIPTS: [&str; 3] = ["deploy/package", "deploy/shar", ".ci/run"];

fn documents(root: &Path) -> Vec<String> {
    let pages = source::files(root, ".", "md");
    SCRIPTS.map(str::to_owned).into_iter().chain(pages).collect()
}

/// The packages of the workspace, their programs and their tests' names, by which cargo knows them.
struct Known {
    packages: BTreeSet<String>,
    programs: BTreeSet<String>,
    /// Files and folders below `tests/` of a package.
    tests: BTreeSet<String>,
}

impl Known {
    fn of(root: &Path) -> Known {
        let mut known =
            Known { packages: BTreeSet::new(), programs: BTreeSet::new(), tests: BTreeSet::new() };
        for path in source::files(root, ".", "toml") {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            let Some(folder) = path.strip_suffix("Cargo.toml") else { continue };
            let names = text.lines().filter_map(|line| line.strip_prefix("name = \""));
            let names: Vec<String> = names.map(|it| it.trim_end_matches('"').to_owned()).collect();
            known.packages.extend(names.first().cloned());
            known.programs.extend(names);
            for kind in ["src/bin", "tests"] {
                let Ok(entries) = std::fs::read_dir(root.join(folder).join(kind)) else { continue };
                let names = entries.map(|entry| entry.unwrap().path());
                let stems: Vec<String> =
                    names.map(|it| it.file_stem().unwrap().to_string_lossy().into()).collect();
                match kind {
                    "tests" => known.tests.extend(stems),
                    _ => known.programs.extend(stems),
                }
            }
        }
        known
    }

    /// Lists what a line tells cargo to run and is not there.
    fn missing(&self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '`').collect();
        let is_cargo = |word: &&str| *word == "cargo" || word.ends_with("/illumos-check");
        let Some(cargo) = words.iter().position(is_cargo) else { return Vec::new() };
        let own = words[cargo..].split(|word| *word == "--").next().unwrap_or_default();
        if own.get(1) == Some(&"new") {
            return Vec::new();
        }
        let is_missing = |pair: &&[&str]| {
            let known = match pair[0] {
                "-p" | "--package" => &self.packages,
                "--bin" => &self.programs,
                "--test" => &self.tests,
                _ => return false,
            };
            !known.contains(pair[1].trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
        };
        own.windows(2).filter(is_missing).map(|pair| pair.join(" ")).collect()
    }
}

/// Lists the paths of the repository that a line names: words that begin with one of its folders, and have a
/// further part. A star stands for any name, and so do capitals.
fn paths<'a>(line: &'a str, folders: &BTreeSet<String>) -> Vec<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let mut found = Vec::new();
    let mut from = 0;
    for word in line.split(|c: char| !is_part(c)) {
        let at = from;
        from = at + word.len() + line[at + word.len()..].chars().next().map_or(0, char::len_utf8);
        let is_open = line[..at].ends_with(['*', '<', '$', '{', '~'])
            || line[at + word.len()..].starts_with(['*', '<', '$', '{']);
        let word = word.trim_end_matches(['.', '-']).trim_start_matches("../");
        let Some((first, rest)) = word.split_once('/') else { continue };
        let stands_for_any =
            |part: &str| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase());
        let is_pattern = !word.ends_with(".md") && word.split(['/', '.']).any(stands_for_any);
        if folders.contains(first) && !rest.is_empty() && !is_open && !is_pattern {
            found.push(word);
        }
    }
    found
}

#[test]
fn every_crate_and_path_that_the_documents_name_is_there() {
    let root = source::root();
    let folders = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap());
    let folders: BTreeSet<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    let known = Known::of(&root);
    let mut faults = Vec::new();
    let mut seen = 0;
    for document in documents(&root) {
        let text = std::fs::read_to_string(root.join(&document)).unwrap();
        for (at, line) in text.lines().enumerate() {
            let named = paths(line, &folders);
            seen += named.len();
            let gone = named.into_iter().filter(|path| !root.join(path).exists());
            let gone = gone.map(str::to_owned).chain(known.missing(line));
            faults.extend(gone.map(|name| format!("{document}:{}: {name}", at + 1)));
        }
    }
    assert!(seen > 100, "{seen} paths were found in the documents");
    assert!(faults.is_empty(), "not there:\n{}", faults.join("\n"));
}

#[test]
fn the_architecture_names_every_crate_and_its_folder() {
    let root = source::root();
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members = ")).unwrap();
    for folder in members.split('"').skip(1).step_by(2) {
        let text = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")).unwrap();
        let name = format!("`{}`", name.trim_end_matches('"'));
        let place =
            format!("| `{}/` |", if folder.starts_with("tests/") { "tests" } else { folder });
        let has_row = rows.iter().any(|row| {
            let crates = row.split(" | ").next().unwrap_or_default();
            crates.contains(&name) && row.contains(&place)
        });
        assert!(has_row, "{name} in {folder} has no row");
    }
}

#[test]
fn the_drawing_of_the_architecture_has_every_program() {
    let root = source::root();
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let (drawing, _) = page.split_once("\n## ").unwrap();
    let drawing: Vec<&str> = drawing.lines().filter(|line| line.starts_with("    ")).collect();
    let words: BTreeSet<&str> = drawing.iter().flat_map(|line| line.split_whitespace()).collect();
    let is_ours = |path: &&String| !path.starts_with("tests/") && !path.starts_with("examples/");
    let mut seen = 0;
    for path in source::files(&root, ".", "toml").iter().filter(is_ours) {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        for program in text.split("[[bin]]\nname = \"").skip(1) {
            let name = program.split('"').next().unwrap();
            assert!(words.contains(name), "the drawing lacks {name}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} programs");
}

#[test]
fn each_threat_names_the_tests_that_hold_against_it() {
    let root = source::root();
    let page = std::fs::read_to_string(root.join("docs/trust.md")).unwrap();
    let (_, threats) = page.split_once("## Threats\n").unwrap();
    let rows: Vec<&str> = threats.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 5, "{} rows", rows.len());
    let mut code = String::new();
    for file in source::files(&root, ".", "rs") {
        code += &std::fs::read_to_string(root.join(file)).unwrap();
    }
    for row in rows {
        let [_, who, _, cannot, shown, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        // Whoever can everything, or nothing, is held by none.
        let is_none = shown.trim() == "–";
        assert!(!is_none || cannot.trim() == "–", "{who}: nothing shows what he cannot");
        for name in shown.split(", ").map(|name| name.trim().trim_matches('`')) {
            let is_there = code.contains(&format!("fn {name}("));
            assert!(is_none || is_there, "{who}: there is no test {name}");
        }
    }
}

#[test]
fn paths_and_cargos_words_are_found_in_a_line() {
    let folders = ["docs", "tests"].map(str::to_owned).into();
    for (line, want) in [
        ("see `docs/cli.md`, (tests/rig).", "docs/cli.md tests/rig"),
        ("[it](../docs/cli.md) and tests/<ver>/x", "docs/cli.md"),
        ("docs/config-*.md, /docs/x, docs/, tests/NAME/x", ""),
        ("and/or, Tests/x", ""),
    ] {
        assert_eq!(paths(line, &folders).join(" "), want, "{line}");
    }
    let set = |name: &str| BTreeSet::from([name.to_owned()]);
    let known = Known { packages: set("testbed"), programs: set("lab"), tests: set("programs") };
    let line = "    cargo test -p testbed --test migration -- --test nothing";
    assert_eq!(known.missing(line), ["--test migration"]);
    assert_eq!(known.missing("`cargo run -p testbed --bin lab`, -p none"), ["-p none"]);
    for line in ["grep -p none", "cargo new --bin other"] {
        assert_eq!(known.missing(line), Vec::<String>::new());
    }
}
