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
use std::io;
use std::process::ExitCode;

use daemon::cli::{self, screen};
use daemon::exit;

use args::{Cli, Command, NAME};

/// Runs the program.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli: Cli = match cli::parse(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let command = match cli.command {
        Command::Completions { shell } => return written(Ok(cli::completions::<Cli>(shell))),
        Command::Man { dir } => return written(cli::man::<Cli>(dir.as_deref())),
        Command::Clear { name, file, control, run_dir } => {
            return start::clear(&name, &file, control, run_dir);
        }
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(NAME, &error, exit::FAILED),
    };
    let code = match command {
        Command::Start { serve, background: true, log } => {
            runtime.block_on(start::background(&args, serve, log))
        }
        Command::Start { serve, .. } => runtime.block_on(start::run(serve, true)),
        Command::Serve(serve) => runtime.block_on(start::run(serve, false)),
        command => runtime.block_on(clients::run(command)),
    };
    // A file system that does not answer must not delay the end of the program.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    code
}

/// Writes a command's output; a reader that went away is no failure.
fn written(text: io::Result<String>) -> ExitCode {
    match text.and_then(|text| screen::write(&text)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            exit::report(NAME, &error, exit::FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
