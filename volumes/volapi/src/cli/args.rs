// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The grammar of the command line and its help.

use clap::Subcommand;

pub(super) const HELP: &str = "\
Examples:
  volapi status                              what it has done and what it is waiting for
  volapi import --from http://volapi.dc      take over the records of the deployed service";

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Take over volumes and reservations from a running sdc-volapi; may be repeated.
    #[command(after_help = "\
Examples:
  volapi import --from http://volapi.dc.example.com

Prints one line for each record that was new, that differed, or that is only here. With the embedded store
the service must be stopped meanwhile.")]
    Import {
        /// The base URL of the deployed service.
        #[arg(long, value_name = "URL")]
        from: String,
    },
}
