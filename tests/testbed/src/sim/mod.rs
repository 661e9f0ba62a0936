// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed sim`: one seed is one world of nodes, agents, NAPI and VMAPI in one process, on a
//! simulated clock. The agents and vminfod are the real ones; the world around them loses, repeats,
//! delays, fails, hangs and crashes. The visible promises are checked after every step, and at the
//! end everything has to agree and be silent.
//!
//! Where each promise is checked:
//!
//! | promises | by |
//! |---|---|
//! | I1 I2 I3 I4 I5 I6 I7 I9 I10 I12 | [`wire`], at each write, against the true state |
//! | I8 V9 | [`gate`], at each request and event of an agent |
//! | V1 V2 V3 V4 V6 V8 V11 | [`watch`], at each line and each read |
//! | V5 V12 | [`watch`], after each step (V5: where no command is about to lie) |
//! | V7 I11 V13 | [`settle`] and [`node`], at the end; V10 as the number of tasks alive |
//!
//! Held elsewhere: V10 in bytes, since worlds share one heap
//! (`a_stalled_listener_costs_bounded_memory_and_nobody_else_anything`, vminfod/tests/http.rs, and
//! `testbed soak`); V14 against recordings of upstream
//! (`testbed conform`, vminfod/tests/golden); I13 where two nodes have one VM, in every order of a
//! migration's steps (tests/programs/migration).

pub mod bugs;
pub mod changes;
pub mod checks;
pub mod commands;
pub mod equivalence;
pub mod gate;
pub mod node;
pub mod points;
pub mod settle;
pub mod signals;
pub mod steps;
pub mod truth;
pub mod watch;
pub mod wire;

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

use self::bugs::Bug;
use self::node::{Centre, Cn};
use self::signals::Weather;
use self::truth::Truth;
use self::watch::{Histories, Places, Watching};
use mocks::napi::{Era, Options, Store};
use mocks::vmapi;

/// Returns the seeds that failed once.
pub fn regressions() -> Vec<u64> {
    let lines = include_str!("regressions.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[derive(Debug, Parser)]
#[command(name = "testbed sim", about = "The whole system under a seeded world")]
struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run the seeds that failed once, too
    #[arg(long, conflicts_with_all = ["seed", "bugs", "crash_points"])]
    regressions: bool,
    /// Replay this one, with what happened in it
    #[arg(long)]
    seed: Option<u64>,
    /// Put a deliberate bug in; every seed that notices it counts as failed
    #[arg(long)]
    bug: Option<Bug>,
    /// Put every deliberate bug in, one after the other, and tell which seed notices it first
    #[arg(long, conflicts_with_all = ["bug", "seed", "crash_points", "equivalence"])]
    bugs: bool,
    /// One scripted history, with the agent's death, a stale answer and an unseen state at each
    /// of its requests and events in turn
    #[arg(long, conflicts_with_all = ["bug", "seed", "equivalence"])]
    crash_points: bool,
    /// Of these points, every n-th only
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// The same life delivered whole, late, shuffled and thinned has to end the same
    #[arg(long, conflicts_with = "bug")]
    equivalence: bool,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    let args: Args = match crate::cli::parse("testbed sim", args) {
        Ok(args) => args,
        Err(status) => return status,
    };
    if args.crash_points {
        return points::run(args.every);
    }
    if args.bugs {
        return bugs::run(args.from, args.seeds);
    }
    let mut seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (args.from..args.from.saturating_add(args.seeds)).collect(),
    };
    if args.regressions {
        seeds.extend(regressions());
    }
    let failed = match args.equivalence {
        true => in_pairs(&seeds, &|seed| match equivalence::one(*seed) {
            Ok(()) => true,
            Err(error) => {
                println!("FAIL testbed sim --equivalence --seed {seed}: {error:#}");
                false
            }
        }),
        false => run_seeds(&seeds, args.bug, args.seed.is_some()),
    };
    println!("{} passed, {} failed", seeds.len() as u64 - failed, failed);
    ExitCode::from(u8::from(failed > 0))
}

/// Runs these seeds, two at a time; prints a line for each that fails and gives their number.
pub fn run_seeds(seeds: &[u64], bug: Option<Bug>, tell: bool) -> u64 {
    let out = Mutex::new(());
    in_pairs(seeds, &|seed| {
        let (result, trace) = one(*seed, bug);
        let _one_at_a_time = out.lock().unwrap_or_else(PoisonError::into_inner);
        if tell {
            trace.iter().for_each(|line| println!("  {line}"));
        }
        let Err(error) = result else { return true };
        let bug = bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
        println!("FAIL testbed sim --seed {seed}{bug}: {error:#}");
        false
    })
}

/// Does the work on each, two at a time; how many did not hold?
fn in_pairs<T: Sync>(each: &[T], holds: &(dyn Fn(&T) -> bool + Sync)) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = usize::try_from(at).ok().and_then(|at| each.get(at)) else {
                        return;
                    };
                    failed.fetch_add(u64::from(!holds(one)), Ordering::Relaxed);
                }
            });
        }
    });
    failed.into_inner()
}

/// Runs one seed on a clock of its own; what came of it, and what happened.
pub fn one(seed: u64, bug: Option<Bug>) -> (anyhow::Result<()>, Vec<String>) {
    let truth = Truth::default();
    (alone(world(seed, bug, &truth)), truth.trace())
}

