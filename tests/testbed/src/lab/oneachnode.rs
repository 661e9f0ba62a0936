// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! sdc-oneachnode, as a headnode has it: `-j -t SECONDS -T SECONDS -n NODE COMMAND`, with the nodes of a lab, which lie
//! beside each other. Its list of answers, its words for a node that is not found and its exit statuses are those of
//! the real one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

/// A node that is not found.
const MISSING: u8 = 10;

/// Runs it; the first argument is the directory of one of the nodes.
pub fn run(args: &[OsString]) -> ExitCode {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [lab, "-j", "-t", _, "-T", _, "-n", name, command] = words[..] else {
        eprintln!("sdc-oneachnode: in the lab, only -j -t SECONDS -T SECONDS -n NODE COMMAND");
        return ExitCode::from(daemon::exit::USAGE);
    };
    let Some((dir, node)) = found(Path::new(lab), name) else {
        println!("[]");
        eprintln!("ERROR: could not find all nodes\n\n  missing nodes:\n    {name}\n");
        return ExitCode::from(MISSING);
    };
    #[allow(clippy::disallowed_methods)] // It does nothing else.
    let mut bash = std::process::Command::new("/bin/bash");
    bash.args(["-c", command]).env_clear();
    bash.env("PATH", format!("{}/bin:/usr/bin:/bin", dir.display())).env("HOME", "/root");
    let done = match bash.output() {
        Ok(done) => done,
        Err(error) => {
            eprintln!("ERROR: {error}");
            return ExitCode::from(daemon::exit::FAILED);
        }
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let result = json!({"stdout": text(&done.stdout), "stderr": text(&done.stderr),
        "exit_status": done.status.code()});
    let of = |key: &str| node[key].clone();
    println!("{}", json!([{"uuid": of("cn_uuid"), "hostname": of("hostname"), "result": result}]));
    ExitCode::SUCCESS
}

/// Finds a node of the lab by its uuid or host name.
fn found(lab: &Path, name: &str) -> Option<(PathBuf, Value)> {
    let beside = std::fs::read_dir(lab.parent()?).ok()?;
    let node = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("node.json")).ok()?;
        let node: Value = serde_json::from_str(&text).ok()?;
        (node["cn_uuid"] == name || node["hostname"] == name).then_some((dir, node))
    };
    beside.filter_map(Result::ok).find_map(|it| node(it.path()))
}
