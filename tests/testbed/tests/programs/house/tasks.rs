// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Tasks: a program knows all of its tasks, so that it can wait for them at its end.

use super::source::{self, Kind};

/// The one task that nothing waits for: it waits for the signals that end the program.
const ALLOWED: &str = "daemon/src/tasks.rs";

#[test]
fn no_task_of_a_program_runs_untracked() {
    let root = source::root();
    let mut faults = Vec::new();
    for path in source::files(&root, ".", "rs") {
        let is_test = path.starts_with("tests/") || path.contains("/tests");
        if is_test || path == ALLOWED {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let parts = source::parts(code).into_iter().filter(|part| part.kind == Kind::Code);
        let bare = parts.filter(|part| {
            ["tokio::spawn(", "task::spawn("].iter().any(|name| part.text.contains(name))
        });
        faults.extend(bare.map(|part| format!("{path}:{}", part.line)));
    }
    assert!(
        faults.is_empty(),
        "use daemon::Tasks or a JoinSet, which can be drained:\n{}",
        faults.join("\n")
    );
}
