// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed swarm`: ten thousand agents against one NAPI or VMAPI, on a simulated clock. Every agent is the
//! real one over an in-process transport; only delays are made up. A seed gives the same swarm
//! again.

mod bounds;
mod feed;
mod node;
mod queue;
mod run;
mod series;

pub use bounds::{Check, Start};
pub use node::{Shape, With};
pub use queue::Overload;
pub use run::{Ran, Run, simulate};
pub use series::{Counts, Kind};

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use self::series::STEP;
use crate::arguments::command;
use crate::plot;
use mocks::napi::Era;

/// Starts many agents at once against a NAPI (vm-agent: a VMAPI) of several capacities and compares with
/// the promises.
#[derive(Debug, Parser)]
#[command(name = "testbed swarm")]
struct Args {
    /// How many agents start at the same moment
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    agents: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Hours after the start
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Which agent starts
    #[arg(long, value_enum, default_value = "net-agent")]
    with: With,
    /// NAPI's age; the promises are about rfd58, other ages only print
    #[arg(long, default_value = "rfd58")]
    era: Era,
    /// VMs per node, one NIC each
    #[arg(long, default_value_t = 4)]
    vms: u32,
    /// Physical links per node, each with a server NIC
    #[arg(long, default_value_t = 2)]
    links: u32,
    /// Capacities of the service in requests per second, besides 70 % of what the start needs at its peak
    /// and on average
    #[arg(long, value_delimiter = ',', default_values_t = [1000.0, 500.0, 15.0])]
    capacity: Vec<f64>,
    /// What a slow service does with a request nobody waits for any more
    #[arg(long, value_enum)]
    overload: Option<Overload>,
    /// How fleet-agents connect to their servers again, instead; no other option but --agents and --seed counts
    #[arg(long)]
    feed: bool,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", default_value = "swarm.svg")]
    svg: PathBuf,
}

/// Runs the command with these arguments on runtimes whose clock is virtual.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed swarm", args, async |args: Args| match args.feed {
        true => Ok(reconnects(args.agents, args.seed)),
        false => all(&args),
    })
}

/// Prints how fleet-agents connect again; whether every promise was kept.
fn reconnects(agents: u32, seed: u64) -> bool {
    let mut good = true;
    for row in feed::rows(agents, seed) {
        println!("{row}");
        for check in row.checks() {
            good &= check.kept();
            let word = if check.kept() { "ok  " } else { "MISS" };
            println!("   {word} {}: {:.1} (at most {:.1})", check.what, check.found, check.most);
        }
    }
    good
}

fn all(args: &Args) -> anyhow::Result<bool> {
    let shape = Shape { vms: args.vms, links: args.links };
    let start = Start { agents: args.agents, shape, era: args.era, with: args.with };
    println!(
        "{} {:?}s, {} VMs and {} links each, era {:?}, seed {}",
        args.agents, args.with, args.vms, args.links, args.era, args.seed
    );
    println!(
        "fewest requests of the start {:.0}; evenly spread its peak is {:.1}/s",
        start.minimum(),
        start.even_peak()
    );
    let runs = planned(args, start);
    let mut good = true;
    let mut panels = Vec::new();
    for done in run::all(&runs) {
        let ran = done?;
        good &= report(&ran);
        panels.extend(ran.panels());
    }
    let title = format!("{} agents, era {:?}, seed {}", args.agents, args.era, args.seed);
    let svg = plot::svg(&title, &panels);
    std::fs::write(&args.svg, svg).with_context(|| args.svg.display().to_string())?;
    println!("picture: {}", args.svg.display());
    if args.era != Era::Rfd58 {
        println!("the promises are about era rfd58: figures only");
    }
    Ok(good)
}

/// Every capacity asked for goes on for the hours asked for; what is only about the start of a
/// slow NAPI goes on for one at most.
fn planned(args: &Args, start: Start) -> Vec<Run> {
    let asked = args.capacity.iter().map(|capacity| (*capacity, args.hours));
    let extra = [start.even_peak(), start.mean()].map(|need| (7.0 * need).round() / 10.0);
    let mut extra = extra.to_vec();
    extra.dedup();
    let extra = extra.into_iter().filter(|extra| !args.capacity.contains(extra));
    let extra = extra.map(|extra| (extra, args.hours.min(1)));
    let mut runs = Vec::new();
    for (capacity, hours) in asked.chain(extra) {
        let run = |overload, hours: u64| {
            let after = Duration::from_secs(3600 * hours);
            Run { start, seed: args.seed, capacity, overload, after }
        };
        match args.overload {
            Some(overload) => runs.push(run(overload, hours)),
            None => {
                runs.push(run(Overload::Drops, hours));
                if capacity < start.even_peak() {
                    runs.push(run(Overload::Wastes, hours.min(1)));
                }
            }
        }
    }
    runs
}

/// Prints one run; whether every promise was kept.
fn report(ran: &Ran) -> bool {
    let Ran { run, counts, took } = ran;
    println!();
    println!("== {} ({:.1} s of real time)", run.title(), took.as_secs_f64());
    let (start, steady) = run.start.split(counts);
    println!(
        "   start: {} requests in {} s, busiest 10 s {:.1}/s; after it: {} requests in {:.1} h, busiest 10 s {:.1}/s",
        start.iter().sum::<u64>(),
        start.len() as u64 * STEP,
        bounds::busiest(&start),
        steady.iter().sum::<u64>(),
        (steady.len() as u64 * STEP) as f64 / 3600.0,
        bounds::busiest(&steady),
    );
    let kinds: Vec<String> =
        Kind::ALL.iter().map(|kind| format!("{} {}", kind.name(), counts.of(*kind))).collect();
    println!("   in all {}: {}", counts.total(), kinds.join(", "));
    println!("   given up on {}, connections never taken {}", counts.given_up, counts.refused);
    match counts.drained {
        Some(at) => println!(
            "   drained after {:.0} s; ideal {:.0} s",
            at.as_secs_f64(),
            run.start.ideal(run.capacity)
        ),
        None => println!("   never drained"),
    }
    println!("   req/s by minute: {}", rates(&start, 6));
    println!("   req/s by hour after it: {}", rates(&steady, 360));
    let checks = run.start.checks(run.capacity, counts);
    let judged = run.start.era == Era::Rfd58;
    for check in &checks {
        let word = match (check.kept(), judged) {
            (true, _) => "ok  ",
            (false, true) => "MISS",
            (false, false) => "note",
        };
        println!("   {word} {}: {:.1} (at most {:.1})", check.what, check.found, check.most);
    }
    !judged || checks.iter().all(Check::kept)
}

/// Means over groups of steps, at most sixty of them.
fn rates(steps: &[u64], group: usize) -> String {
    let group = group.max(steps.len().div_ceil(60));
    let mean = |g: &[u64]| g.iter().sum::<u64>() as f64 / (g.len() as u64 * STEP) as f64;
    let all: Vec<String> = steps.chunks(group).map(|g| format!("{:.1}", mean(g))).collect();
    all.join(" ")
}
