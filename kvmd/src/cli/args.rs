// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{Generated, NamedListArgs};

use crate::verdict::Rule;

const ABOUT: &str = "\
Examples:
  kvmd start                         run, unless it runs already or is not needed
  kvmd start --background            the same, and return when it serves
  kvmd serve --config /etc/kvmd.toml
  kvmd status                        the daemon and the watched instances
  kvmd verdicts                      who turned off which instance
  kvmd watch                         verdicts as they come
  kvmd clear web01                   before an instance is started or stopped by an admin tool

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`start` and `serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// The name in messages and logs.
pub(super) const NAME: &str = "kvmd";

/// Tells who turned a VM off.
#[derive(Debug, Parser)]
#[command(name = "kvmd", version = daemon::cli::version(), args_conflicts_with_subcommands = true, after_help = ABOUT)]
pub struct Cli {
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon; running already or not being needed is a success.
    #[command(after_help = "\
Examples:
  kvmd start
  kvmd start --background --log /var/log/kvmd.log")]
    Start {
        #[command(flatten)]
        serve: ServeArgs,
        /// Return once it serves; it runs on in the background.
        #[arg(long)]
        background: bool,
        /// With --background: append its log there.
        #[arg(long, value_name = "FILE", requires = "background")]
        log: Option<PathBuf>,
    },
    /// Run the daemon; a second one is an error.
    #[command(after_help = "\
Examples:
  kvmd serve
  kvmd serve --check-config --config FILE    is the file good?")]
    Serve(ServeArgs),
    /// Check that it is up: exit 0 if it answers.
    Ping {
        #[command(flatten)]
        reach: ReachArgs,
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show the watched instances and the last verdicts: for people on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  kvmd status
  kvmd status | json counts
  kvmd status -H -o name,state -s state

With -H, -p, -o or -s: one row for each instance (columns: name, state, qemu, since, reachable,
pid, generation).")]
    Status {
        #[command(flatten)]
        reach: ReachArgs,
        #[command(flatten)]
        list: NamedListArgs,
    },
    /// Show the recent verdicts, the oldest first.
    #[command(after_help = "\
Examples:
  kvmd verdicts
  kvmd verdicts web01
  kvmd verdicts -p -o name,user,kind
  kvmd verdicts -s confidence,name

Columns: ago, name, initiator, kind, user, evidence; with -o also confidence, rule, marker, source,
generation, date.")]
    Verdicts {
        /// Only this instance: its name; of a zone also a unique beginning of it, or the VM's alias.
        name: Option<String>,
        #[command(flatten)]
        reach: ReachArgs,
        #[command(flatten)]
        list: NamedListArgs,
    },
    /// Print verdicts as they come, one per line; waits while the daemon is off.
    #[command(after_help = "\
Examples:
  kvmd watch
  kvmd watch -p -o name,user
  kvmd watch -j | json -ga name initiator kind")]
    Watch {
        #[command(flatten)]
        reach: ReachArgs,
        /// Parsable: colons between values; `:` and `\\` in values get a `\\`.
        #[arg(short = 'p')]
        parsable: bool,
        /// Columns of `verdicts`, separated by commas.
        #[arg(short = 'o', value_name = "COLUMN,...")]
        columns: Option<String>,
        /// UUIDs in full, where a terminal has aliases.
        #[arg(short = 'l', long)]
        long: bool,
        /// The events themselves, one JSON object per line.
        #[arg(short = 'j', long, conflicts_with_all = ["parsable", "columns"])]
        json: bool,
    },
    /// Remove an instance's marker, as admin tools must at start, stop, cleanup and the end of a
    /// migration; safe while the daemon writes one.
    #[command(after_help = "\
Examples:
  kvmd clear web01

After it nothing tells that its user wanted it off: whoever restarts instances starts it again.")]
    Clear {
        /// The instance: its socket's name without the extension.
        name: String,
        #[command(flatten)]
        file: ConfigFile,
        /// The control directory, in place of the configured one.
        #[arg(long, value_name = "DIR")]
        control: Option<PathBuf>,
        /// The run directory, in place of the configured one.
        #[arg(long, value_name = "DIR")]
        run_dir: Option<PathBuf>,
    },
    #[command(flatten)]
    Generated(Generated),
}

/// The daemon's configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigFile {
    /// Configuration file, JSON or TOML (default: $KVMD_CONFIG, else
    /// /opt/smartdc/agents/etc/kvmd.config.json if it is there).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Where the daemon is.
#[derive(Debug, Args)]
pub struct ReachArgs {
    /// Where kvmd serves (default: $KVMD_URL, else what the configuration says, else
    /// http://127.0.0.1:5312).
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    #[command(flatten)]
    pub file: ConfigFile,
}

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub file: ConfigFile,
    /// Run although the configuration does not say `enabled`.
    #[arg(long)]
    pub enable: bool,
    /// Address to serve on.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Rule for markers: reason (ours) or ganeti (as shipped).
    #[arg(long, value_name = "RULE")]
    pub rule: Option<Rule>,
    /// The directory of the monitors' sockets.
    #[arg(long, value_name = "DIR")]
    pub control: Option<PathBuf>,
    /// Directory for the lock and the saved state.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Directory to take as the node's root, for zones' paths.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Check the configuration and end.
    #[arg(long)]
    pub check_config: bool,
}
