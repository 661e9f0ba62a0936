// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What two programs need is written once: no run of more than a dozen equal lines stands in two crates of the product.

use std::collections::BTreeMap;

use super::source;

/// Lines of code, without blank ones, comments and imports, that may stand in two crates.
const EQUAL: usize = 12;

/// A line of a file that counts: where it is, and its text.
type Line<'a> = (usize, &'a str);

/// Returns the lines that count of a file's text; of test code there are none.
fn lines(text: &str) -> Vec<Line<'_>> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut is_import = false;
    for (at, line) in code.lines().enumerate() {
        let line = line.trim();
        is_import |= line.starts_with("use ") || line.starts_with("pub use ");
        let is_thin = !line.contains(|c: char| c.is_alphanumeric());
        if !is_import && !is_thin && !line.starts_with("//") && !line.starts_with("#[") {
            found.push((at + 1, line));
        }
        is_import &= !line.ends_with(';');
    }
    found
}

/// Returns the runs of more than `EQUAL` lines that stand in two of these crates, each with its files.
fn equal_runs<'a>(files: &[(&'a str, &'a str, &'a str)]) -> Vec<String> {
    let mut seen: BTreeMap<Vec<&str>, (&str, String)> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for (krate, path, text) in files {
        for run in lines(text).windows(EQUAL + 1) {
            let texts = run.iter().map(|(_, text)| *text).collect();
            let place = format!("{path}:{}", run[0].0);
            match seen.get(&texts) {
                Some((other, first)) if other != krate => {
                    let files = (first.split(':').next().unwrap_or_default().to_owned(), *path);
                    found.entry(files).or_insert_with(|| format!("{place} ~ {first}"));
                }
                Some(_) => {}
                None => drop(seen.insert(texts, (krate, place))),
            }
        }
    }
    found.into_values().collect()
}

#[test]
fn no_long_run_of_equal_lines_stands_in_two_crates() {
    let root = source::root();
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    let texts: Vec<(String, String, String)> = source::files(&root, ".", "rs")
        .into_iter()
        .filter(|path| !path.starts_with("tests/") && !is_test(path))
        .filter_map(|path| {
            let krate = path.split_once("/src/")?.0.to_owned();
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            Some((krate, path, text))
        })
        .collect();
    let files: Vec<(&str, &str, &str)> =
        texts.iter().map(|(krate, path, text)| (&**krate, &**path, &**text)).collect();
    assert!(files.len() > 400, "{} files are no product", files.len());
    let found = equal_runs(&files);
    assert!(found.is_empty(), "write it once:\n{}", found.join("\n"));
}

#[test]
fn equal_runs_are_found_in_two_crates_only() {
    let run: String = (0..=EQUAL).map(|at| format!("let a{at} = {at};\n\n")).collect();
    let short = run.replace("let a0 = 0;\n", "");
    let other = format!("use a::{{\n    b,\n}};\n// why\n{run}fn f() {{}}\n");
    let tests = format!("fn g() {{}}\n#[cfg(test)]\nmod tests {{\n{run}}}\n");
    let files = [("a", "a/src/x.rs", run.as_str()), ("a", "a/src/y.rs", run.as_str())];
    assert!(equal_runs(&files).is_empty());
    for (text, is_found) in [(&other, true), (&short, false), (&tests, false)] {
        let all = [files[0], ("b", "b/src/z.rs", text.as_str())];
        assert_eq!(equal_runs(&all).len(), usize::from(is_found), "{text}");
    }
}
