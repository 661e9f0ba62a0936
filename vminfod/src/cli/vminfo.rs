// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The shipped tool `vminfo`: its arguments and its output, byte for byte. Where the shipped tool
//! throws an exception, this prints one line and exits with 1.

mod status;

use sdc_clients::http::Call;

use super::supply::{FromDaemon, SupplyError};
use super::vmadm::Printed;
use super::vmadm::events::{Printer, Program};
use super::vmadm::lookup::json_text;
use super::vmadm::usage::VMINFO as USAGE;
use super::vmadm::value::text_form;

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// `ping`
    Ping,
    /// `status`
    Status { full: bool, json: bool },
    /// `vms`
    Vms,
    /// `vm`
    Vm(String),
    /// `events`
    Events(Printer),
}

fn help() -> Printed {
    Printed { stdout: USAGE.to_owned(), ..Printed::default() }
}

/// What is wrong with the arguments, and the usage text.
fn wrong(what: &str) -> Printed {
    Printed { stdout: format!("{what}\n\n{USAGE}"), code: 1, ..Printed::default() }
}

/// An unknown option.
fn illegal(option: &str) -> Printed {
    let stderr = format!("illegal option -- {option}\n");
    Printed { stdout: USAGE.to_owned(), stderr, code: 1 }
}

/// Parses the arguments after the program's name.
pub fn plan(args: &[String]) -> Result<Plan, Printed> {
    let (asked, rest) = options(args, &[('h', "help")])?;
    if asked.contains(&'h') {
        return Err(help());
    }
    let Some((command, rest)) = rest.split_first() else {
        return Err(wrong("Command must be specified as the first argument"));
    };
    match command.as_str() {
        "help" => Err(help()),
        "ping" => Ok(Plan::Ping),
        "vms" => Ok(Plan::Vms),
        "vm" => match rest.first().filter(|name| !name.is_empty()) {
            Some(name) => Ok(Plan::Vm(name.clone())),
            None => Err(wrong("vm zonename must be specified")),
        },
        "status" => {
            let (asked, _) = options(rest, &[('f', "full"), ('j', "json")])?;
            Ok(Plan::Status { full: asked.contains(&'f'), json: asked.contains(&'j') })
        }
        "events" => {
            let (asked, _) = options(rest, &[('f', "full"), ('j', "json"), ('r', "ready")])?;
            let has = |letter| asked.contains(&letter);
            Ok(Plan::Events(Printer {
                tool: Program::Vminfo,
                full: has('f'),
                json: has('j'),
                ready: has('r'),
                only: None,
            }))
        }
        other => Err(wrong(&format!("Unknown command: {other}"))),
    }
}

/// The options before the first operand, as letters, and the rest.
fn options<'a>(
    args: &'a [String],
    known: &[(char, &str)],
) -> Result<(Vec<char>, &'a [String]), Printed> {
    let mut asked = Vec::new();
    for (n, arg) in args.iter().enumerate() {
        let here = args.get(n..).unwrap_or_default();
        if arg == "--" {
            return Ok((asked, here.get(1..).unwrap_or_default()));
        }
        if let Some(long) = arg.strip_prefix("--") {
            let option = known.iter().find(|(_, name)| *name == long);
            asked.push(option.ok_or_else(|| illegal(long))?.0);
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for letter in letters.chars() {
                let option = known.iter().find(|(known, _)| *known == letter);
                asked.push(option.ok_or_else(|| illegal(&letter.to_string()))?.0);
            }
        } else {
            return Ok((asked, here));
        }
    }
    Ok((asked, &[]))
}

/// Runs any command but `events`.
pub async fn run(plan: &Plan, daemon: &FromDaemon) -> Result<String, SupplyError> {
    match plan {
        Plan::Ping => {
            let value = daemon.get(Call::get(&["ping"])).await?;
            let pong = value.get("ping").and_then(text_form);
            Ok(pong.unwrap_or_else(|| "undefined".to_owned()) + "\n")
        }
        Plan::Status { full, json } => {
            let call = Call::get(&["status"]);
            let call = if *full { call.query("full", "true") } else { call };
            let value = daemon.get(call).await?;
            Ok(if *json { json_text(&value) } else { status::lines(&value) })
        }
        Plan::Vms => Ok(json_text(&daemon.get(Call::get(&["vms"])).await?)),
        Plan::Vm(name) => Ok(json_text(&daemon.get(Call::get(&["vms", name])).await?)),
        Plan::Events(_) => Err(SupplyError::Request("events have no end".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Plan, Printed> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        plan(&args)
    }

    #[test]
    fn arguments() {
        let (tool, full, json, ready) = (Program::Vminfo, false, false, false);
        let plain = Plan::Events(Printer { tool, full, json, ready, only: None });
        for (line, meaning) in [
            ("ping -x", Ok(Plan::Ping)),
            ("vms extra", Ok(Plan::Vms)),
            ("vm a b", Ok(Plan::Vm("a".to_owned()))),
            ("vm", Err(wrong("vm zonename must be specified"))),
            ("", Err(wrong("Command must be specified as the first argument"))),
            ("foo", Err(wrong("Unknown command: foo"))),
            ("help", Err(help())),
            ("--help ping", Err(help())),
            ("-x ping", Err(illegal("x"))),
            ("status --fulll", Err(illegal("fulll"))),
            ("status -jf", Ok(Plan::Status { full: true, json: true })),
            ("status x -f", Ok(Plan::Status { full: false, json: false })),
            ("events -- -f", Ok(plain)),
            ("events --ready -q", Err(illegal("q"))),
        ] {
            assert_eq!(read(line), meaning, "{line}");
        }
        let printed = illegal("x");
        assert_eq!((printed.code, printed.stderr.as_str()), (1, "illegal option -- x\n"));
        assert!(printed.stdout.starts_with("Usage: vminfo [command] [args]\n"));
    }
}
