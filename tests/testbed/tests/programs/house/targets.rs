// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is built for the tests: no executable that has none, each that has some, and nothing again that the lab has.

use std::collections::BTreeSet;
use std::path::Path;

use testbed::process;

use super::super::common::LATE;
use super::layers;
use super::source::{self, Kind};

/// Returns the value of a key of a section.
fn value<'a>(section: &'a str, key: &str) -> Option<&'a str> {
    let lines = section.lines().filter_map(|line| line.split_once(" = "));
    lines.into_iter().find(|(it, _)| *it == key).map(|(_, value)| value.trim_matches('"'))
}

/// Returns whether the source has a test of its own.
fn has_test(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    let is_test = |it: &source::Part| {
        it.kind == Kind::Code
            && ["#[test]", "::test]", "::test(", "proptest!"]
                .iter()
                .any(|mark| it.text.contains(mark))
    };
    source::parts(&text).iter().any(is_test)
}

/// Returns whether a library shows code that rustdoc runs.
fn has_doctest(root: &Path, folder: &str) -> bool {
    source::files(root, &format!("{folder}/src"), "rs").iter().any(|path| {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let comments = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
        });
        let fences = comments.map(str::trim).filter_map(|line| line.strip_prefix("```"));
        // Every second fence ends what the one before it began.
        fences.step_by(2).any(|language| language != "text")
    })
}

/// Returns the sources of a crate's programs, each with the section of the manifest that names it, if one does.
fn programs<'a>(root: &Path, folder: &str, sections: &[&'a str]) -> Vec<(String, Option<&'a str>)> {
    let named = |path: &str| {
        let mut programs = sections.iter().filter(|it| it.starts_with("[bin]]"));
        programs.find(|it| value(it, "path") == Some(path)).copied()
    };
    let sources = source::files(root, &format!("{folder}/src"), "rs").into_iter();
    let sources =
        sources.filter_map(|path| Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned()));
    let is_program = |path: &String| path == "src/main.rs" || path.starts_with("src/bin/");
    sources.filter(is_program).map(|path| (path.clone(), named(&path))).collect()
}

#[test]
fn a_program_or_a_library_is_tested_where_it_has_tests_and_nowhere_else() {
    let root = source::root();
    let (mut faults, mut programs_read, mut libraries_read) = (Vec::new(), 0, 0);
    for (folder, manifest) in layers::crates() {
        let sections: Vec<&str> = manifest.split("\n[").collect();
        for (path, section) in programs(&root, &folder, &sections) {
            programs_read += 1;
            let is_off = section.is_some_and(|it| value(it, "test") == Some("false"));
            if has_test(&root.join(&folder).join(&path)) == is_off {
                faults.push(format!(
                    "{folder}/{path}: `test = false` if it has no test, and only then"
                ));
            }
        }
        if root.join(&folder).join("src/lib.rs").exists() {
            libraries_read += 1;
            let library = sections.iter().find(|it| it.starts_with("lib]"));
            let is_off = library.and_then(|it| value(it, "doctest")) == Some("false");
            if has_doctest(&root, &folder) == is_off {
                faults.push(format!(
                    "{folder}: `doctest = false` if it shows no example, and only then"
                ));
            }
        }
    }
    assert!(
        programs_read > 15 && libraries_read > 20,
        "{programs_read} programs, {libraries_read} libraries"
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the packages that this selection builds, each with the features that it then has.
async fn built(selection: &[&str]) -> BTreeSet<String> {
    let manifest = source::root().join("Cargo.toml").to_string_lossy().into_owned();
    let args = ["tree", "--offline", "--locked", "--manifest-path", &manifest];
    let args = [&args[..], &["--prefix", "none", "-f", "{p} {f}"], selection].concat();
    let done = process::run(Path::new(env!("CARGO")), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{selection:?}: {}", done.stderr);
    done.stdout.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// A feature more or less, and the testbed and what it is made of are compiled twice.
#[tokio::test]
async fn the_tests_link_what_was_built_for_the_lab() {
    let lab = built(&["-p", "testbed", "-e", "normal,build"]).await;
    let tests = built(&["--workspace", "-e", "normal,build,dev"]).await;
    assert!(lab.iter().any(|it| it.starts_with("testbed ")), "{lab:?}");
    let other: Vec<&String> = lab.difference(&tests).collect();
    assert!(other.is_empty(), "the workspace has these with other features: {other:#?}");
}
