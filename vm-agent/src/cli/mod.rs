// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line. A failure is one line on stderr and an exit status: 2 for the command line and the
//! configuration (96 under SMF), 1 for the rest (95 under SMF if another copy runs).

// Blank lines keep the modules in layer order.

mod serve;

mod show;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::{self, Screen, UnknownColumn, valid_config};
use daemon::exit;

use self::args::{Cli, Files, NAME, Verb};
use crate::config::Config;

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if cli.files.check_config {
        return check(&cli.files);
    }
    let (files, screen) = (&cli.files, Screen::of_stdout());
    let done = match cli.verb.unwrap_or(Verb::Serve) {
        Verb::Serve => return serve::serve(files),
        Verb::Ping { json } => show::ping(files, json, screen),
        Verb::Status { list } => show::status(files, &list.layout(), screen),
        Verb::Plan { list, all } => show::plan(files, &list.layout(), all, screen),
        Verb::Why { vm } => show::why(files, &vm),
        Verb::Vm { vm, list } => show::vm(files, &vm, &list.layout(), screen),
        Verb::Approve { id } => show::approve(files, &id),
        Verb::Completions { shell } => Ok(cli::completions::<Cli>(shell)),
        Verb::Man { dir } => cli::man::<Cli>(dir.as_deref()).context("the manual pages"),
    };
    match done {
        Ok(text) => cli::print(NAME, &text),
        Err(err) => {
            let usage = err.is::<daemon::ConfigError>()
                || err.is::<show::Usage>()
                || err.is::<UnknownColumn>();
            exit::report(NAME, &*err, if usage { exit::USAGE } else { exit::FAILED })
        }
    }
}

fn check(files: &Files) -> ExitCode {
    match Config::load(&files.config, files.policy.as_deref()) {
        Ok(config) => valid_config(NAME, &config.unknown),
        Err(err) => exit::report(NAME, &err, exit::config_code()),
    }
}
