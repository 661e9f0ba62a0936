// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated node from outside: its executables as real processes.

#![allow(clippy::disallowed_methods)] // these tests are about processes: they start and kill them

mod events;
mod loaded;
mod platform;
mod tools;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use simnode::Node;
use simnode::state::ZoneState;
use tempfile::TempDir;

use super::common::node;

const TESTBED: &str = env!("CARGO_BIN_EXE_testbed");

fn new_node(vms: u32) -> (TempDir, Node) {
    let dir = TempDir::new().unwrap();
    let node = node(dir.path(), vms);
    (dir, node)
}

fn run(program: impl AsRef<Path>, args: &[&str]) -> Output {
    Command::new(program.as_ref()).args(args).stdin(Stdio::null()).output().unwrap()
}

fn ok(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
    assert_eq!(stderr, "");
    String::from_utf8(output.stdout).unwrap()
}

fn fails(output: Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.trim_end().lines().count(), 1, "one line: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn vm(node: &Node, args: &[&str]) -> Output {
    let dir = node.dir().to_str().unwrap();
    run(TESTBED, &[&["vm", "--cn", dir], args].concat())
}

fn stopped(node: &Node) -> Vec<String> {
    let zones = node.zones().unwrap();
    zones.iter().filter(|z| z.state == ZoneState::Installed).map(|z| z.uuid.clone()).collect()
}
