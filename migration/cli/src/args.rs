// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

mod list; // the flags of `list`

mod trust; // the verbs about who is let in

mod parts; // what several verbs have

use clap::{Parser, Subcommand};
use daemon::cli::{Generated, ListArgs};

pub use self::list::MigrationList;
pub use self::parts::{Consent, Down, Placed, Proof, Rate, Reach, Which};
pub use self::trust::TrustVerb;

/// The name in messages and requests.
pub(super) const NAME: &str = "sdc-migrate";

const ABOUT: &str = "\
Examples:
  sdc-migrate migrate VM                        all phases in one go
  sdc-migrate begin VM; sdc-migrate sync VM; sdc-migrate switch VM
  sdc-migrate list -l
  sdc-migrate watch VM
  sdc-migrate finalize VM                       delete the copy on the old node
  sdc-migrate evacuate CN --dry-run             what moving all VMs of a node takes
  sdc-migrate history --since 12h               what has ended, by whom, how long it was down

A VM is its uuid, its alias, or a beginning of its uuid (4 characters or more) that no other VM has; a node is its uuid,
its host name, or a beginning of its uuid. Where the services are: --url and --cnapi, else $VMAPI_URL and $CNAPI_URL, else the configuration.

Exit status: 0 done, 1 failed or refused, 2 wrong usage or configuration, 130 left with Ctrl-C: the migration
goes on. Colours only on a terminal, and never with NO_COLOR or --no-ansi.";

