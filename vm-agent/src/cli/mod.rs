// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

// Blank lines keep the modules in layer order.

mod serve;

mod show;

mod args;

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::Shutdown;
use daemon::agent::{self, ServeError, Target, Verbs};
use daemon::cli::Screen;
use serde_json::Value;

use self::args::Verb;
use crate::config::{Config, DEFAULT_FILE, Own};

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    agent::main::<Verb>(args)
}

impl Verbs for Verb {
    type Keys = Own;
    type Error = anyhow::Error;
    const ABOUT: &'static str = "Keeps VMAPI's VM records in step with the node";
    const HELP: &'static str = args::HELP;
    const FILE: &'static str = DEFAULT_FILE;
    const STATUS: fn(&Value, Screen) -> String = show::status_lines;

    async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
        serve::serve(config, shutdown).await
    }

    async fn answer(self, target: Target<Self>, screen: Screen) -> anyhow::Result<String> {
        let config = target.config()?;
        Ok(match self {
            Self::Plan { list, all } => {
                show::plan(&config, &target.base()?, &list, all, screen).await?
            }
            Self::Why { vm, list } => {
                show::why(&config, &target.base()?, &vm, &list.layout(), screen).await?
            }
            Self::Vm { vm, list } => show::vm(&config, &vm, &list.layout(), screen).await?,
            Self::Decide(decision) => decision.send(&config.basics, "vms").await?,
        })
    }
}
