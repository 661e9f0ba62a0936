// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Log lines are for people: none shows a value as Rust's `Debug` prints it. Lines of level debug are for developers.

use super::source::{self, Kind, Part};

/// The macros of those lines that operators read.
const MACROS: [&str; 3] = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];

/// Returns the number of each line that gives a field of a log line as `?field`, or a value as `{value:?}`.
fn debug_fields(text: &str) -> Vec<usize> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let (mut depth, mut before) = (0_usize, ' ');
    for Part { line, kind, text } in source::parts(code) {
        match kind {
            Kind::Text if depth > 0 && text.contains(":?}") => found.push(line),
            Kind::Text => before = '"',
            Kind::Code => {
                let start =
                    MACROS.iter().find_map(|name| text.find(name).map(|at| at + name.len()));
                let from = match (depth, start) {
                    (0, None) => continue,
                    (0, Some(start)) => {
                        (depth, before) = (1, '(');
                        start
                    }
                    _ => 0,
                };
                for c in text[from..].chars().filter(|c| !c.is_whitespace()) {
                    match c {
                        '(' => depth += 1,
                        ')' => depth = depth.saturating_sub(1),
                        '?' if "(,=".contains(before) => found.push(line),
                        _ => {}
                    }
                    before = c;
                    if depth == 0 {
                        break;
                    }
                }
            }
            Kind::Comment | Kind::InnerDoc => {}
        }
    }
    found
}

#[test]
fn no_log_line_shows_debug_output() {
    let root = source::root();
    let is_test = |path: &str| {
        path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
    };
    let (mut lines, mut faults) = (0, Vec::new());
    for path in source::files(&root, ".", "rs").into_iter().filter(|path| !is_test(path)) {
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        lines += MACROS.iter().map(|name| text.matches(name).count()).sum::<usize>();
        faults.extend(debug_fields(&text).into_iter().map(|line| format!("{path}:{line}")));
    }
    assert!(lines > 200, "only {lines} log lines were found");
    assert!(faults.is_empty(), "give it a Display or a name:\n{}", faults.join("\n"));
}

#[test]
fn debug_output_is_found_in_log_lines_only() {
    for (text, lines) in [
        ("tracing::warn!(?why, \"x\");", vec![1]),
        ("tracing::info!(\n    vm = %vm(a)?,\n    of = ?kept.what,\n    \"x\"\n);", vec![3]),
        ("tracing::error!(\"{why:?}\");", vec![1]),
        ("tracing::warn!(%why, \"is it so?\"); f(?why);", vec![]),
        ("tracing::debug!(?why, \"x\"); format!(\"{why:?}\");", vec![]),
    ] {
        assert_eq!(debug_fields(text), lines, "{text}");
    }
}
