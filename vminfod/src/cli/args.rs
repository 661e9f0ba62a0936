// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The arguments of the command line and their help texts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{self, Generated};

use super::vmadm::options::{GetOptions, ListOptions, LookupOptions};

/// Program name in messages and logs.
pub const NAME: &str = "vminfod";

const ABOUT: &str = "\
Examples:
  vminfod serve --config vminfod.json        run the daemon
  vminfod status                             the state of the daemon
  vminfod list -o uuid,alias,state -s alias  VMs, as vmadm lists them
  vminfod events                             every change when it happens
  vminfod why UUID quota                     the source of a value
  vminfod check                              can this node be read

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 96).
Colours only on a terminal, and never with NO_COLOR.";

/// The node's single consumer of sysevents and cache of VM objects.
#[derive(Debug, Parser)]
#[command(name = "vminfod", version = daemon::cli::version(), args_conflicts_with_subcommands = true, after_help = ABOUT)]
pub struct Cli {
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon.
    #[command(after_help = "\
Examples:
  vminfod                                     the node itself, port 9090
  vminfod serve --config vminfod.json
  vminfod serve --console                     and a web page at http://127.0.0.1:5310/
  vminfod serve --check-config --config FILE  is the file valid?")]
    Serve(ServeArgs),
    /// Check whether the daemon is up: exit 0 if it answers.
    Ping(PlainArgs),
    /// Show the state of the daemon.
    #[command(after_help = "\
Examples:
  vminfod status
  vminfod status -f          with the last refreshes and the watched files
  vminfod status -p -o field,value
  vminfod status | json numVms lastRefresh")]
    Status(StatusArgs),
    /// Show all VMs: a table on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  vminfod vms
  vminfod vms state=running 'alias=~^web' tags.role=db
  vminfod vms -o uuid,brand,quota -s -quota
  vminfod vms -p -o uuid,nics.0.ip
  vminfod vms --sync | json -ag uuid state alias")]
    Vms(VmsArgs),
    /// Show one VM: a table on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  vminfod vm UUID
  vminfod vm UUID --sync       read from the node after the request
  vminfod vm UUID | json alias quota max_physical_memory")]
    Vm(VmArgs),
    /// Print each change as one line.
    #[command(after_help = "\
Examples:
  vminfod events
    [2026-05-31T16:34:39.145Z] 5595d88c-6e4d-4bda-b58e-97dd02e32bec modify: quota changed :: 20 -> 10
  vminfod events -s            times and the first part of UUIDs only
  vminfod events -j UUID       one VM's, as JSON
  vminfod events -r            with the first line, after which no event is missed

It reconnects when the daemon is restarted, and prints on stderr whether events were missed.")]
    Events(EventsArgs),
    /// List VMs exactly as `vmadm list` does.
    #[command(after_help = LIST, disable_help_flag = true, infer_long_args = true, args_override_self = true)]
    List(ListArgs),
    /// Find VMs exactly as `vmadm lookup` does.
    #[command(after_help = LOOKUP, infer_long_args = true, args_override_self = true)]
    Lookup(LookupArgs),
    /// Print one VM exactly as `vmadm get` does.
    #[command(after_help = GET, infer_long_args = true, args_override_self = true)]
    Get(GetArgs),
    /// Show which source a field comes from, when it was last read, and whether it is stale.
    #[command(after_help = "\
Examples:
  vminfod why UUID             all fields
  vminfod why UUID quota       one field
  vminfod why UUID disks.0.size
  vminfod why UUID -s source,field

When the daemon is off the sources are shown, but not when they were read.")]
    Why(WhyArgs),
    /// Check that every source can be read on this node, and that its events arrive.
    #[command(after_help = "\
Examples:
  vminfod check
  vminfod check --passive      change nothing: wait for a ZFS event of another program
  vminfod check -p -o name,state

To test ZFS history events, it sets and removes a user property of a pool (vminfod:check).
Exit status 1 if a check failed.")]
    Check(CheckArgs),
    #[command(flatten)]
    Generated(Generated),
}

const LIST: &str = "\
Options and operands are vmadm's, and a few of our own.

Examples:
  vminfod list
  vminfod list -p -o uuid,alias state=running
  vminfod list -H -o alias,quota -s -quota 'alias=~^web'
  vminfod list 'nics.*.ip=10.0.0.5'
  vminfod list --direct        from the node, even if the daemon runs

If the daemon is off, the node itself is read. If it is starting, the command waits up to 60 s.";

const LOOKUP: &str = "\
Examples:
  vminfod lookup brand=lx state=running
  vminfod lookup -1 alias=web0
  vminfod lookup -j -o uuid,nics tags.role=web";