/// Migrates instances to other compute nodes.
#[derive(Parser, Debug)]
#[command(name = NAME, version = daemon::cli::version(), after_help = ABOUT)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// No colours, marks and lines that are rewritten.
    #[arg(long, visible_alias = "noansi", global = true)]
    pub no_ansi: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show the migration of an instance.
    Get {
        /// The VM.
        vm: String,
        /// JSON: the record.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// List the migrations of the data centre, the newest first.
    #[command(after_help = "\
Examples:
  sdc-migrate list -l -s failed
  sdc-migrate list -p -o uuid,state,waits_for --sort -age
  sdc-migrate list --to-finalize

On a terminal VMs and nodes are shown by name; -l and -j have the uuids.")]
    List(MigrationList),
    /// Show what has ended, the newest first: migrations, rollbacks, evacuations, changes of settings.
    #[command(after_help = "\
Examples:
  sdc-migrate history --since 12h
  sdc-migrate history --vm web01 -o ended,what,downtime,by,program
  sdc-migrate history --cn CN --since 2026-03-01T00:00:00Z
  sdc-migrate history --vm web01 -j             with the steps and their times

The service keeps it for history_keep (400 days). The columns downtime and bytes are - where they are not known, and of a
VM that did not run. What has ended about snapshots of volumes: sdc-voladm history.")]
    History {
        /// Of this VM.
        #[arg(long, value_name = "VM")]
        vm: Option<String>,
        /// About this node.
        #[arg(long, value_name = "CN")]
        cn: Option<String>,
        /// Ended since: 90s, 12h, 7d, or ISO 8601 with an offset.
        #[arg(long, value_name = "SPAN|TIME")]
        since: Option<String>,
        /// Of this owner's VMs.
        #[arg(long, value_name = "UUID")]
        owner: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Say why a migration is not done, or how the last one of an instance ended.
    Why {
        /// The VM.
        vm: String,
    },
    /// Print what a migration would take, as JSON.
    #[command(after_help = "\
Examples:
  sdc-migrate estimate VM            bytes in use, as the shipped tool prints them
  sdc-migrate estimate --full VM     seconds in all, seconds of downtime, bytes; also of one that runs")]
    Estimate {
        /// The VM.
        vm: String,
        /// The node to migrate to.
        #[arg(short = 'n', long, value_name = "CN")]
        cn: Option<String>,
        /// Seconds and bytes as RFD 34 has them.
        #[arg(long)]
        full: bool,
    },
    /// Migrate an instance: all phases in one go.
    #[command(after_help = "\
Examples:
  sdc-migrate migrate VM
  sdc-migrate migrate -y -n CN VM")]
    Migrate {
        #[command(flatten)]
        placed: Placed,
        /// The node to migrate to, as in RFD 34; the same as -n.
        #[arg(value_name = "CN", conflicts_with = "cn")]
        to: Option<String>,
    },
    /// Begin a migration: make the hidden copy on another node.
    Begin {
        #[command(flatten)]
        placed: Placed,
    },
    /// Bring the copy's filesystems up to date while the instance runs.
    #[command(after_help = "\
Examples:
  sdc-migrate sync VM
  sdc-migrate sync --bwlimit 100 VM     at most 100 Mbit/s, this sync and those after it")]
    Sync {
        /// The VM.
        vm: String,
        #[command(flatten)]
        rate: Rate,
        /// Do not watch it: print its job and end.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Stop the instance, send the rest, start it on the other node.
    #[command(after_help = "\
Examples:
  sdc-migrate switch VM
  sdc-migrate switch --max-downtime 60s VM  not at all where the instance would be down for longer
  sdc-migrate switch --source-dead CN VM    the old node is dead and stays so: boot the last copy

--source-dead: you confirm that nothing runs on that node any more. What the instance wrote there since the
last sync is lost. It is refused while the node answers, and while CNAPI's last heartbeat of it or its agent's
last contact is younger than the setting dead_after, or not known: --really says that you have seen that it is off.")]
    Switch {
        /// The VM.
        vm: String,
        /// The node of the source is dead.
        #[arg(long, value_name = "CN")]
        source_dead: Option<String>,
        /// You have seen that the node is off, whatever its last signs of life are.
        #[arg(long, requires = "source_dead")]
        really: bool,
        /// Whichever vm-agent the two nodes have: a restart of the deployed one may have VMAPI show the VM destroyed.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        rate: Rate,
        #[command(flatten)]
        down: Down,
        /// Do not watch it: print its job and end.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Pause a running sync; sync or switch goes on from there.
    #[command(after_help = "\
Examples:
  sdc-migrate pause VM
  sdc-migrate pause --cn CN           all that sync from this node, or to it")]
    Pause {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        consent: Consent,
    },
    /// End a migration that has not switched: the copy goes.
    #[command(after_help = "\
Examples:
  sdc-migrate abort VM
  sdc-migrate abort --cn CN           all from this node, and to it
  sdc-migrate abort --all-waiting     all that wait for you

The instance stays where it is. The copy on the other node, and what was sent so far, is deleted.")]
    Abort {
        #[command(flatten)]
        which: Which,
        /// Pause first what runs. After an abort that failed: end it, whatever is left or lost.
        #[arg(long)]
        force: bool,
        /// The node of the new copy is dead: the copy stays there.
        #[arg(long, value_name = "CN", requires = "vm")]
        target_dead: Option<String>,
        /// You have seen that the node is off, whatever its last signs of life are.
        #[arg(long, requires = "target_dead")]
        really: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Show and start the only copy that is left: the other one is gone, by hand or with its pool.
    #[command(after_help = "\
Examples:
  sdc-migrate rescue VM

What the instance wrote after the last sync is not in a copy on the new node.")]
    Rescue {
        /// The VM.
        vm: String,
        /// You have seen that the node of the copy that is gone is off, whatever its last signs of life are.
        #[arg(long)]
        really: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Go back to the old node after a switch, with what the instance wrote since.
    #[command(after_help = "\
Examples:
  sdc-migrate rollback VM
  sdc-migrate rollback --discard VM    without it; it is lost
  sdc-migrate rollback --target-dead CN --discard VM

--target-dead CN: you confirm that nothing runs on the new node any more. It is refused while the node answers, and
while its last signs of life are young or not known: --really says that you have seen that it is off.")]
    Rollback {
        /// The VM.
        vm: String,
        /// Lose what the instance wrote since the switch.
        #[arg(long)]
        discard: bool,
        /// The node of the target is dead.
        #[arg(long, value_name = "CN")]
        target_dead: Option<String>,
        /// You have seen that the node is off, whatever its last signs of life are.
        #[arg(long, requires = "target_dead")]
        really: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Delete the hidden copy on the old node after a switch; there is no way back then.
    #[command(after_help = "\
Examples:
  sdc-migrate finalize VM
  sdc-migrate list --to-finalize
  sdc-migrate finalize --cn CN -y     all from this node, and to it
  sdc-migrate finalize --all-waiting -y

The old copy with all its snapshots is deleted; the instance runs on.")]
    Finalize {
        #[command(flatten)]
        which: Which,
        /// Although the copies do not have the same snapshots.
        #[arg(long)]
        force: bool,
        /// The node of the old copy is dead: if it comes back, its copy is stopped and hidden.
        #[arg(long, value_name = "CN", requires = "vm")]
        source_dead: Option<String>,
        /// You have seen that the node is off, whatever its last signs of life are.
        #[arg(long, requires = "source_dead")]
        really: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Take over a migration that the nodes have and the service's store lacks or has as it once was.
    #[command(after_help = "\
Examples:
  sdc-migrate adopt VM
  sdc-migrate adopt --other CN VM    the agent of one of the two nodes does not answer

Only operators may: run it where the service runs, or with an operator's certificate (sdc-migrate trust join).

The record is made from what the nodes show; nothing is done to a copy. With --other CN you confirm that the copy on
that node, if it is not the one in use, may be stopped and hidden as soon as the node is back. While the last signs of
life of that node are young or not known, --really says that you have seen that it is off.")]
    Adopt {
        /// The VM.
        vm: String,
        /// The node whose agent does not answer.
        #[arg(long, value_name = "CN")]
        other: Option<String>,
        /// You have seen that the node is off, whatever its last signs of life are.
        #[arg(long, requires = "other")]
        really: bool,
        #[command(flatten)]
        proof: Proof,
        #[command(flatten)]
        consent: Consent,
    },
    /// Watch a migration until it ends or waits for you.
    Watch {
        /// The VM.
        vm: String,
    },
    /// Migrate at a given time: begin and sync now, switch then. Also changes that time.
    #[command(after_help = "\
Examples:
  sdc-migrate schedule VM 2026-03-01T02:00:00Z
  sdc-migrate schedule VM '2 days'")]
    Schedule {
        #[command(flatten)]
        placed: Placed,
        /// ISO 8601 with an offset, or a wait: minutes, hours, days, weeks.
        time: String,
    },
    /// Forget the time of the switch: the migration is paused.
    Unschedule {
        /// The VM.
        vm: String,
    },
    /// Compare the two copies: GUIDs of snapshots and sizes. Exit 1 if they differ.
    Verify {
        /// The VM.
        vm: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Move all instances off a node, or go on with that. The node gets no new ones meanwhile.
    #[command(after_help = "\
Examples:
  sdc-migrate evacuate CN --dry-run          per VM: target, bytes, minutes, downtime, obstacle
  sdc-migrate evacuate CN
  sdc-migrate evacuate CN -y --no-wait       ends at once; the service moves them
  sdc-migrate evacuate CN --pause            no more begin; what syncs is paused
  sdc-migrate evacuate CN                    goes on
  sdc-migrate evacuate CN --release          end it as it is: the node may get new instances again
  sdc-migrate evacuate CN --to CN2 --exclude VM --at-once 2
  sdc-migrate evacuate CN --back             what has moved and is not finalized goes back")]
    Evacuate {
        /// The node.
        cn: String,
        /// Show what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Pause it as a whole.
        #[arg(long, conflicts_with_all = ["dry_run", "release"])]
        pause: bool,
        /// Give the node back to placement.
        #[arg(long, conflicts_with = "dry_run")]
        release: bool,
        /// Roll back what has moved off the node and is not finalized yet.
        #[arg(long, conflicts_with_all = ["dry_run", "pause", "release"])]
        back: bool,
        /// Move all of them to this node; CNAPI chooses otherwise.
        #[arg(long, value_name = "CN")]
        to: Option<String>,
        /// Leave this instance where it is; may be repeated.
        #[arg(long, value_name = "VM")]
        exclude: Vec<String>,
        /// At most so many at once, and never more than the node's limit.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
        at_once: Option<u32>,
        /// Do not watch it: ask the service for it and end.
        #[arg(long, conflicts_with_all = ["dry_run", "pause", "release", "back"])]
        no_wait: bool,
        #[command(flatten)]
        list: ListArgs,
        #[command(flatten)]
        consent: Consent,
    },
    /// List the evacuations that are under way, from whatever machine they were begun.
    Evacuations {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show the settings of the data centre, or the ones of a node.
    Settings {
        /// The node.
        cn: Option<String>,
    },
    /// Change a setting.
    #[command(after_help = "\
Examples:
  sdc-migrate set zfs_send_mbps_limit 200
  sdc-migrate set max_running_migrations_per_cn 2 --cn CN
  sdc-migrate set zfs_send_mbps_limit null --cn CN    the data centre's again")]
    Set {
        /// Its name; without it they are listed.
        key: Option<String>,
        /// Its value.
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
        /// For this node alone.
        #[arg(long, value_name = "CN")]
        cn: Option<String>,
    },
    /// Let the owner of an instance migrate it, or not.
    #[command(after_help = "\
Examples:
  sdc-migrate instance allow VM
  sdc-migrate instance disallow VM
  sdc-migrate instance VM allow_user_migrations true    as RFD 34 has it")]
    Instance {
        /// `allow VM`, `disallow VM`, or `VM allow_user_migrations true|false`.
        #[arg(required = true, num_args = 2..=3)]
        words: Vec<String>,
    },
    /// The same as `instance allow`.
    AllowInstance {
        /// The VM.
        vm: String,
    },
    /// The same as `instance disallow`.
    DisallowInstance {
        /// The VM.
        vm: String,
    },
    /// Let the owners of all instances of a node migrate them.
    AllowCn {
        /// The node.
        cn: String,
    },
    /// Let no owner of an instance of a node migrate it.
    DisallowCn {
        /// The node.
        cn: String,
    },
    /// Certificates of agents, volapi and operators: where the service runs, or with an operator's certificate.
    #[command(after_help = "\
Examples:
  sdc-migrate trust init                        the first day: make the data centre's authority
  sdc-migrate trust token CN                    a join token for the agent of one node, valid for a day
  sdc-migrate trust token volapi --valid 1h
  sdc-migrate trust list
  sdc-migrate trust revoke CN                   a node that was lost, or is not to be trusted
  sdc-migrate trust rotate                      a new authority; again when all have renewed
  sdc-migrate trust token operator              for an operator who uses these verbs on another machine, and there:
  sdc-migrate trust --trust-url https://HOST:5320 join < TOKEN

The token of a program goes into the file join-token in the program's trust directory, of mode 0600.")]
    Trust {
        #[command(flatten)]
        proof: Proof,
        #[command(subcommand)]
        verb: TrustVerb,
    },
    #[command(flatten)]
    Generated(Generated),
}
