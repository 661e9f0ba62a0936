// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::{Parser, Subcommand};
use daemon::agent::FileArgs;
use daemon::cli::{Generated, ListArgs};

use crate::config::DEFAULT_FILE;

/// The name in messages and logs.
pub(super) const NAME: &str = "volapi";

const ABOUT: &str = "\
Examples:
  volapi status                              what it has done and what it is waiting for
  volapi import --from http://volapi.dc      take over the records of the deployed service

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// Shared volumes: the service of RFD 26.
#[derive(Parser, Debug)]
#[command(name = "volapi", version = daemon::cli::version(), after_help = ABOUT)]
#[command(mut_arg("config", |arg| arg.default_value(DEFAULT_FILE)))]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub files: FileArgs,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run the service (the default).
    #[command(after_help = "\
Examples:
  volapi serve --config /opt/smartdc/volapi/etc/volapi.json
  volapi serve --check-config --config FILE    check the file")]
    Serve,
    /// Exit 0 if the service answers.
    #[command(after_help = "\
Examples:
  volapi ping
  until volapi ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it has done and what it is waiting for (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  volapi status
  volapi status | json waiting_for
  volapi status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Take over volumes and reservations from a running sdc-volapi; may be repeated.
    #[command(after_help = "\
Examples:
  volapi import --from http://volapi.dc.example.com

Prints one line for each record that was new, that differed, or that is only here. With the embedded store
the service must be stopped meanwhile.")]
    Import {
        /// The base URL of the deployed service.
        #[arg(long, value_name = "URL")]
        from: String,
    },
    #[command(flatten)]
    Generated(Generated),
}
