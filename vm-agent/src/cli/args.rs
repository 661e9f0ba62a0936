// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::{Parser, Subcommand};
use daemon::agent::{ClaimArgs, FileArgs};
use daemon::cli::{Generated, ListArgs};

use crate::config::DEFAULT_FILE;

/// The name in messages and logs.
pub(super) const NAME: &str = "vm-agent";

const ABOUT: &str = "\
Examples:
  vm-agent plan                                 what differs or waits, and why
  vm-agent vm UUID                              what the node and VMAPI say about one VM
  vm-agent why UUID                             what was last decided about it
  vm-agent approve 9f3c52a1b6d07e48             approve the reports that the brake is blocking
  vm-agent status | json waiting_for            what it is waiting for

Exit status: 0 done, 1 failed, 2 wrong usage or configuration (`serve` under SMF: 95, 96).
Colours only on a terminal, and never with NO_COLOR.";

/// Keeps VMAPI's VM records in step with the node.
#[derive(Parser, Debug)]
#[command(name = "vm-agent", version = daemon::cli::version(), after_help = ABOUT)]
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
    /// Run the daemon (the default).
    #[command(after_help = "\
Examples:
  vm-agent serve --config /opt/smartdc/agents/etc/vm-agent.config.json
  vm-agent serve --check-config --config FILE    check the file")]
    Serve,
    /// Exit 0 if the daemon answers.
    #[command(after_help = "\
Examples:
  vm-agent ping
  until vm-agent ping >/dev/null 2>&1; do sleep 1; done")]
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it has done and what it is waiting for (JSON if stdout is no terminal).
    #[command(after_help = "\
Examples:
  vm-agent status
  vm-agent status | json waiting_for
  vm-agent status -p -o field,value")]
    Status {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show what was last decided about each VM that differs or waits.
    #[command(after_help = "\
Examples:
  vm-agent plan                  each VM that waits or was written
  vm-agent plan --all            also the VMs that are left as they are
  vm-agent plan -H -o vm,action -s action
  vm-agent plan -j | json queue

With -j alone: everything that is known, the queue included.")]
    Plan {
        #[command(flatten)]
        list: ListArgs,
        /// Also show VMs that are left as they are.
        #[arg(long)]
        all: bool,
    },
    /// Show what was last decided about one VM, and why.
    #[command(after_help = "\
Examples:
  vm-agent why 0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11")]
    Why {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Ask the node and VMAPI about one VM now, and show what would be done.
    #[command(after_help = "\
Examples:
  vm-agent vm 0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11
  vm-agent vm UUID -j | json vmapi.state

Needs root: it asks the running agent by its socket.")]
    Vm {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Approve the reports of destroyed VMs that the brake is blocking, as `plan` listed them.
    #[command(after_help = "\
Examples:
  vm-agent approve 9f3c52a1b6d07e48

The id stands for exactly those VMs, and lasts 15 minutes. Every other check still runs before each
report.")]
    Approve {
        /// The id that `plan` printed.
        id: String,
    },
    /// Say that this machine is the node, or was a node that had another uuid.
    #[command(after_help = "\
Examples:
  vm-agent claim                        a second machine has this node's uuid, and this one is the node
  vm-agent claim OLD-UUID               this machine was that node: it has a new main board
  vm-agent claim OLD-UUID --really      although CNAPI still knows the old node

VMs here that VMAPI has on the old node are told to be here, also stopped ones. It is kept across restarts.")]
    Claim(ClaimArgs),
    #[command(flatten)]
    Generated(Generated),
}
