// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::{Args, Subcommand};
use daemon::agent::Decide;
use daemon::cli::{ListArgs, NamedListArgs};

pub(super) const HELP: &str = "\
Examples:
  net-agent plan                                what would be done, and why
  net-agent nic 90:b8:d0:12:34:56               everything that is known about one NIC
  net-agent hold --vm UUID --for 2h --reason 'migration'
  net-agent release --vm UUID
  net-agent history --since 2h                  what it wrote and deleted, and why
  net-agent reap --dry-run                      make a plan, with or without the daemon
  net-agent plan --fresh                        offer what the brake is blocking for approval
  net-agent approve 9f3c52a1b6d07e48            approve the deletions that the brake is blocking
  net-agent status | json waiting_for           what it is waiting for";

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show what it would do about each NIC, and the evidence.
    #[command(after_help = "\
Examples:
  net-agent plan                         each NIC that differs, and every guard's answer
  net-agent plan --all                   also the NICs that are kept as they are
  net-agent plan --fresh                 read again what the brake blocks, for `approve`
  net-agent plan --mac 90:b8:d0:12:34:56
  net-agent plan -H -o mac,action -s action
  net-agent plan -j | json decisions

With -H, -p, -o or -s: one row for each NIC, without the evidence (columns: mac, vm, action, reason,
outcome, napi, open). With -j alone: everything that is known.")]
    Plan(PlanArgs),
    /// Show what would be reaped; the command line never deletes.
    #[command(after_help = "\
Examples:
  net-agent reap --dry-run
  net-agent reap --dry-run -p -o mac,reason

Shows the running agent's plan. If none runs, it looks once at the node, NAPI and VMAPI.")]
    Reap {
        /// Only show what would be reaped.
        #[arg(long, required = true)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Leave the NICs of a VM, or of the whole node, alone.
    #[command(after_help = "\
Examples:
  net-agent hold --vm UUID --for 2h --reason 'moving to another node'
  net-agent hold --reason 'looking into TRITON-1234'    the whole node, until released

It works whether the daemon runs or not, and survives restarts.")]
    Hold {
        /// The VM (uuid, a unique beginning of it, or alias); without it, the whole node.
        #[arg(long, value_name = "VM")]
        vm: Option<String>,
        /// For how long (2h, 30m); without it, until released.
        #[arg(long = "for", value_name = "TIME")]
        length: Option<String>,
        /// Why; it is shown with the hold.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Move the end of a hold.
    #[command(after_help = "\
Examples:
  net-agent extend --vm UUID --for 2h      from now
  net-agent extend --for 30m               the hold on the whole node")]
    Extend {
        /// The VM; without it, the hold on the whole node.
        #[arg(long, value_name = "VM")]
        vm: Option<String>,
        /// For how long from now (2h, 30m).
        #[arg(long = "for", value_name = "TIME")]
        length: String,
    },
    /// Remove a hold.
    #[command(after_help = "\
Examples:
  net-agent release --vm UUID
  net-agent release            the hold on the whole node

From then on net-agent writes and deletes NIC records of the VM again.")]
    Release {
        /// The VM; without it, the hold on the whole node.
        #[arg(long, value_name = "VM")]
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
        list: NamedListArgs,
    },
    /// Show what NAPI, the node and VMAPI say about one NIC, and what would be done.
    #[command(after_help = "\
Examples:
  net-agent nic 90:b8:d0:12:34:56
  net-agent nic 90b8d0123456 -j | json napi.state
  net-agent nic 90:b8:d0:12:34:56 -p -o field,value")]
    Nic {
        /// Its MAC, in any spelling.
        mac: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show what was written and deleted, by which rule and on what evidence.
    #[command(after_help = "\
Examples:
  net-agent history                          the oldest first
  net-agent history --since 2h --vm UUID
  net-agent history --mac 90:b8:d0:12:34:56 -o at,outcome,rule,why
  net-agent history -j | json -a at mac outcome

Columns: ago, mac, outcome, vm, change; with -o also rule, why, at. It reads the file in the state
directory, whether the daemon runs or not, which has the last some thousand requests.")]
    History(HistoryArgs),
    #[command(flatten)]
    Decide(Decide),
}

#[derive(Args, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub list: NamedListArgs,
    /// Only this NIC, in any spelling.
    #[arg(long)]
    pub mac: Option<String>,
    /// Only NICs of this VM.
    #[arg(long, value_name = "VM")]
    pub vm: Option<String>,
    /// Not older than this: 2h, 3d, or a time in ISO 8601.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
}

#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub list: NamedListArgs,
    /// Also show records that are kept as they are.
    #[arg(long)]
    pub all: bool,
    /// Read what the brake blocks again, and offer it for approval; needs root.
    #[arg(long)]
    pub fresh: bool,
    /// Only this NIC.
    #[arg(long)]
    pub mac: Option<String>,
}
