// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `hub-preflight`, completions and the manual page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use daemon::cli::{self, Generated, ListArgs, Progress, Screen};
use daemon::config::parse_span;

use crate::finding::Verdict;
use crate::place::{Place, installed};
use crate::{checks, report};

const NAME: &str = "hub-preflight";

const ABOUT: &str = "\
Examples:
  hub-preflight                             check this node
  hub-preflight --watch 10m                 wait longer for events
  hub-preflight --report /tmp/preflight.json
  hub-preflight -p -o number,state

Nothing on the node or in the data centre is changed. What it checks are the beliefs of the ledger
(docs/contract/beliefs.md); the number of each stands in front of it.

Exit status: 0 no belief is false, 1 a belief is false, 2 wrong usage or configuration.";

/// Looks whether what the hub believes of this node is true.
#[derive(Debug, Parser)]
#[command(name = "hub-preflight", version = daemon::cli::version(), after_help = ABOUT,
    args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    args: Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Generated(Generated),
}

#[derive(Debug, clap::Args)]
struct Args {
    /// A configuration of a program of the node; may be given several times (default: those that are installed).
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// How long to wait for events.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_span)]
    watch: Duration,
    /// Write a report to this file: no name of a VM, no address and no metadata is in it.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    list: ListArgs,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(NAME, args, async |cli: Cli| {
        let done = match cli.command {
            Some(Command::Generated(asked)) => {
                asked.text::<Cli>().map(|text| cli::print(NAME, &text)).map_err(Into::into)
            }
            None => preflight(cli.args).await,
        };
        cli::ended(NAME, done)
    })
}

async fn preflight(args: Args) -> anyhow::Result<ExitCode> {
    let files = if args.config.is_empty() { installed() } else { args.config };
    let place = Place::read(&files)?;
    let findings = {
        let _shown = Progress::begin("checking the node");
        checks::all(&place, args.watch).await
    };
    if let Some(path) = &args.report {
        let text = format!("{:#}\n", report::report(&findings, &checks::platform(&place)));
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = report::table(&findings, &args.list.layout(), Screen::of_stdout())?;
    let printed = cli::print(NAME, &text);
    let is_false = findings.iter().any(|finding| finding.verdict == Verdict::Fails);
    Ok(if is_false { ExitCode::FAILURE } else { printed })
}
