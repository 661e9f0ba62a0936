// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed bench`: compares the programs with limits taken in the same run. Each row has a value, a
//! limit, and a bar: the highest ratio of the two. Programs are real processes on a simulated node;
//! limits are small programs that do the least that has to be done.
//!
//! | modules | what they are for |
//! | --- | --- |
//! | `start` to `migrate` in `GROUPS` | one group of rows each |
//! | `quick` | `--quick`: counts of work instead of times |
//! | `table` | rows, and how they are printed |
//! | `setting`, `cn`, `served`, `client` | nodes, a vminfod process on one, and its client |
//! | `streams`, `arrival` | listeners of `/events`, and when lines reach them |
//! | `limits`, `bare`, `idle` | what values are compared with, and the pace of sweeps |

mod agent;
mod arrival;
mod bare;
mod client;
mod cn;
mod diff;
mod events;
mod files;
mod fleet;
mod idle;
mod kvmd;
mod limits;
mod listeners;
mod load;
mod memory;
mod migrate;
mod mocks;
mod quick;
mod refresh;
mod serve;
mod served;
mod setting;
mod start;
mod streams;
mod table;
mod vm_agent;
mod volumes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use futures_util::future::LocalBoxFuture;
use tokio::time::Instant;

use self::setting::Bench;
use self::table::{Row, Verdict};
use crate::arguments::command;

/// Measures.
#[derive(Debug, Parser)]
#[command(name = "testbed bench")]
struct Args {
    /// Groups to measure, all if none is named
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(GROUPS.map(|(name, _)| name)))]
    names: Vec<String>,
    /// For machines
    #[arg(long)]
    json: bool,
    /// The table of PERFORMANCE.md
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Counts of the work done instead of times; 1 if one is too high
    #[arg(long)]
    quick: bool,
    /// How often a thing is measured; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many VMs the node of the group `load` has
    #[arg(long, default_value_t = 5000)]
    vms: u32,
    /// A recorded node (root and cmd in it) for the group `load` instead of a generated one
    #[arg(long, value_name = "DIR")]
    node: Option<PathBuf>,
    /// The executable of vminfod that is measured, as packages have it; this program's own if none is named
    #[arg(long, value_name = "FILE")]
    vminfod: Option<PathBuf>,
    /// MB of the VMs that the group `migrate` moves
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 2000], value_parser = clap::value_parser!(u32).range(16..))]
    megabytes: Vec<u32>,
}

/// The cargo profile of this build.
const PROFILE: &str = env!("BUILD_PROFILE");

type Group = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, anyhow::Result<Vec<Row>>>;

const GROUPS: [(&str, Group); 16] = [
    ("start", |bench| Box::pin(start::run(bench))),
    ("load", |bench| Box::pin(load::run(bench))),
    ("serve", |bench| Box::pin(serve::run(bench))),
    ("files", |bench| Box::pin(files::run(bench))),
    ("events", |bench| Box::pin(events::run(bench))),
    ("listeners", |bench| Box::pin(listeners::run(bench))),
    ("memory", |bench| Box::pin(memory::run(bench))),
    ("refresh", |bench| Box::pin(refresh::run(bench))),
    ("diff", |bench| Box::pin(diff::run(bench))),
    ("agent", |bench| Box::pin(agent::run(bench))),
    ("vm-agent", |bench| Box::pin(vm_agent::run(bench))),
    ("mocks", |bench| Box::pin(mocks::run(bench))),
    ("kvmd", |bench| Box::pin(kvmd::run(bench))),
    ("volumes", |bench| Box::pin(volumes::run(bench))),
    ("fleet", |bench| Box::pin(fleet::run(bench))),
    ("migrate", |bench| Box::pin(migrate::run(bench))),
];

/// Runs `testbed bench`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed bench", args, async |args: Args| match args.quick {
        true => Ok(quick::report(&quick::run().await?, args.json)),
        false => all(args).await,
    })
}

/// Measures what was asked for and prints it; whether every row is at its target.
async fn all(args: Args) -> anyhow::Result<bool> {
    let mut bench = Bench::new(
        args.rounds as usize,
        (args.vms, args.megabytes),
        (args.node, args.vminfod),
        crate::process::raise_descriptors(),
    );
    // Stdout may be JSON.
    eprintln!("profile {PROFILE}");
    let (mut rows, began) = (Vec::new(), Instant::now());
    for (name, group) in GROUPS {
        if !args.names.is_empty() && args.names.iter().all(|n| n != name) {
            continue;
        }
        let start = Instant::now();
        let more = group(&mut bench).await;
        let more = more.unwrap_or_else(|err| vec![Row::failed(name, format!("{err:#}"))]);
        // At once: a later group may never end.
        eprintln!("{name}: {:.1} s\n{}", start.elapsed().as_secs_f64(), table::text(&more));
        rows.extend(more.into_iter().map(|row| row.in_group(name)));
    }
    if args.json {
        println!("{}", table::json(&rows));
    } else if args.markdown {
        print!("{}", table::markdown(&rows));
    } else {
        print!("{}", table::text(&rows));
    }
    let count = |wanted: fn(&Verdict) -> bool| rows.iter().filter(|r| wanted(&r.verdict)).count();
    let missed = count(|v| *v == Verdict::Fail);
    if !args.json {
        println!(
            "\nprofile {PROFILE}, {} rows: {} within their bars, {missed} not, {} skipped; {:.0} s",
            rows.len(),
            count(|v| *v == Verdict::Pass),
            count(|v| matches!(v, Verdict::Skipped(_))),
            began.elapsed().as_secs_f64()
        );
    }
    Ok(missed == 0)
}
