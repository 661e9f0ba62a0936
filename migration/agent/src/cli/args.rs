// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::{Parser, Subcommand};
use daemon::agent::FileArgs;
use daemon::cli::{Generated, ListArgs};

use crate::config::DEFAULT_FILE;

/// The name in messages and logs.
pub(super) const NAME: &str = "migration-agent";

const ABOUT: &str = "\
Examples:
  migration-agent status                        the open migrations of this node
  migration-agent release UUID                  boot a VM that waits for the service's word

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// Moves VMs to and from this node, as migration-service orders.
#[derive(Parser, Debug)]
#[command(name = "migration-agent", version = daemon::cli::version(), after_help = ABOUT)]
#[command(mut_arg("config", |arg| arg.default_value(DEFAULT_FILE)))]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub files: FileArgs,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run the daemon (the default).
    #[command(after_help = "\
Examples:
  migration-agent serve --config /opt/smartdc/agents/etc/migration-agent.config.json
  migration-agent serve --check-config --config FILE    check the file")]
    Serve,
    /// Before the zones boot: keep down what was replaced while the node was away.
    #[command(after_help = "\
Examples:
  migration-agent boot

The start method runs it. It asks the service about each VM with an open migration. A VM whose copy was replaced gets
autoboot=false and do_not_inventory=true. While the service does not answer, such a VM does not boot with its node: the
daemon boots it when the service says that it was not replaced. Other VMs are not touched.")]
    Boot,
    /// Boot a VM that waits for the service's word whether its copy was replaced.
    #[command(after_help = "\
Examples:
  migration-agent release 0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11

Only where you know that the VM does not run on another node. Needs root: it asks the running agent by its socket.")]
    Release {
        /// The VM's uuid.
        vm: uuid::Uuid,
    },
    /// Exit 0 if the daemon answers.
    #[command(after_help = "\
Examples:
  migration-agent ping
  until migration-agent ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show the open migrations, and what was refused (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  migration-agent status
  migration-agent status | json migrations
  migration-agent status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: ListArgs,
    },
    #[command(flatten)]
    Generated(Generated),
}
