// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::{Parser, Subcommand};
use daemon::agent::FileArgs;
use daemon::cli::{Generated, ListArgs};

use crate::config::DEFAULT_FILE;

/// The name in messages and logs.
pub(super) const NAME: &str = "fleet-agent";

const ABOUT: &str = "\
Examples:
  fleet-agent status                            what it publishes, and what it is waiting for
  fleet-agent status | json waiting_for
  fleet-agent --check-config                    check the configuration

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// Publishes this node's VMs and state to the feed of the data centre.
#[derive(Parser, Debug)]
#[command(name = "fleet-agent", version = daemon::cli::version(), after_help = ABOUT)]
#[command(args_override_self = true)]
#[command(mut_arg("config", |arg| arg.default_value(DEFAULT_FILE)))]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub files: FileArgs,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run the daemon.
    #[command(after_help = "\
Examples:
  fleet-agent serve --config /opt/smartdc/agents/etc/fleet-agent.config.json
  fleet-agent serve --check-config --config FILE    check the file")]
    Serve,
    /// Exit 0 if the daemon answers.
    #[command(after_help = "\
Examples:
  fleet-agent ping
  until fleet-agent ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it publishes and what it is waiting for (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  fleet-agent status
  fleet-agent status | json waiting_for
  fleet-agent status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: ListArgs,
    },
    #[command(flatten)]
    Generated(Generated),
}
