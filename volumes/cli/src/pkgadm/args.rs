// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of `sdc-pkgadm` and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use daemon::cli::{Generated, ListArgs, names};

use volumes_core::volume::TYPE;

/// The name in messages and requests.
pub(super) const NAME: &str = "sdc-pkgadm";

const ABOUT: &str = "\
Examples:
  sdc-pkgadm volume list
  sdc-pkgadm volume add --name nfs1-10g --size 10G --storage-instance-pkg UUID --description '10 GiB'
  sdc-pkgadm volume deactivate nfs1-10g

A package is its uuid or its name. Where volapi is: --url, else $VOLAPI_URL, else volapi_url in the configuration of
sdc-voladm. volapi must have rfd26 = true.

Exit status: 0 done, 1 failed or refused, 2 wrong usage or configuration.
Colours only on a terminal, and never with NO_COLOR.";

/// Administers packages.
#[derive(Parser, Debug)]
#[command(name = NAME, version = daemon::cli::version(), after_help = ABOUT)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// volapi.
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,
    /// Configuration file (default: /opt/smartdc/agents/etc/sdc-voladm.config.json).
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Packages of volumes.
    #[command(subcommand)]
    Volume(VolumeVerb),
    #[command(flatten)]
    Generated(Generated),
}

#[derive(Subcommand, Debug)]
pub enum VolumeVerb {
    /// List packages, the smallest first.
    #[command(after_help = "\
Examples:
  sdc-pkgadm volume list
  sdc-pkgadm volume list --owner UUID               those that a user may use
  sdc-pkgadm volume list -H -p -o name,uuid -s -size")]
    List {
        /// Only those that this user may use.
        #[arg(long, value_name = "UUID", value_parser = names::uuid)]
        owner: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show one package, a row for each field.
    #[command(after_help = "\
Examples:
  sdc-pkgadm volume get nfs1-10g
  sdc-pkgadm volume get nfs1-10g -j | json uuid")]
    Get {
        /// The package.
        package: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Make a package; prints its uuid.
    #[command(after_help = "\
Examples:
  sdc-pkgadm volume add --name nfs1-10g --size 10G --storage-instance-pkg UUID --description '10 GiB'
  sdc-pkgadm volume add --size 10G --storage-instance-pkg UUID --description '10 GiB' --owner UUID --inactive")]
    Add(AddArgs),
    /// Let users have volumes of a package.
    #[command(after_help = "\
Examples:
  sdc-pkgadm volume activate nfs1-10g")]
    Activate {
        /// The package.
        package: String,
    },
    /// Hide a package from users; volumes that have it stay as they are.
    #[command(after_help = "\
Examples:
  sdc-pkgadm volume deactivate nfs1-10g")]
    Deactivate {
        /// The package.
        package: String,
    },
}

#[derive(Args, Debug)]
pub struct AddArgs {
    /// A name of the form nfs1-10g, which is the default for 10 GiB.
    #[arg(long)]
    pub name: Option<String>,
    /// The type of volumes.
    #[arg(long = "type", default_value = TYPE, value_parser = [TYPE])]
    pub kind: String,
    /// The size with its unit: 10G, 1T.
    #[arg(long)]
    pub size: String,
    /// PAPI's package of the storage VMs, whose quota is that size.
    #[arg(long, value_name = "UUID", value_parser = names::uuid)]
    pub storage_instance_pkg: String,
    /// What users read.
    #[arg(long)]
    pub description: String,
    /// Only for this user; may be repeated.
    #[arg(long, value_name = "UUID", value_parser = names::uuid)]
    pub owner: Vec<String>,
    /// Not for users yet.
    #[arg(long)]
    pub inactive: bool,
}
