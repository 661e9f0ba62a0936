// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed bench`: how long loading takes, compared in the same run with the least it could take.
//!
//! It measures the production loader and nothing made for the measurement.

mod load;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use daemon::exit;

/// Measures.
#[derive(Debug, Parser)]
#[command(name = "testbed bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Loading a whole node against reading and parsing its XML and JSON files in one thread
    Load {
        /// How many VMs the generated node has
        #[arg(long, default_value_t = 10_000)]
        vms: u32,
        /// How often each is measured; the median counts
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// A recorded node (root and cmd in it) instead of a generated one
        #[arg(long, value_name = "DIR")]
        node: Option<PathBuf>,
    },
}

/// Runs `testbed bench`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    let given = std::iter::once(OsString::from("testbed bench")).chain(args.iter().cloned());
    let What::Load { vms, rounds, node } = match Args::try_parse_from(given) {
        Ok(args) => args.what,
        Err(err) => {
            let _unprinted = err.print();
            return ExitCode::from(if err.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    match load::run(vms, rounds, node.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::FAILED),
        Err(err) => {
            eprintln!("testbed bench: {err:#}");
            ExitCode::from(exit::FAILED)
        }
    }
}
