// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

// Blank lines keep the modules in layer order.

mod serve;

mod plan;

mod show;

mod holds;

mod history;

mod output;

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
    const ABOUT: &'static str = "Keeps NAPI's NIC records in step with the node";
    const HELP: &'static str = args::HELP;
    const FILE: &'static str = DEFAULT_FILE;
    const STATUS: fn(&Value, Screen) -> String = show::status_lines;

    async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
        serve::serve(config, shutdown).await
    }

    async fn answer(self, target: Target<Self>, screen: Screen) -> anyhow::Result<String> {
        let config = match self {
            // Holds are placed beside a configuration that cannot be used, too: the running agent has an older one.
            Self::Hold { .. } | Self::Extend { .. } | Self::Release { .. } | Self::Holds { .. } => {
                target.usable_config()
            }
            _ => target.config()?,
        };
        Ok(match self {
            Self::Plan(args) => plan::plan(&config, &target.base()?, &args, screen).await?,
            Self::Reap { plan, .. } => {
                plan::rehearse(config, &target.base()?, &plan, screen).await?
            }
            Self::Nic { mac, list } => show::nic(config, &mac, &list.layout(), screen).await?,
            Self::Hold { vm, length, reason } => {
                holds::hold(&config, vm, length.as_deref(), reason).await?
            }
            Self::Extend { vm, length } => holds::extend(&config, vm, &length).await?,
            Self::Release { vm } => holds::release(&config, vm).await?,
            Self::Holds { list } => holds::holds(&config, &list, screen).await?,
            Self::History(args) => history::history(&config, args, screen).await?,
            Self::Decide(decision) => decision.send(&config.basics, "nics").await?,
        })
    }
}
