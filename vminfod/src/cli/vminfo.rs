// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The shipped tool `vminfo`: its arguments and its output, byte for byte. Where the shipped tool
//! throws an exception, this prints one line and exits with 1.

mod status;

use sdc_clients::http::Call;

use super::supply::{FromDaemon, SupplyError};
use super::vmadm::events::{Printer, ReadyVms, Style};
use super::vmadm::lookup::json_text;
use super::vmadm::value::text_form;
use super::vmadm::{Printed, usage};

/// A parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// `ping`
    Ping,
    /// `status`
    Status {
        /// All details.
        full: bool,
        /// As JSON.
        json: bool,
    },
    /// `vms`
    Vms,
    /// `vm`
    Vm(String),
    /// `events`
    Events {
        /// Whole dates and zone names.
        full: bool,
        /// As JSON.
        json: bool,
        /// Print the first line too.
        ready: bool,
    },
}

/// Why the arguments are not a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// Help was requested.
    Help,
    /// What is wrong, before the usage text.
    Wrong(String),
    /// An unknown option.
    Option(String),
}

impl Misuse {
    /// The output for it.
    pub fn printed(self) -> Printed {
        let usage = usage::VMINFO;
        match self {
            Misuse::Help => Printed { stdout: usage.to_owned(), stderr: String::new(), code: 0 },
            Misuse::Wrong(text) => {
                Printed { stdout: format!("{text}\n\n{usage}"), stderr: String::new(), code: 1 }
            }
            Misuse::Option(name) => Printed {
                stdout: usage.to_owned(),
                stderr: format!("illegal option -- {name}\n"),
                code: 1,
            },
        }
    }
}

/// Parses the arguments after the program's name.
pub fn plan(args: &[String]) -> Result<Plan, Misuse> {
    let (asked, rest) = options(args, &[('h', "help")])?;
    if asked.contains(&'h') {
        return Err(Misuse::Help);
    }
    let Some((command, rest)) = rest.split_first() else {
        return Err(Misuse::Wrong("Command must be specified as the first argument".to_owned()));
    };
    match command.as_str() {
        "help" => Err(Misuse::Help),
        "ping" => Ok(Plan::Ping),
        "vms" => Ok(Plan::Vms),
        "vm" => match rest.first().filter(|name| !name.is_empty()) {
            Some(name) => Ok(Plan::Vm(name.clone())),
            None => Err(Misuse::Wrong("vm zonename must be specified".to_owned())),
        },
        "status" => {
            let (asked, _) = options(rest, &[('f', "full"), ('j', "json")])?;
            Ok(Plan::Status { full: asked.contains(&'f'), json: asked.contains(&'j') })
        }
        "events" => {
            let (asked, _) = options(rest, &[('f', "full"), ('j', "json"), ('r', "ready")])?;
            let has = |letter| asked.contains(&letter);
            Ok(Plan::Events { full: has('f'), json: has('j'), ready: has('r') })
        }
        other => Err(Misuse::Wrong(format!("Unknown command: {other}"))),
    }
}

/// The options before the first operand, as letters, and the rest.
fn options<'a>(
    args: &'a [String],
    known: &[(char, &str)],
) -> Result<(Vec<char>, &'a [String]), Misuse> {
    let mut asked = Vec::new();
    for (n, arg) in args.iter().enumerate() {
        let here = args.get(n..).unwrap_or_default();
        if arg == "--" {
            return Ok((asked, here.get(1..).unwrap_or_default()));
        }
        if let Some(long) = arg.strip_prefix("--") {
            let option = known.iter().find(|(_, name)| *name == long);
            asked.push(option.ok_or_else(|| Misuse::Option(long.to_owned()))?.0);
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for letter in letters.chars() {
                let option = known.iter().find(|(known, _)| *known == letter);
                asked.push(option.ok_or_else(|| Misuse::Option(letter.to_string()))?.0);
            }
        } else {
            return Ok((asked, here));
        }
    }
    Ok((asked, &[]))
}

/// The printer of `events`; `None` for other commands.
pub fn printer(plan: &Plan) -> Option<Printer> {
    match plan {
        Plan::Events { full, json, ready } => Some(Printer {
            style: Style::Shipped { full: *full },
            json: json.then_some(ReadyVms::Text),
            ready: *ready,
            only: None,
        }),
        _ => None,
    }
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
        Plan::Events { .. } => Err(SupplyError::Request("events have no end".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Plan, Misuse> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        plan(&args)
    }

    #[test]
    fn arguments() {
        let wrong = |text: &str| Err(Misuse::Wrong(text.to_owned()));
        for (line, meaning) in [
            ("ping -x", Ok(Plan::Ping)),
            ("vms extra", Ok(Plan::Vms)),
            ("vm a b", Ok(Plan::Vm("a".to_owned()))),
            ("vm", wrong("vm zonename must be specified")),
            ("", wrong("Command must be specified as the first argument")),
            ("foo", wrong("Unknown command: foo")),
            ("help", Err(Misuse::Help)),
            ("--help ping", Err(Misuse::Help)),
            ("-x ping", Err(Misuse::Option("x".to_owned()))),
            ("status --fulll", Err(Misuse::Option("fulll".to_owned()))),
            ("status -jf", Ok(Plan::Status { full: true, json: true })),
            ("status x -f", Ok(Plan::Status { full: false, json: false })),
            ("events -- -f", Ok(Plan::Events { full: false, json: false, ready: false })),
            ("events --ready -q", Err(Misuse::Option("q".to_owned()))),
        ] {
            assert_eq!(read(line), meaning, "{line}");
        }
        let printed = Misuse::Option("x".to_owned()).printed();
        assert_eq!((printed.code, printed.stderr.as_str()), (1, "illegal option -- x\n"));
        assert!(printed.stdout.starts_with("Usage: vminfo [command] [args]\n"));
    }
}
