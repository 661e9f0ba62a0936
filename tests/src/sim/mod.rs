// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed sim`: one seed is one world of nodes, agents, NAPI and VMAPI in one process, under a
//! clock that jumps from timer to timer. What runs is what runs in production; the world around it
//! loses, repeats, delays, fails, hangs and crashes. After every step the promises of
//! ../shared/faults.md that can be seen are checked, and at the end everybody has to agree and be
//! silent.

pub mod bugs;
pub mod checks;
pub mod commands;
pub mod node;
pub mod settle;
pub mod signals;
pub mod steps;
pub mod truth;
pub mod watch;
pub mod wire;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use vminfod::load::{self, Ctx};
use vminfod::root::Root;

use self::bugs::Bug;
use self::node::{Centre, Cn};
use self::truth::Truth;
use self::watch::{Histories, Watching};
use crate::napi::{Era, Options, Store};
use crate::vmapi;

/// Seeds that failed once; each is run again by every `cargo test`.
pub const REGRESSIONS: &str = include_str!("regressions.txt");

#[derive(Debug, Parser)]
#[command(name = "testbed sim", about = "The whole system under a seeded world")]
struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Replay this one, with what happened in it
    #[arg(long)]
    seed: Option<u64>,
    /// Put a deliberate bug in; every seed that notices it counts as failed
    #[arg(long)]
    bug: Option<Bug>,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    let words = std::iter::once(OsString::from("sim")).chain(args.iter().cloned());
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { daemon::exit::USAGE } else { 0 });
        }
    };
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (args.from..args.from.saturating_add(args.seeds)).collect(),
    };
    let failed = run_seeds(&seeds, args.bug, args.seed.is_some());
    println!("{} passed, {} failed", seeds.len() as u64 - failed, failed);
    ExitCode::from(u8::from(failed > 0))
}

/// Runs these seeds, two at a time; prints a line for each that fails and gives their number.
pub fn run_seeds(seeds: &[u64], bug: Option<Bug>, tell: bool) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let out = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at =
                        usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                    let Some(seed) = seeds.get(at) else { return };
                    let (result, trace) = one(*seed, bug);
                    let _one_at_a_time = out.lock().unwrap_or_else(PoisonError::into_inner);
                    if tell {
                        trace.iter().for_each(|line| println!("  {line}"));
                    }
                    if let Err(error) = result {
                        failed.fetch_add(1, Ordering::Relaxed);
                        let bug = bugs::BUGS.iter().find(|(_, one)| Some(*one) == bug);
                        let bug = bug.map(|(name, _)| format!(" --bug {name}")).unwrap_or_default();
                        println!("FAIL testbed sim --seed {seed}{bug}: {error:#}");
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// Runs one seed on a clock of its own; what came of it, and what happened.
pub fn one(seed: u64, bug: Option<Bug>) -> (anyhow::Result<()>, Vec<String>) {
    let truth = Truth::default();
    let runtime = match crate::clock::paused() {
        Ok(runtime) => runtime,
        Err(error) => return (Err(error.into()), Vec::new()),
    };
    let result = runtime.block_on(world(seed, bug, &truth));
    runtime.shutdown_timeout(Duration::from_secs(5));
    (result, truth.trace())
}

/// Where the nodes' files are: in memory where there is such a place.
fn place() -> io::Result<tempfile::TempDir> {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

async fn world(seed: u64, bug: Option<Bug>, truth: &Truth) -> anyhow::Result<()> {
    let dir = place()?;
    let mut rng = StdRng::seed_from_u64(seed);
    let era = if rng.random_range(0..3_u8) == 0 { Era::Rfd58 } else { Era::Master };
    let centre = Centre {
        napi: Store::new(Options { seed, ..Options::era(era) }),
        vmapi: vmapi::Store::default(),
        truth: truth.clone(),
        seed,
        bug,
    };
    let mut nodes = Vec::new();
    let count = if rng.random_range(0..4_u8) == 0 { 2 } else { 1 };
    let mut readers = Vec::new();
    for nth in 0..count {
        let place = dir.path().join(nth.to_string());
        std::fs::create_dir_all(&place)?;
        let mut cn = Cn::new(&centre, &place, nth, rng.random_range(3..9))?;
        let ctx = Ctx::new(Root::new(cn.node.root()), std::sync::Arc::new(cn.honest.clone()));
        let vms = load::node(&ctx).await.context("the first load")?.vms;
        steps::seed(&centre, &mut cn, nth, &vms, &mut rng).map_err(anyhow::Error::msg)?;
        cn.start_vminfod().await?;
        cn.start_agent()?;
        let histories = Histories::default();
        for (n, lazy) in [(1, false), (2, true)] {
            let watching = Watching {
                node: cn.node.clone(),
                wire: cn.wire.clone(),
                histories: histories.clone(),
                truth: truth.clone(),
                seed: seed ^ (n << 32) ^ nth,
                lazy,
                bug,
            };
            tokio::spawn(watching.run());
        }
        readers.push(histories);
        nodes.push(cn);
    }
    live(&centre, &mut nodes, &readers, &mut rng).await?;
    settle::settle(&centre, &nodes, &readers).await?;
    for cn in nodes {
        cn.end().await;
    }
    held(truth)
}

fn held(truth: &Truth) -> anyhow::Result<()> {
    match truth.faults().as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => bail!("{first} (and {} more)", rest.len()),
    }
}

/// The part of the world's life in which things go wrong.
async fn live(
    centre: &Centre,
    nodes: &mut [Cn],
    readers: &[Histories],
    rng: &mut StdRng,
) -> anyhow::Result<()> {
    for _ in 0..rng.random_range(15..50) {
        let at = rng.random_range(0..nodes.len());
        steps::step(centre, &mut nodes[at], rng).await?;
        let pause = [0, 3, 60, 800, 4_000, 25_000, 90_000][rng.random_range(0..7)];
        tokio::time::sleep(Duration::from_millis(pause)).await;
        for (cn, histories) in nodes.iter().zip(readers) {
            watch::read(&cn.wire, histories, &centre.truth, centre.bug).await;
        }
        held(&centre.truth)?;
    }
    Ok(())
}
