// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `--version` says. The build that makes packages sets `BUILD_COMMIT` and `BUILD_DATE`, the date of that
//! commit: two builds of one commit are the same, and none needs git.

use std::sync::LazyLock;

static VERSION: LazyLock<String> = LazyLock::new(|| {
    text(env!("CARGO_PKG_VERSION"), option_env!("BUILD_COMMIT"), option_env!("BUILD_DATE"))
});

/// Returns the version, with the commit and its date where the build was told them.
pub fn version() -> &'static str {
    &VERSION
}

/// Returns the commit of this build, if the build was told it.
pub fn commit() -> Option<&'static str> {
    option_env!("BUILD_COMMIT")
}

/// Returns the parts by name, as metrics have them; what the build was not told is empty.
pub fn labels() -> Vec<(&'static str, &'static str)> {
    let date = option_env!("BUILD_DATE").unwrap_or_default();
    vec![
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", commit().unwrap_or_default()),
        ("date", date),
    ]
}

fn text(version: &str, commit: Option<&str>, date: Option<&str>) -> String {
    match (commit, date) {
        (Some(commit), Some(date)) => format!("{version} (commit {commit}, {date})"),
        (Some(commit), None) => format!("{version} (commit {commit})"),
        _ => format!("{version} (built without a commit)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_commit_where_the_build_was_told() {
        assert_eq!(
            text("1.2.3", Some("a1b2c3"), Some("2026-05-31")),
            "1.2.3 (commit a1b2c3, 2026-05-31)"
        );
        assert_eq!(text("1.2.3", Some("a1b2c3"), None), "1.2.3 (commit a1b2c3)");
        assert_eq!(text("1.2.3", None, Some("x")), "1.2.3 (built without a commit)");
    }
}
