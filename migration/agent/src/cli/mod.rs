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
use daemon::cli::{Screen, control, names};
use serde_json::{Value, json};

use self::args::Verb;
use super::config::{Config, DEFAULT_FILE, Own};

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    agent::main::<Verb>(args)
}

impl Verbs for Verb {
    type Keys = Own;
    type Error = anyhow::Error;
    const ABOUT: &'static str = "Moves VMs to and from this node, as migration-service orders";
    const HELP: &'static str = args::HELP;
    const FILE: &'static str = DEFAULT_FILE;
    const STATUS: fn(&Value, Screen) -> String = show::status_lines;

    async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
        serve::serve(config, shutdown).await
    }

    async fn answer(self, target: Target<Self>, _screen: Screen) -> anyhow::Result<String> {
        let config = target.config()?;
        Ok(match self {
            Self::Boot => serve::boot(&config).await?,
            Self::Release { vm } => {
                let vm = names::vm(&config.vminfod, Self::NAME, &vm).await?.uuid;
                let socket = &config.basics.places.control_socket;
                control::ask(socket, "POST", "/release", Some(&json!({"vm": vm})), "vm").await?;
                format!("{vm} boots\n")
            }
        })
    }
}
