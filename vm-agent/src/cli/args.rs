// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::Subcommand;
use daemon::agent::Decide;
use daemon::cli::{ListArgs, NamedListArgs};

pub(super) const HELP: &str = "\
Examples:
  vm-agent plan                                 what differs or waits, and why
  vm-agent vm UUID                              what the node and VMAPI say about one VM
  vm-agent why UUID                             what was last decided about it
  vm-agent approve 9f3c52a1b6d07e48             approve the reports that the brake is blocking
  vm-agent status | json waiting_for            what it is waiting for";

#[derive(Subcommand, Debug)]
pub enum Verb {
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
        list: NamedListArgs,
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
    #[command(flatten)]
    Decide(Decide),
}