const GET: &str = "\
Examples:
  vminfod get UUID
  vminfod get UUID | json nics.0.ip
  vminfod get --direct UUID";

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file, JSON or TOML (default: $VMINFOD_CONFIG, else
    /// /opt/smartdc/agents/etc/vminfod.config.json if it exists).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory to use as the node's root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Serve on this address alone, in place of all that the configuration names (no socket, no metrics for other
    /// nodes): so it runs beside the daemon in place.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Also serve the web page from this process (see console(8)), at ADDRESS (127.0.0.1:5310).
    #[arg(long, value_name = "ADDRESS", require_equals = true)]
    pub console: Option<Option<SocketAddr>>,
    /// Check the configuration and end.
    #[arg(long)]
    pub check_config: bool,
}

/// Where the daemon and the node are.
#[derive(Debug, Clone, Default, Args)]
pub struct ReachArgs {
    /// Where vminfod serves (default: $VMINFOD_URL, else `listen` of the configuration, else
    /// http://127.0.0.1:9090).
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The daemon's configuration (default: $VMINFOD_CONFIG, else
    /// /opt/smartdc/agents/etc/vminfod.config.json if it exists).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PlainArgs {
    #[command(flatten)]
    pub reach: ReachArgs,
    /// JSON, also on a terminal.
    #[arg(short = 'j', long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: cli::ListArgs,
    /// Include the refresh log and the watched files.
    #[arg(short, long)]
    pub full: bool,
}

#[derive(Debug, Args)]
pub struct VmsArgs {
    /// Only VMs with this value; FIELD=~REGEXP matches a part, as in `list`.
    #[arg(value_name = "FIELD=VALUE")]
    pub filters: Vec<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: cli::ListArgs,
    /// Read the node again first.
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
pub struct VmArgs {
    /// The VM: its uuid, a unique beginning of it, its alias, or its zone's name.
    pub name: String,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: cli::ListArgs,
    /// Read the VM again first.
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only events of this VM: its uuid, a unique beginning of it, or its alias.
    pub uuid: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Times and the first part of UUIDs only.
    #[arg(short, long)]
    pub short: bool,
    /// Dates and whole UUIDs (the default; accepted because vminfo has the flag).
    #[arg(short, long, conflicts_with = "short")]
    pub full: bool,
    /// Print the events as JSON, one object per line.
    #[arg(short = 'j', long)]
    pub json: bool,
    /// Print the first line of the stream too.
    #[arg(short, long)]
    pub ready: bool,
}

/// Where `list`, `lookup` and `get` read.
#[derive(Debug, Args)]
pub struct SourceArgs {
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Directory to use as the node's root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Read the node, even if the daemon runs.
    #[arg(long)]
    pub direct: bool,
    /// How long to wait for a daemon that is not up.
    #[arg(long, value_name = "TIME", value_parser = daemon::config::parse_span)]
    pub wait: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub options: ListOptions,
    /// Objects instead of lines.
    #[arg(short, long)]
    pub json: bool,
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Debug, Args)]
pub struct LookupArgs {
    #[command(flatten)]
    pub options: LookupOptions,
    #[command(flatten)]
    pub source: SourceArgs,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub options: GetOptions,
    #[command(flatten)]
    pub source: SourceArgs,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The VM: its uuid, a unique beginning of it, or its alias.
    pub uuid: String,
    /// One field only: `quota`, `nics`, `disks.0.size`.
    pub field: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: cli::ListArgs,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The daemon's configuration (default: $VMINFOD_CONFIG, else
    /// /opt/smartdc/agents/etc/vminfod.config.json if it exists).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory to use as the node's root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Change nothing on the node: wait for a ZFS event that another program causes.
    #[arg(long)]
    pub passive: bool,
    /// How long to wait for each source, for event streams and for events.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = daemon::config::parse_span)]
    pub timeout: Duration,
    #[command(flatten)]
    pub list: cli::ListArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the node is to be read, and the operands.
    fn parsed(line: &str) -> (bool, Vec<String>) {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let (source, operands) = match cli.command.unwrap() {
            Command::List(args) => (args.source, args.options.filters),
            Command::Lookup(args) => (args.source, args.options.filters),
            Command::Get(args) => (args.source, args.options.uuid.into_iter().collect()),
            other => panic!("{other:?}"),
        };
        (source.direct, operands)
    }

    #[test]
    fn a_flag_behind_two_dashes_is_an_operand() {
        for command in ["list", "lookup", "get"] {
            let line = |rest: &str| parsed(&format!("vminfod {command} {rest}"));
            assert_eq!(line("--direct a"), (true, vec!["a".to_owned()]), "{command}");
            assert_eq!(line("-- --direct"), (false, vec!["--direct".to_owned()]), "{command}");
            assert_eq!(
                line("--direct -- --direct"),
                (true, vec!["--direct".to_owned()]),
                "{command}"
            );
        }
    }
}
