// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line. A failure is one line on stderr and an exit status: 2 for the command line and the configuration (96
//! under SMF), 1 for the rest (95 under SMF if another copy runs).

mod serve;

mod show;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::agent::{self, FileArgs};
use daemon::cli::{self, Screen, pages};

use self::args::{Cli, NAME, Verb};
use crate::config::Config;

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let (files, screen) = (&cli.files, Screen::of_stdout());
    if files.check_config {
        return agent::check(NAME, files, Config::read);
    }
    match cli.verb.unwrap_or(Verb::Serve) {
        Verb::Serve => serve::serve(files),
        verb => cli::run(NAME, async { cli::finish(NAME, answer(verb, files, screen).await) }),
    }
}

async fn answer(verb: Verb, files: &FileArgs, screen: Screen) -> anyhow::Result<String> {
    let base = || files.base(Config::read);
    Ok(match verb {
        Verb::Serve => String::new(),
        Verb::Ping { json } => pages::ping(NAME, &base()?, json, screen).await?,
        Verb::Status { list } => {
            let page = pages::page(NAME, &base()?, "status", "publishes").await?;
            pages::shown(&page, &list.layout(), screen, show::status_lines)?
        }
        Verb::Generated(asked) => asked.text::<Cli>().context("the manual pages")?,
    })
}
