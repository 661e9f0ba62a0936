// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and the help that teaches it. Nothing here does anything.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{ListArgs, Shell};

use crate::config::DEFAULT_FILE;

const ABOUT: &str = "\
Examples:
  net-agent plan                                what would be done, and why
  net-agent nic 90:b8:d0:12:34:56               everything known of one NIC
  net-agent hold --vm UUID --for 2h --reason 'migration'
  net-agent release --vm UUID
  net-agent reap --dry-run                      a rehearsal, with or without the daemon
  net-agent approve 9f3c52a1b6d07e48            let go what the brake keeps, as listed by plan
  net-agent status | json waiting_for           what is waited for

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// Keeps NAPI's NIC records in step with the node.
#[derive(Parser, Debug)]
#[command(name = "net-agent", version, after_help = ABOUT)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    #[command(flatten)]
    pub files: Files,
}

#[derive(Args, Debug, Clone)]
pub struct Files {
    /// The agent's file, as config-agent writes it.
    #[arg(long, global = true, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub config: PathBuf,
    /// Our own keys, when they are kept in a file of their own.
    #[arg(long, global = true, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Check the configuration and end.
    #[arg(long, global = true)]
    pub check_config: bool,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run the daemon (the default).
    #[command(after_help = "\
Examples:
  net-agent serve --config /opt/smartdc/agents/etc/net-agent.config.json
  net-agent serve --check-config --config FILE    is the file good?")]
    Serve,
    /// Ask whether it is up: exit 0 if it answers.
    #[command(after_help = "\
Examples:
  net-agent ping
  until net-agent ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it has done and what it waits for: for people on a terminal, JSON elsewhere.
    #[command(after_help = "\
Examples:
  net-agent status
  net-agent status | json waiting_for
  net-agent status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show what it would do about each NIC, and the evidence.
    #[command(after_help = "\
Examples:
  net-agent plan                         each NIC that differs, and what every guard said
  net-agent plan --all                   those that are kept as they are, too
  net-agent plan --mac 90:b8:d0:12:34:56
  net-agent plan -H -o mac,action -s action
  net-agent plan -j | json decisions

With -H, -p, -o or -s: one row for each NIC, without the evidence (columns: mac, vm, action, reason,
outcome, napi). With -j alone: all that is known.")]
    Plan(PlanArgs),
    /// RFD 58's name for the plan; from here it only ever runs dry.
    #[command(after_help = "\
Examples:
  net-agent reap --dry-run
  net-agent reap --dry-run -p -o mac,reason

The running agent's plan; if none runs, one look at the node, NAPI and VMAPI now. Writes nothing.")]
    Reap {
        /// Only say what would be reaped.
        #[arg(long, required = true)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Leave a VM's NICs (or the whole node's) alone.
    #[command(after_help = "\
Examples:
  net-agent hold --vm UUID --for 2h --reason 'moving to another node'
  net-agent hold --reason 'looking into TRITON-1234'    the whole node, until released

It works whether the daemon runs or not, and survives restarts.")]
    Hold {
        /// The VM; without it, the whole node.
        #[arg(long, value_name = "UUID")]
        vm: Option<String>,
        /// For how long (2h, 30m); without it, until released.
        #[arg(long = "for", value_name = "TIME")]
        length: Option<String>,
        /// Why; shown wherever the hold is.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Take a hold away.
    #[command(after_help = "\
Examples:
  net-agent release --vm UUID
  net-agent release            the hold on the whole node")]
    Release {
        /// The VM; without it, the hold on the whole node.
        #[arg(long, value_name = "UUID")]
        vm: Option<String>,
    },
    /// Show the holds in force.
    #[command(after_help = "\
Examples:
  net-agent holds
  net-agent holds -H -o vm,until -s until
  net-agent holds -j")]
    Holds {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Let go what the brake keeps, as `plan` listed it within the last 15 minutes.
    #[command(after_help = "\
Examples:
  net-agent approve 9f3c52a1b6d07e48

The id is of exactly those records in exactly those versions; every guard still runs before each
delete.")]
    Approve {
        /// The id that `plan` printed.
        id: String,
    },
    /// Show what NAPI, the node and VMAPI say of one NIC, and what follows.
    #[command(after_help = "\
Examples:
  net-agent nic 90:b8:d0:12:34:56
  net-agent nic 90b8d0123456 -j | json napi.state
  net-agent nic 90:b8:d0:12:34:56 -p -o field,value")]
    Nic {
        /// Its address, in any spelling.
        mac: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Print completions for a shell.
    #[command(after_help = "\
Examples:
  net-agent completions bash > /etc/bash_completion.d/net-agent")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write all of them into a directory.
    #[command(after_help = "\
Examples:
  net-agent man | man -l -
  net-agent man /usr/share/man/man8")]
    Man {
        /// Where to write the pages of all commands.
        dir: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub list: ListArgs,
    /// Records that are kept as they are, too.
    #[arg(long)]
    pub all: bool,
    /// Only this NIC.
    #[arg(long)]
    pub mac: Option<String>,
}
