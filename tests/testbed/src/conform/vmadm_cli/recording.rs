// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lines of the recording: what was run, on what, and what came out.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::Value;
use vminfod::cli::vmadm::Printed;

use crate::conform::deviations::Judged;

/// A recorded run that our command line answers otherwise on purpose: its arguments, why, and what holds
/// nevertheless.
type Deviation = (&'static str, &'static str, fn(&Case, &Printed) -> bool);

/// The list. A run in it that does not deviate is a failure.
const ON_PURPOSE: [Deviation; 5] = [
    (
        "list -H -o alias,type,state,nics.0.ip,nics.1.ips -s -alias,nics.0.ip",
        "ties sort by uuid",
        Case::has_the_lines_of,
    ),
    (
        "list -p -o uuid,brand,type,ram,autoboot,zoneid,quota,nics.0.ip,nics.0.ips,tags.role -s -quota,uuid",
        "zero is a number; the shipped comparison puts it before or after others as it comes",
        Case::has_the_lines_of,
    ),
    ("list -s zoneid", "ties sort by uuid: the key is not shown", Case::has_the_lines_of),
    ("list -o uuid,zoneid,zone_state -s zoneid", "ties sort by uuid", Case::has_the_lines_of),
    (
        "list -x state=running --no-header --ord=uuid",
        "an unknown option is refused, not ignored together with the argument after it",
        |_, printed| printed.code == 2 && printed.stderr.starts_with("unexpected argument '-x'"),
    ),
];

/// What the run saw.
#[derive(Debug)]
pub enum Vms {
    /// The objects of a recorded node.
    Node(String),
    Objects(Value),
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

    /// Compares an outcome with the recorded one.
    pub fn judge(&self, (printed, ended): (Printed, bool)) -> Judged {
        let args = self.args.get(1..).unwrap_or_default().join(" ");
        let reason = ON_PURPOSE.iter().find(|(of, ..)| *of == args);
        match (self.fault(&printed, ended), reason) {
            (None, None) => Judged::Equal,
            (None, Some((_, why, _))) => Judged::Differs(format!("it deviates no more: {why}")),
            (Some(_), Some((_, why, holds))) if holds(self, &printed) => Judged::OnPurpose(why),
            (Some(fault), _) => Judged::Differs(fault),
        }
    }

    /// Returns true if the recorded lines were printed, in whatever order, and nothing else.
    fn has_the_lines_of(&self, printed: &Printed) -> bool {
        let lines = |text: &str| -> Vec<String> {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        lines(&self.stdout) == lines(&printed.stdout)
            && (&self.stderr, self.exit) == (&printed.stderr, Some(printed.code))
    }

    /// What is wrong with an outcome, in one line.
    fn fault(&self, printed: &Printed, ended: bool) -> Option<String> {
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
