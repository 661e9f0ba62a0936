// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of `sdc-voladm` and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{Generated, ListArgs};

/// The name in messages and requests.
pub(super) const NAME: &str = "sdc-voladm";

const ABOUT: &str = "\
Examples:
  sdc-voladm list-volume-zones                      all volumes with their storage VMs and users
  sdc-voladm restart-volume-zone VOLUME
  sdc-voladm update-volume-zone --owner OWNER       the newest image for all volumes of an owner
  sdc-voladm check                                  what does not fit together, and what repairs it

A volume is its uuid, a beginning of it, or its name; --owner says whose where several have that name. Where the
services are: --url, --vmapi, --cnapi and --imgapi, else $VOLAPI_URL, $VMAPI_URL, $CNAPI_URL and $IMGAPI_URL, else
the configuration.

Exit status: 0 done, 1 failed, refused, or something found by check, 2 wrong usage or configuration.
Colours only on a terminal, and never with NO_COLOR.";

/// Looks after the storage VMs of volumes.
#[derive(Parser, Debug)]
#[command(name = NAME, version = daemon::cli::version(), after_help = ABOUT)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    #[command(flatten)]
    pub reach: Reach,
}

/// Where the services are.
#[derive(Args, Debug, Clone, Default)]
pub struct Reach {
    /// volapi.
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,
    /// VMAPI.
    #[arg(long, value_name = "URL", global = true)]
    pub vmapi: Option<String>,
    /// CNAPI, for `check` and for the names of nodes.
    #[arg(long, value_name = "URL", global = true)]
    pub cnapi: Option<String>,
    /// IMGAPI, which only `update-volume-zone` asks.
    #[arg(long, value_name = "URL", global = true)]
    pub imgapi: Option<String>,
    /// Configuration file (default: /opt/smartdc/agents/etc/sdc-voladm.config.json).
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// Which volumes, and whether to ask.
#[derive(Args, Debug, Clone, Default)]
pub struct Chosen {
    /// The volume; without it all of the owner.
    pub volume: Option<String>,
    /// Its owner, by uuid or a beginning of it; with a volume, the two are checked against each other.
    #[arg(long, value_name = "UUID")]
    pub owner: Option<String>,
    /// Also volumes that are used.
    #[arg(long)]
    pub force: bool,
    /// Do not ask. Needed where there is no terminal.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Do not wait until it is done.
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// List volumes with their storage VMs, nodes and users.
    #[command(after_help = "\
Examples:
  sdc-voladm list-volume-zones
  sdc-voladm list-volume-zones OWNER -o name,size,used,users
  sdc-voladm list-volume-zones -l
  sdc-voladm list-volume-zones -p -o zone,cn -s cn

`used` is what the datasets of the storage VM hold, as VMAPI estimates it: each row asks a node, so leave the
column out where there are many. `users` says for each VM where it mounts the volume, and how.")]
    ListVolumeZones {
        /// An owner, by uuid or a beginning of it: only his.
        owner: Option<String>,
        /// With the uuids of volumes, owners, storage VMs and nodes.
        #[arg(short = 'l', long)]
        long: bool,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Reboot the storage VM of a volume, or of all volumes of an owner, or start it where it is stopped.
    #[command(after_help = "\
Examples:
  sdc-voladm restart-volume-zone VOLUME
  sdc-voladm restart-volume-zone --owner OWNER -y

It refuses, and says which VMs use the volume, unless --force is given: they wait until it is back. A
storage VM that is stopped serves no VM, and is started without --force. The command waits until the job has ended, and
prints its result.")]
    RestartVolumeZone {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Make the storage VM of a volume anew from another image; what is in the volume stays.
    #[command(after_help = "\
Examples:
  sdc-voladm update-volume-zone VOLUME                  the newest image of that name and owner
  sdc-voladm update-volume-zone --image IMAGE VOLUME
  sdc-voladm update-volume-zone --owner OWNER --force -y")]
    UpdateVolumeZone {
        #[command(flatten)]
        chosen: Chosen,
        /// The image: its uuid, NAME@VERSION, or the newest of a NAME; of the owner of the old one, whose name is the
        /// default.
        #[arg(long)]
        image: Option<String>,
    },
    /// Delete a volume, its storage VM and all that is in it.
    #[command(after_help = "\
Examples:
  sdc-voladm delete-volume-zone --owner OWNER VOLUME

The files of the volume are lost. It refuses, and says which VMs use the volume, unless --force is given.")]
    DeleteVolumeZone {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Look for what does not fit together; each row has the command that repairs it. Exit 1 if there is any.
    #[command(after_help = "\
Examples:
  sdc-voladm check
  sdc-voladm check -p -o repair

What is found: volumes that cannot be used, storage VMs without a volume and volumes without a storage VM, two
volumes with one name, users that are no more, tickets that are held, reservations older than two hours.")]
    Check {
        #[command(flatten)]
        list: ListArgs,
    },
    /// List what has ended about snapshots of volumes: made, deleted, rolled back to, by whom.
    #[command(after_help = "\
Examples:
  sdc-voladm history
  sdc-voladm history VOLUME --since 2d
  sdc-voladm history -o ended,volume,what,told -s -ended

Needs a volapi with rfd26: no other has snapshots. sdc-migrate history has what ended of migrations.")]
    History {
        /// Only of this volume: its uuid, a beginning of it, or its name.
        volume: Option<String>,
        /// Only what ended since then: 2h, 3d, or a time in ISO 8601.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    #[command(flatten)]
    Generated(Generated),
}
