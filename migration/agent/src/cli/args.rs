// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::Subcommand;

pub(super) const HELP: &str = "\
Examples:
  migration-agent status                        the open migrations of this node
  migration-agent release UUID                  boot a VM that waits for migration-service";

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Before the zones boot: keep down what was replaced while the node was away.
    #[command(after_help = "\
Examples:
  migration-agent boot

The start method runs it. It asks the service about each VM with an open migration. A VM whose copy was replaced gets
autoboot=false and do_not_inventory=true. While the service does not answer, such a VM does not boot with its node: the
daemon boots it when the service says that it was not replaced. Other VMs are not touched.")]
    Boot,
    /// Boot a VM that waits for migration-service to answer whether its copy was replaced.
    #[command(after_help = "\
Examples:
  migration-agent release 0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11

Only where you know that the VM does not run on another node. Needs root: it asks the running agent by its socket.")]
    Release {
        /// The VM: its uuid, a unique beginning of it, or its alias.
        vm: String,
    },
}
