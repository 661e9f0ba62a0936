// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

// Blank lines keep the modules in layer order.

mod serve;

mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use daemon::Shutdown;
use daemon::agent::{self, ServeError, Target, Verbs};
use daemon::cli::Screen;
use serde_json::Value;

use crate::config::{Config, DEFAULT_FILE, Own};

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    agent::main::<Verb>(args)
}

/// The agent has no verbs besides those of all agents.
#[derive(Debug, Subcommand)]
enum Verb {}

impl Verbs for Verb {
    type Keys = Own;
    type Error = anyhow::Error;
    const ABOUT: &'static str =
        "Publishes this node's VMs and state to the feed of the data centre";
    const HELP: &'static str = "\
Examples:
  fleet-agent status                            what it publishes, and what it is waiting for
  fleet-agent status | json waiting_for
  fleet-agent --check-config                    check the configuration";
    const FILE: &'static str = DEFAULT_FILE;
    const STATUS: fn(&Value, Screen) -> String = show::status_lines;

    async fn serve(config: Config, shutdown: Shutdown) -> Result<(), ServeError> {
        serve::serve(config, shutdown).await
    }

    async fn answer(self, _target: Target<Self>, _screen: Screen) -> anyhow::Result<String> {
        match self {}
    }
}
