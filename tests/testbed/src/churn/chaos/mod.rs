// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed chaos`: random operations on the files, zones, datasets and processes of a node, daemons
//! that are killed and restarted, and with `--lost-events` changes that nothing announces. When all is
//! quiet, three have to agree: the cache of the daemon that lived through it, the cache of a fresh
//! daemon, and what a reading of the node without a daemon finds.

mod real; // with real processes

mod simulated; // in simulated time

mod steps; // what is done to the node, and what has to agree then

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::command;
use crate::lab::world::this_program;
use crate::parallel::failed_in_parallel;

/// What to run.
#[derive(Clone, Copy, Debug, Parser)]
#[command(name = "testbed chaos", about = "Old cache = fresh cache = the node, after anything")]
pub struct Options {
    /// How many seeds to run
    #[arg(long, default_value_t = 20)]
    pub seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    pub from: u64,
    /// Half of the changes are announced by no event
    #[arg(long)]
    pub lost_events: bool,
    /// In simulated time, without processes
    #[arg(long)]
    pub simulated: bool,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed chaos", args, async |options: Options| {
        let program = this_program()?;
        // Each seed has a runtime of its own, which no other may wait for.
        let failed = tokio::task::spawn_blocking(move || run_seeds(options, &program)).await?;
        println!("{} passed, {failed} failed", options.seeds - failed);
        Ok(failed == 0)
    })
}

/// Runs the seeds, several at a time; prints a line, and what was done, for each that fails and returns
/// their number. `program` is the testbed, which is vminfod and its helpers too.
pub fn run_seeds(options: Options, program: &Path) -> u64 {
    let Options { seeds, from, lost_events, simulated } = options;
    let seeds: Vec<u64> = (from..from.saturating_add(seeds)).collect();
    failed_in_parallel(&seeds, &|seed| {
        let mut done = Vec::new();
        let result = match simulated {
            true => simulated::one(*seed, lost_events, &mut done),
            false => real::one(program, *seed, lost_events, &mut done),
        };
        let Err(error) = result else { return true };
        let lost = if lost_events { " --lost-events" } else { "" };
        let simulated = if simulated { " --simulated" } else { "" };
        let steps = done.join("\n  ");
        println!(
            "FAIL testbed chaos --seeds 1 --from {seed}{lost}{simulated}: {error:#}\n  {steps}"
        );
        false
    })
}