/// Runs this on a clock of its own.
fn alone<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = crate::clock::paused()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}

/// Chance that hangs on what is asked and how often it was asked before, and not on who was first:
/// two readings that race within one moment do not change the rest of the world.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    asked: HashMap<String, u64>,
}

impl Dice {
    /// Dice of this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, asked: HashMap::new() }
    }

    /// The dice for this question.
    pub fn of(&mut self, question: String) -> StdRng {
        let mut hasher = std::hash::DefaultHasher::new();
        let nth = self.asked.entry(question.clone()).or_default();
        (self.seed, question, *nth).hash(&mut hasher);
        *nth += 1;
        StdRng::seed_from_u64(hasher.finish())
    }
}

/// Where the nodes' files are: in memory where there is such a place.
fn place() -> io::Result<tempfile::TempDir> {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// One world: what its nodes share, its nodes, and who listens to each.
struct World {
    centre: Centre,
    nodes: Vec<Cn>,
    readers: Vec<Reader>,
    rng: StdRng,
}

impl World {
    /// The world of a seed, with everything running.
    async fn new(
        seed: u64,
        bug: Option<Bug>,
        truth: &Truth,
        dir: &Path,
        weather: Weather,
    ) -> anyhow::Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let era = if rng.random_range(0..3_u8) == 0 { Era::Rfd58 } else { Era::Master };
        let centre = Centre {
            napi: Store::new(Options { seed, ..Options::era(era) }),
            vmapi: vmapi::Store::default(),
            truth: truth.clone(),
            seed,
            bug,
        };
        let (mut nodes, mut readers) = (Vec::new(), Vec::new());
        let count = if rng.random_range(0..4_u8) == 0 { 2 } else { 1 };
        for nth in 0..count {
            let place = dir.join(nth.to_string());
            std::fs::create_dir_all(&place)?;
            let mut cn = Cn::new(&centre, &place, nth, rng.random_range(3..9))?;
            cn.way.set(weather);
            let ctx = Ctx::new(Root::new(cn.node.root()), std::sync::Arc::new(cn.honest.clone()));
            let vms = load::objects(&ctx).await.context("the first load")?.vms;
            steps::seed(&centre, &mut cn, nth, &vms, &mut rng).map_err(anyhow::Error::msg)?;
            cn.start_vminfod().await?;
            cn.start_agent()?;
            readers.push(Reader::new(&centre, &cn, nth));
            nodes.push(cn);
        }
        Ok(Self { centre, nodes, readers, rng })
    }

    /// So many steps, and whether they are nothing but life.
    async fn live(&mut self, only_life: bool) -> anyhow::Result<()> {
        let rng = &mut self.rng;
        for _ in 0..rng.random_range(15..50) {
            let at = rng.random_range(0..self.nodes.len());
            steps::step(&self.centre, &mut self.nodes[at], rng, only_life).await?;
            let pause = [0, 3, 60, 800, 4_000, 25_000, 90_000][rng.random_range(0..7)];
            let barred = rng.random_range(0..5_u8) == 0;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if barred {
                let cn = &self.nodes[at];
                let vms = self.centre.truth.on(&cn.uuid);
                if let (true, [_, ..]) = (cn.commands.is_calm(), vms.as_slice()) {
                    let vm = &vms[rng.random_range(0..vms.len())];
                    watch::barrier(cn, vm, &self.centre.truth, self.centre.bug).await;
                }
            }
            for (cn, reader) in self.nodes.iter().zip(&self.readers) {
                reader.check(cn, &self.centre).await;
            }
            held(&self.centre.truth)?;
        }
        Ok(())
    }

    /// The end of it.
    async fn end(self) {
        for cn in self.nodes {
            cn.end().await;
        }
    }
}

async fn world(seed: u64, bug: Option<Bug>, truth: &Truth) -> anyhow::Result<()> {
    let dir = place()?;
    let mut world = World::new(seed, bug, truth, dir.path(), Weather::GOOD).await?;
    world.live(false).await?;
    settle::settle(&world.centre, &world.nodes, &world.readers).await?;
    world.end().await;
    held(truth)
}

/// Who listens to a node: one that never stalls, one that does, and a reader now and then.
#[derive(Clone, Default)]
struct Reader {
    histories: Histories,
    places: Places,
}

impl Reader {
    /// The listeners of this node.
    fn new(centre: &Centre, cn: &Cn, nth: u64) -> Self {
        let reader = Self::default();
        for (n, lazy) in [(1, false), (2, true)] {
            let watching = Watching {
                node: cn.node.clone(),
                wire: cn.wire.clone(),
                histories: reader.histories.clone(),
                places: reader.places.clone(),
                truth: centre.truth.clone(),
                seed: centre.seed ^ (n << 32) ^ nth,
                lazy,
                bug: centre.bug,
            };
            tokio::spawn(watching.run());
        }
        reader
    }

    /// What can be asked after each step.
    async fn check(&self, cn: &Cn, centre: &Centre) {
        watch::read(&cn.wire, &self.histories, &centre.truth, centre.bug).await;
        watch::keeps_up(&cn.wire, &self.places, &centre.truth).await;
    }
}

fn held(truth: &Truth) -> anyhow::Result<()> {
    match truth.faults().as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => bail!("{first} (and {} more)", rest.len()),
    }
}
