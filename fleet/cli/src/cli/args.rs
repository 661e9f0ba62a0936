// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use daemon::cli::{Generated, ListArgs};

use crate::config::DEFAULT_FILE;

/// The name in messages.
pub(super) const NAME: &str = "sdc-fleet";

const ABOUT: &str = "\
Examples:
  sdc-fleet nodes --all-well                    which nodes need a person
  sdc-fleet vms node=cn-12 state=running
  sdc-fleet vm web-0                            one VM, wherever it is
  sdc-fleet changes web-0 --since 2h

Exit status: 0 done and well, 1 failed, or something needs a person, 2 wrong usage or configuration.
Colours only on a terminal, and never with NO_COLOR.";

/// Shows the nodes and VMs of the data centre, from its feed.
#[derive(Parser, Debug)]
#[command(name = "sdc-fleet", version = daemon::cli::version(), after_help = ABOUT)]
#[command(args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// Where the feed is.
    #[arg(long, global = true, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub config: PathBuf,
    /// A server of the feed, instead of the configuration's.
    #[arg(long, global = true, value_name = "URL")]
    pub server: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show how each node is; exit 1 if one needs a person.
    #[command(after_help = "\
Examples:
  sdc-fleet nodes
  sdc-fleet nodes --all-well                    only those that need a person
  sdc-fleet nodes -o node,alarms,help
  sdc-fleet nodes -H -p -o uuid,up")]
    Nodes {
        #[command(flatten)]
        list: ListArgs,
        /// Only the nodes that need a person; one line if there are none.
        #[arg(long)]
        all_well: bool,
        /// Again every two seconds, until Ctrl-C.
        #[arg(short = 'w', long)]
        watch: bool,
    },
    /// List VMs.
    #[command(after_help = "\
Examples:
  sdc-fleet vms
  sdc-fleet vms node=cn-12 state=running
  sdc-fleet vms owner=UUID -o alias,node,ip -s node

FILTER is FIELD=VALUE, for any field of a VM; node= takes a hostname, owner= is owner_uuid=.
`age` says how long ago the node was last heard.")]
    Vms {
        /// What a VM has to be.
        #[arg(value_name = "FILTER")]
        filter: Vec<String>,
        /// Also copies that are hidden, such as those of a migration.
        #[arg(short = 'a', long)]
        all: bool,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show one VM, wherever it is; exit 1 if two nodes show it.
    #[command(after_help = "\
Examples:
  sdc-fleet vm web-0
  sdc-fleet vm 0b4a4a3e | json 0.vm.nics")]
    Vm {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Print what happens, until it is interrupted.
    #[command(after_help = "\
Examples:
  sdc-fleet watch
  sdc-fleet watch node=cn-12 brand=bhyve
  sdc-fleet watch -j | json -ga what alias")]
    Watch {
        /// What a VM has to be, as for `vms`.
        #[arg(value_name = "FILTER")]
        filter: Vec<String>,
        /// A JSON object per line.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what happened to a VM, as far back as the feed keeps it.
    #[command(after_help = "\
Examples:
  sdc-fleet changes web-0 --since 2h
  sdc-fleet changes UUID -o time,node,changed")]
    Changes {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
        /// How far back: 90s, 2h, 3d.
        #[arg(long, value_name = "SPAN")]
        since: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show a VM's life over all its nodes, in one order: its changes, its migrations, VMAPI's jobs, what net-agent and
    /// vm-agent wrote, kvmd's verdicts; exit 1 if a source does not answer.
    #[command(after_help = "\
Examples:
  sdc-fleet story web-0 --since 2h
  sdc-fleet story UUID -o time,source,what -s time
  sdc-fleet story UUID -j | json -ga time node source what details

Sources: the feed, migration-service, and each node where the VM is or was, by sdc-oneachnode: so it is for a headnode.
One that does not answer is named on stderr, and the others are shown; without the feed it takes a whole uuid.
The order is that of the times; what one source says stays in its own order, whatever its clock says.")]
    Story {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
        /// How far back: 90s, 2h, 3d.
        #[arg(long, value_name = "SPAN")]
        since: Option<String>,
        /// Where migration-service is, instead of where sdc-migrate finds it.
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show how the streams are; exit 1 while a server does not have all of them (then no other one may be stopped),
    /// where VMS has stood still for 10 s though CHANGES has more (setup --vms-again) or is full (--nodes shows of
    /// whose VMs, purge removes them), and where the servers have different messages: a fleet-agent with
    /// `streams.make` gives each what the fullest one has.
    #[command(after_help = "\
Examples:
  sdc-fleet streams
  until sdc-fleet streams >/dev/null; do sleep 5; done     before the next server is restarted
  sdc-fleet streams -H -p -o stream,behind
  sdc-fleet streams --nodes                     who has how much of them

--nodes: `vms` and `messages` count what VMS and CHANGES have of a node, deleted VMs too; the bytes are about so many,
told by some of its messages; `share` is the larger one of the two streams'.")]
    Streams {
        #[command(flatten)]
        list: ListArgs,
        /// What each node has of them, those with the largest share first.
        #[arg(long)]
        nodes: bool,
    },
    /// Remove all that the streams have under a node's name: the way out where it published without end, or what it
    /// made up. What the node really has is back with its agent's next look, within minutes. Needs the operator's key.
    #[command(after_help = "\
Examples:
  sdc-fleet streams --nodes                     whose they are
  sdc-fleet purge cn-12
  sdc-fleet purge -y 564d0b8e-6099-7648-351e-877faf6c56f6

First take its key out of the servers' accounts if somebody else has it. Its history is gone then, nobody else's.
A node that is gone for good is forgotten after it (forget).")]
    Purge {
        /// The node: its uuid, a unique beginning of it, or its hostname.
        node: String,
        /// Do not ask.
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Take a node off the feed that is gone for good: its VMs and its heartbeat. Needs the operator's key.
    #[command(after_help = "\
Examples:
  sdc-fleet forget cn-12

A node that is heard is refused. One that comes back is on the feed again.")]
    Forget {
        /// The node: its uuid, a unique beginning of it, or its hostname.
        node: String,
    },
    /// Make the streams of the feed where they are missing. Waits up to a minute for servers that just start. Needs the
    /// operator's key.
    #[command(after_help = "\
Examples:
  sdc-fleet setup
  sdc-fleet setup --config operator.json
  sdc-fleet setup --vms-again

A VMS that is made again is filled from CHANGES, and by the nodes with what CHANGES does not have any more.")]
    Setup {
        /// Make VMS again: it stands still.
        #[arg(long)]
        vms_again: bool,
    },
    /// Draw a key: write its seed to a file that only its owner may read, print its public key.
    #[command(after_help = "\
Examples:
  sdc-fleet key /opt/smartdc/agents/etc/fleet-agent.nkey")]
    Key {
        /// The file, which must not exist.
        file: PathBuf,
    },
    /// Print what each key may do, for the configuration of the nats-servers.
    #[command(after_help = "\
Examples:
  sdc-fleet permissions --keys keys.json > /etc/nats-server/accounts.conf

keys.json: {\"operators\": [\"U…\"], \"readers\": [\"U…\"], \"nodes\": {\"CN-UUID\": \"U…\"}}, all of them public keys.")]
    Permissions {
        /// The public keys.
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
    #[command(flatten)]
    Generated(Generated),
}
