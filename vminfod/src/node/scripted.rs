// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! For tests: real processes that print what a script says.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use daemon::command::{Paths, Program, Spawned};
use tempfile::TempDir;

use super::Ctx;
use super::root::Root;

/// A node with nothing but this program.
pub(super) fn node(tool: Program, script: &str) -> (TempDir, Ctx) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(tool.name());
    executable(&program, &format!("#!/bin/sh\n{script}\n"));
    let commands = Spawned::new(Paths::default().with(tool, program));
    let ctx = Ctx::new(Root::new(dir.path()), Arc::new(commands));
    (dir, ctx)
}

/// Writes a program.
pub(crate) fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
