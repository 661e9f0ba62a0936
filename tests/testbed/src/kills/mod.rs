// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed migrate-kill`: migrations with real programs on two nodes of the lab, and kill -9 for migration-service or
//! one of the agents at chosen moments: before or after a request that changes something, or a command that changes a
//! node. A killed program is started again as SMF does. `moving` holds P13 at every such moment and P14 at each end.

mod site; // the data centre, and the stories in it

mod choice; // which kills, by seed

mod gate; // the commands of a node, each of which is a point

mod relay; // the requests between the programs, each of which is a point

mod points; // where somebody can be killed

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;
use tokio::time::Instant;

use self::choice::Choice;
use self::site::Site;
use crate::moving::operator::COMMON;

/// So many stories in a row in which no kill happens are too many.
const IDLE: usize = 4;

#[derive(Debug, Parser)]
#[command(name = "testbed migrate-kill", about = "Migrations with real programs, and kill -9")]
struct Args {
    /// How many kills
    #[arg(long, default_value_t = 40)]
    points: usize,
    /// Decides where
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tell what happened also where all is well
    #[arg(long)]
    verbose: bool,
}

/// The command `migrate-kill`.
pub fn run(args: &[OsString]) -> ExitCode {
    crate::arguments::command("testbed migrate-kill", args, kill)
}

async fn kill(args: Args) -> anyhow::Result<bool> {
    let Args { points, seed, verbose } = args;
    println!("seed {seed}");
    let dir = crate::place::place()?;
    let began = Instant::now();
    let mut site = Site::start(dir.path(), seed).await.context("the data centre")?;
    let mut choice = Choice::new(seed);
    let (mut killed, mut failed, mut idle) = (0, 0, 0);
    // First without kills: that is how the points become known.
    for (nth, story) in COMMON.into_iter().chain(COMMON.into_iter().cycle()).enumerate() {
        let is_plain = nth < COMMON.len();
        if killed >= points {
            break;
        }
        let told = site.tell(story, points - killed, &mut choice, is_plain).await?;
        killed += told.kills.len();
        idle = if told.kills.is_empty() && !is_plain { idle + 1 } else { 0 };
        ensure!(idle < IDLE, "no point that was chosen is met any more");
        let is_well = told.faults.is_empty();
        let word = if is_well { "ok  " } else { "FAIL" };
        let seconds = told.took.as_secs_f64();
        println!("{word} {story:?} {seconds:.1} s: {}", told.kills.join("; "));
        for fault in &told.faults {
            println!("     {fault}");
        }
        if verbose || !is_well {
            println!("     {}", told.notes.join("\n     "));
        }
        if !is_well {
            failed += 1;
            // What comes after it would only tell the same.
            break;
        }
    }
    let stopped = site.stop().await;
    println!("{killed} kills, {failed} failed; {} s", began.elapsed().as_secs());
    if failed > 0 {
        println!("the nodes, logs and state files are kept in {}", dir.keep().display());
    }
    stopped?;
    Ok(failed == 0)
}
