// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: `start` (and `serve`, which fails if another copy runs), the clients
//! `ping status verdicts watch`, and `clear`, the admin tools' half of the marker's contract.
//!
//! An error is one line on stderr and an exit code: 2 for the command line and the configuration (96
//! under SMF), 1 for the rest (95 under SMF if another copy runs).

mod start; // start, serve, clear

mod clients; // ping, status, verdicts, watch

mod verdicts; // verdicts as sentences and lists

mod settings; // configuration files

mod args; // the grammar

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::cli;

use args::{Cli, Command, NAME};

/// Runs the program.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli: Cli = match cli::parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli::run(NAME, async {
        match cli.command.unwrap_or(Command::Serve(cli.serve)) {
            Command::Start { serve, background: true, log } => {
                cli::ended(NAME, start::background(&args, serve, log).await)
            }
            Command::Start { serve, .. } => start::run(serve, true).await,
            Command::Serve(serve) => start::run(serve, false).await,
            Command::Clear { name, file, control, run_dir } => {
                cli::ended(NAME, start::clear(&name, &file, control, run_dir))
            }
            Command::Generated(asked) => {
                cli::finish(NAME, asked.text::<Cli>().map_err(anyhow::Error::from))
            }
            command => clients::run(command).await,
        }
    })
}
