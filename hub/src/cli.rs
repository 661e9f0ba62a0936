// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: the verbs, completions and the manual page.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use daemon::cli::{self, Generated};

use crate::name::NAME;
use crate::ours::Ours;
use crate::{check, node, ours, setup};

/// Check a node, set up what runs on it, and run the commands that come with it.
#[derive(Debug, Parser)]
#[command(name = "hub", version = daemon::cli::version())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Setup(setup::Args),
    Node(node::Args),
    #[command(flatten)]
    Ours(Ours),
    #[command(flatten)]
    Generated(Generated),
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    cli::main(NAME, args, async |cli: Cli| {
        let done = match cli.command {
            Command::Check(args) => check::run(args).await,
            Command::Setup(args) => setup::run(args).await,
            Command::Node(args) => node::run(args).await,
            Command::Ours(ours) => ours::run(&ours),
            Command::Generated(asked) => {
                asked.text::<Cli>().map(|text| cli::print(NAME, &text)).map_err(Into::into)
            }
        };
        cli::ended(NAME, done)
    })
}
