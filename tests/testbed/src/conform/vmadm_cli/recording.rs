// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lines of the recording: what was run, on what, and what came out.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::Value;
use vminfod::cli::vmadm::Printed;

/// What the run saw.
#[derive(Debug)]
pub enum Vms {
    /// The objects of a recorded node.
    Node(String),
    /// These objects.
    Objects(Value),
    /// Nothing listened.
    Down,
}

/// One run.
#[derive(Debug)]
pub struct Case {
    pub args: Vec<String>,
    pub vms: Vms,
    /// The body of `/status`.
    pub status: Option<Value>,
    /// `date` and `uuid` of the first line of events.
    pub ready: Option<Value>,
    /// The lines after it.
    pub events: Vec<String>,
    pub stdout: String,
    pub stderr: String,
    /// `None`: it ran until it was ended.
    pub exit: Option<u8>,
}

impl Case {
    /// Whether the daemon's part of the run can only come from the recording.
    pub fn needs_the_recording(&self) -> bool {
        self.status.is_some() || self.ready.is_some()
    }

    /// Whether the command reads the node itself when there is no daemon.
    pub fn can_do_without_a_daemon(&self) -> bool {
        let [program, command, ..] = self.args.as_slice() else { return false };
        program == "vmadm" && matches!(command.as_str(), "list" | "lookup" | "get" | "json")
    }

    /// What is wrong with an outcome, in one line.
    pub fn fault(&self, (printed, ended): (Printed, bool)) -> Option<String> {
        let differs = |what: &str, expected: &str, got: &str| {
            (expected != got).then(|| format!("{what}: {}", first_difference(expected, got)))
        };
        let exit = if ended { Some(printed.code) } else { None };
        differs("stdout", &self.stdout, &printed.stdout)
            .or_else(|| differs("stderr", &self.stderr, &printed.stderr))
            .or_else(|| {
                let differs = exit != self.exit;
                differs.then(|| format!("exit: expected {:?}, got {exit:?}", self.exit))
            })
    }
}

/// The first line in which two texts differ.
fn first_difference(expected: &str, got: &str) -> String {
    let (mut expected, mut got, mut number) = (expected.split('\n'), got.split('\n'), 1);
    loop {
        match (expected.next(), got.next()) {
            (Some(a), Some(b)) if a == b => number += 1,
            (a, b) => {
                let (a, b) = (a.unwrap_or("(nothing)"), b.unwrap_or("(nothing)"));
                // Lines can be very long: from where they part, and a little before.
                let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
                let part = |line: &str| -> String {
                    line.chars().skip(same.saturating_sub(30)).take(120).collect()
                };
                let (a, b) = (part(a), part(b));
                return format!("line {number}, column {}: expected {a:?}, got {b:?}", same + 1);
            }
        }
    }
}

/// Reads a recording.
pub fn read(file: &Path) -> anyhow::Result<Vec<Case>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let cases = lines.map(|(n, line)| {
        // With the daemon's own parser: it keeps every digit of a number.
        let value = vm_model::js::parse(line.as_bytes())?;
        case(&value).with_context(|| format!("line {}", n + 1))
    });
    cases.collect()
}

fn case(value: &Value) -> anyhow::Result<Case> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let texts = |key: &str| -> Vec<String> {
        let items = value[key].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let vms = match &value["vms"] {
        _ if value["down"] == true => Vms::Down,
        Value::String(name) => Vms::Node(name.clone()),
        objects @ Value::Array(_) => Vms::Objects(objects.clone()),
        _ => return Err(anyhow!("expected vms or down")),
    };
    let exit = match &value["exit"] {
        Value::Null => None,
        code => {
            let code = code.as_u64().and_then(|code| u8::try_from(code).ok());
            Some(code.context("expected an exit status")?)
        }
    };
    Ok(Case {
        args: texts("args"),
        vms,
        status: value.get("status").cloned(),
        ready: value.get("ready").cloned(),
        events: texts("events"),
        stdout: text("stdout"),
        stderr: text("stderr"),
        exit,
    })
}
