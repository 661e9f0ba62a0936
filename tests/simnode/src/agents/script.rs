// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs a program that is on the node, with the node's own commands first in its `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::error::NodeError;
use crate::node::Node;

/// The folder of the agents of a node.
pub const AGENTS: &str = "/opt/smartdc/agents";

/// Returns where a program of the node finds a place: its root is `HUB_ROOT`, empty where the node's root is the root of
/// this process.
pub(super) fn seen(node: &Node, place: &str) -> String {
    let root =
        std::env::var("HUB_ROOT").unwrap_or_else(|_| node.root().to_string_lossy().into_owned());
    format!("{root}{place}")
}

/// Returns what a program of the node printed, and how it ended.
#[allow(clippy::disallowed_methods)] // the node's executables have no runtime
pub(super) fn run(
    node: &Node,
    program: &Path,
    args: &[&str],
    within: &Path,
    env: &[(&str, String)],
) -> Result<Output, NodeError> {
    let path = format!("{}:/usr/bin:/bin", node.dir().join("platform").display());
    let mut command = Command::new(program);
    command.args(args).current_dir(within).env("PATH", path).env("HUB_ROOT", seen(node, ""));
    command.envs(env.iter().map(|(key, value)| (key, value)));
    command.output().map_err(|error| NodeError::io("run", program, error))
}

pub(super) fn make_executable(path: &Path) -> Result<(), NodeError> {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).map_err(|error| NodeError::io("chmod", path, error))
}
