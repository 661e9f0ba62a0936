// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and the help that teaches it. Nothing here does anything.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{ListArgs, Shell};

const ABOUT: &str = "\
Examples:
  vminfod serve --config /etc/vminfod.json   run the daemon
  vminfod status                             how the daemon is
  vminfod list -o uuid,alias,state -s alias  VMs, as vmadm lists them
  vminfod events                             every change as it comes
  vminfod why UUID quota                     where a value is from
  vminfod check                              can this node be read at all

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 96).
Colours only on a terminal, and never with NO_COLOR.";

/// The node's single consumer of sysevents and cache of VM objects.
#[derive(Debug, Parser)]
#[command(name = "vminfod", version, args_conflicts_with_subcommands = true, after_help = ABOUT)]
pub struct Cli {
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon (the default).
    #[command(after_help = "\
Examples:
  vminfod                                     the node itself, port 9090
  vminfod serve --config /etc/vminfod.json
  vminfod serve --console                     and a web page at http://127.0.0.1:5310/
  vminfod serve --check-config --config FILE  is the file good?
  vminfod serve --listen 127.0.0.1:9091 --shadow http://127.0.0.1:9090
                                              compare with the daemon in place")]
    Serve(ServeArgs),
    /// Ask whether it is up: exit 0 if it answers.
    #[command(after_help = "\
Examples:
  vminfod ping
  until vminfod ping >/dev/null 2>&1; do sleep 1; done")]
    Ping(PlainArgs),
    /// Show how the daemon is.
    #[command(after_help = "\
Examples:
  vminfod status             for people
  vminfod status -f          with the last refreshes and the watched files
  vminfod status | json numVms lastRefresh")]
    Status(StatusArgs),
    /// Show all VMs: a table on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  vminfod vms
  vminfod vms -o uuid,brand,quota -s -quota
  vminfod vms -p -o uuid,nics.0.ip
  vminfod vms --sync | json -ag uuid state alias")]
    Vms(VmsArgs),
    /// Show one VM: a table on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  vminfod vm UUID
  vminfod vm UUID --sync       read from the node after this was asked
  vminfod vm UUID | json alias quota max_physical_memory")]
    Vm(VmArgs),
    /// Print changes as they come, one per line.
    #[command(after_help = "\
Examples:
  vminfod events
    [2026-05-31T16:34:39.145Z] 5595d88c-6e4d-4bda-b58e-97dd02e32bec modify: quota changed :: 20 -> 10
  vminfod events -s            times and the first part of UUIDs only
  vminfod events -j UUID       one VM's, as JSON
  vminfod events -r            the moment from which on nothing is missed, too

It goes on when the daemon is restarted, and says on stderr what happened and whether anything was missed.")]
    Events(EventsArgs),
    /// List VMs exactly as `vmadm list` does.
    #[command(after_help = LIST)]
    List(VmadmArgs),
    /// Find VMs exactly as `vmadm lookup` does.
    #[command(after_help = LOOKUP)]
    Lookup(VmadmArgs),
    /// Print one VM exactly as `vmadm get` does.
    #[command(after_help = GET)]
    Get(VmadmArgs),
    /// Tell which source a field comes from, when it was last read, and whether it is stale.
    #[command(after_help = "\
Examples:
  vminfod why UUID             all fields
  vminfod why UUID quota       one field
  vminfod why UUID disks.0.size
  vminfod why UUID -s source,field

When the daemon is off the sources are still told, but not when they were read.")]
    Why(WhyArgs),
    /// Check that every source can be read on this node, and that its events arrive.
    #[command(after_help = "\
Examples:
  vminfod check
  vminfod check --passive      change nothing: only wait for a ZFS event to come by
  vminfod check -p -o name,state

To see whether ZFS history events arrive, a user property of a pool (vminfod:check) is set and
removed again. Exit status 1 if anything failed.")]
    Check(CheckArgs),
    /// Print completions for a shell.
    #[command(after_help = "\
Examples:
  vminfod completions bash > /etc/bash_completion.d/vminfod")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write all of them into a directory.
    #[command(after_help = "\
Examples:
  vminfod man | man -l -
  vminfod man /usr/share/man/man8")]
    Man {
        /// Where to write the pages of all commands.
        dir: Option<PathBuf>,
    },
}

const LIST: &str = "\
Arguments are vmadm's: [-p] [-H] [-o FIELD,...] [-s FIELD,...] [FIELD=VALUE ...]
  -p, -H           parsable (colons, no header); no header
  -o FIELD,...     columns (uuid,type,ram,state,alias): also nics.N.KEY, disks.N.KEY, tags.KEY
  -s FIELD,...     order (ram,uuid); -FIELD is descending
  FIELD=VALUE      only VMs that have this; FIELD=~REGEXP matches a part, without regard to case
And ours, looked at first: -j, --json (objects instead), --direct, --wait TIME, --url URL,
--config FILE, --root DIR

Examples:
  vminfod list
  vminfod list -p -o uuid,alias state=running
  vminfod list -H -o alias,quota -s -quota 'alias=~^web'
  vminfod list 'nics.*.ip=10.0.0.5'
  vminfod list --direct        from the node, whether the daemon runs or not

With the daemon off the node itself is read; while the daemon starts it is waited for (60 s).";

const LOOKUP: &str = "\
Arguments are vmadm's: [-j|-1] [-o FIELD,...] [FIELD=VALUE ...]
  -1               exactly one VM must be found
  -j               JSON instead of UUIDs; -o FIELD,... only these fields
  FIELD=VALUE      as for list
And ours, looked at first: --direct, --wait TIME, --url URL, --config FILE, --root DIR

Examples:
  vminfod lookup brand=lx state=running
  vminfod lookup -1 alias=web0
  vminfod lookup -j -o uuid,nics tags.role=web";

const GET: &str = "\
Arguments are vmadm's: UUID
And ours, looked at first: --direct, --wait TIME, --url URL, --config FILE, --root DIR

Examples:
  vminfod get UUID
  vminfod get UUID | json nics.0.ip
  vminfod get --direct UUID";

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file, JSON or TOML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory to take as the node's root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Address to serve on.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Run beside the daemon at URL and log each lasting difference between the two.
    #[arg(long, value_name = "URL")]
    pub shadow: Option<String>,
    /// Also serve the web page, from this process (see console(8)).
    #[arg(long)]
    pub console: bool,
    /// Check the configuration and end.
    #[arg(long)]
    pub check_config: bool,
}

/// Where the daemon and the node are.
#[derive(Debug, Clone, Default, Args)]
pub struct ReachArgs {
    /// Where vminfod serves (default: $VMINFOD_URL, else what the configuration says, else
    /// http://127.0.0.1:9090).
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The daemon's configuration (default: $VMINFOD_CONFIG, else /etc/vminfod.json if it is there).
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
    pub plain: PlainArgs,
    /// With the refresh log and the watched files.
    #[arg(short, long)]
    pub full: bool,
}

#[derive(Debug, Args)]
pub struct VmsArgs {
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: ListArgs,
    /// Read the node afresh first.
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
pub struct VmArgs {
    /// Its zone name, which is its uuid in practice.
    pub name: String,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: ListArgs,
    /// Read the VM afresh first.
    #[arg(long)]
    pub sync: bool,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only events of this VM.
    pub uuid: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Times and the first part of UUIDs only.
    #[arg(short, long)]
    pub short: bool,
    /// Dates and whole UUIDs: the default, for those used to vminfo's flags.
    #[arg(short, long, conflicts_with = "short")]
    pub full: bool,
    /// The events themselves, one JSON object per line.
    #[arg(short = 'j', long)]
    pub json: bool,
    /// The first line of the stream too.
    #[arg(short, long)]
    pub ready: bool,
}

/// What vmadm takes is not this grammar's: see the help below.
#[derive(Debug, Args)]
pub struct VmadmArgs {
    /// vmadm's options and operands.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<String>,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The VM.
    pub uuid: String,
    /// One field only: `quota`, `nics`, `disks.0.size`.
    pub field: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The daemon's configuration (default: $VMINFOD_CONFIG, else /etc/vminfod.json if it is there).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory to take as the node's root.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Change nothing on the node: only wait for a ZFS event that comes by itself.
    #[arg(long)]
    pub passive: bool,
    /// How long to wait for event streams and events.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = daemon::config::parse_span)]
    pub timeout: Duration,
    #[command(flatten)]
    pub list: ListArgs,
}
